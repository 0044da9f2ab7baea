"""The registry's SQLite file: its schema, how it is opened, and what its errors mean.

    registrations   one row per registration, by number; `scheme` exists since format 3, and earlier rows are
                    columnar; `channel` exists since format 4
    blocks, holes   see `block_store`; they exist since format 2
    state           one row: the registry's version, the highest number there ever was, so that none is used again,
                    and since format 4 the registry's identity

Since format 5 the file is sealed, see `culver.sealed`.

Each index answers one question: which registration of an id is in effect (UNIQUE keeps it to at most one), which were
added or ended after a version, which have expired, and which are live. All but one are partial, so that a
registration costs little more than its row and its id.
"""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from culver.disk import make_directory, sync_directory
from culver.errors import CulverError, InvalidRequest, StorageError, StorageFull
from culver.sealed import DatabaseFormat, SealedDatabase, Table, open_sealed

_OPTIONS = {
    "created_at_us": "INTEGER NOT NULL",
    "expires_at_us": "INTEGER",
    "mailbox_count": "INTEGER",
    "mailbox_bytes": "INTEGER",
    "mailbox_age_seconds": "INTEGER",
}
_TABLES = {
    "registrations": Table(
        {
            "number": "INTEGER PRIMARY KEY",
            "id": "TEXT NOT NULL",
            "filter": "TEXT NOT NULL",
            "durable": "INTEGER NOT NULL",
            "since": "INTEGER NOT NULL",
            "until": "INTEGER",
            "removed": "INTEGER NOT NULL DEFAULT 0",
            "version": "INTEGER NOT NULL",
            "ended_version": "INTEGER",
            **_OPTIONS,
            "scheme": "TEXT NOT NULL DEFAULT 'columnar'",
            "channel": "TEXT",
        }
    ),
    "blocks": Table(
        {
            "number": "INTEGER PRIMARY KEY",
            "count": "INTEGER NOT NULL",
            "members": "INTEGER NOT NULL",
            "prefix": "TEXT NOT NULL",
            "first": "INTEGER NOT NULL",
            "filter": "TEXT NOT NULL",
            "since": "INTEGER NOT NULL",
            "until": "INTEGER",
            "version": "INTEGER NOT NULL",
            "ended_version": "INTEGER",
            **_OPTIONS,
            "content": "BLOB NOT NULL",
        }
    ),
    "holes": Table({"number": "INTEGER PRIMARY KEY"}),
    "state": Table(
        {
            "only": "INTEGER PRIMARY KEY CHECK (only = 0)",
            "version": "INTEGER NOT NULL",
            "last_number": "INTEGER NOT NULL DEFAULT 0",
            "identity": "BLOB",
        }
    ),
}
FORMAT = DatabaseFormat(
    what="the registry",
    remedy="Restore the file from a copy, with its -wal if the copy has one, and without the -seal. Without a copy, "
    "`culver rescue` keeps every subscription that can still be read, and lists the others; the index is then built "
    "from these, and mailboxes stay.",
    application=0x43554C56,  # "CULV"
    number=5,
    oldest=1,
    tables=_TABLES,
    indexes=(
        "CREATE UNIQUE INDEX in_effect ON registrations (id) WHERE until IS NULL",
        "CREATE INDEX added ON registrations (version)",
        "CREATE INDEX ended ON registrations (ended_version) WHERE ended_version IS NOT NULL",
        "CREATE INDEX expiring ON registrations (expires_at_us) WHERE until IS NULL AND expires_at_us IS NOT NULL",
        "CREATE INDEX live ON registrations (number) WHERE until IS NULL AND durable = 0",
        "CREATE UNIQUE INDEX blocks_in_effect ON blocks (prefix, first) WHERE until IS NULL",
        "CREATE INDEX blocks_added ON blocks (version)",
        "CREATE INDEX blocks_ended ON blocks (ended_version) WHERE ended_version IS NOT NULL",
        "CREATE INDEX blocks_expiring ON blocks (expires_at_us) WHERE until IS NULL AND expires_at_us IS NOT NULL",
    ),
    # Earlier formats left it to AUTOINCREMENT.
    upgrade=("UPDATE state SET last_number = seq FROM sqlite_sequence WHERE name = 'earlier_registrations'",),
    complete=(
        "INSERT INTO state (only, version) SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM state)",
        "UPDATE state SET identity = randomblob(16) WHERE identity IS NULL",
    ),
)


def open_database(path: Path, *, check: bool = True) -> SealedDatabase:
    """Open or make the file as `open_sealed` has it. Raises StorageCorrupt, StorageFull or StorageError."""
    try:
        make_directory(path.parent)
        is_new = not path.exists()
        database = open_sealed(path, FORMAT, check=check)
        if is_new:
            sync_directory(path.parent)
        database.connection.execute("PRAGMA cache_size = -65536")
        # With 32 MiB a batch of subscriptions seldom pays for a checkpoint.
        database.connection.execute("PRAGMA wal_autocheckpoint = 8192")
    except OSError as exc:
        raise StorageError(f"the disk refused the registry {path}: {exc.strerror or exc}") from exc
    except sqlite3.Error as exc:
        raise translate(exc, path) from exc
    return database


def translate(error: Exception, path: Path) -> CulverError:
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return InvalidRequest(f"the subscription holds a value that cannot be stored: {error}")
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or (_is_input_output(code) and _is_full(path)):
        return StorageFull(f"the disk is full while writing the registry {path}; free space and try again")
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return FORMAT.damage(path, str(error))
    if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(
            f"another process holds the registry {path}; stop it, or use another data directory"
        )
    return StorageError(f"the disk refused an operation on the registry {path}: {error}")


def _is_input_output(code: int | None) -> bool:
    return code is not None and code & 0xFF == sqlite3.SQLITE_IOERR


def _is_full(path: Path) -> bool:
    """Whether the disk is full. SQLite reports a quota or a limit on the size of files as a plain input/output error,
    so this tries a write of its own, to a file that ends where the write-ahead log would."""
    log = path.with_name(path.name + "-wal")
    try:
        end = log.stat().st_size if log.exists() else 0
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as file:
            os.pwrite(file.fileno(), bytes(65536), end)
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size < end + 65536
    except OSError as exc:
        return exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
