"""The registry's SQLite file: its schema, how it is opened, and what its errors mean.

    registrations   one row per registration, by number; AUTOINCREMENT remembers the highest number there ever was,
                    so that none is used again; `scheme` exists since format 3, and earlier rows are columnar;
                    `channel` exists since format 4
    blocks, holes   see `block_store`; they exist since format 2
    state           one row: the registry's version, and since format 4 its identity

Each index answers one question: which registration of an id is in effect (UNIQUE keeps it to at most one), which were
added or ended after a version, which have expired, and which are live. All but one are partial, so that a
registration costs little more than its row and its id.
"""

import contextlib
import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from culver.disk import make_directory, sync_directory
from culver.errors import CulverError, InvalidRequest, StorageCorrupt, StorageError, StorageFull

_APPLICATION = 0x43554C56  # "CULV"
_FORMAT = 4

_BLOCKS = """
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    members INTEGER NOT NULL,
    prefix TEXT NOT NULL,
    first INTEGER NOT NULL,
    filter TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    version INTEGER NOT NULL,
    ended_version INTEGER,
    created_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,
    mailbox_count INTEGER,
    mailbox_bytes INTEGER,
    mailbox_age_seconds INTEGER,
    content BLOB NOT NULL
);
CREATE UNIQUE INDEX blocks_in_effect ON blocks (prefix, first) WHERE until IS NULL;
CREATE INDEX blocks_added ON blocks (version);
CREATE INDEX blocks_ended ON blocks (ended_version) WHERE ended_version IS NOT NULL;
CREATE INDEX blocks_expiring ON blocks (expires_at_us) WHERE until IS NULL AND expires_at_us IS NOT NULL;
CREATE TABLE holes (number INTEGER PRIMARY KEY);
"""

_SCHEME = "scheme TEXT NOT NULL DEFAULT 'columnar'"
_CHANNEL = "channel TEXT"
_IDENTITY = "identity BLOB"
_NEW_IDENTITY = "UPDATE state SET identity = randomblob(16);"

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE registrations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    filter TEXT NOT NULL,
    durable INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    removed INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL,
    ended_version INTEGER,
    created_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,
    mailbox_count INTEGER,
    mailbox_bytes INTEGER,
    mailbox_age_seconds INTEGER,
    {_SCHEME},
    {_CHANNEL}
);
CREATE UNIQUE INDEX in_effect ON registrations (id) WHERE until IS NULL;
CREATE INDEX added ON registrations (version);
CREATE INDEX ended ON registrations (ended_version) WHERE ended_version IS NOT NULL;
CREATE INDEX expiring ON registrations (expires_at_us) WHERE until IS NULL AND expires_at_us IS NOT NULL;
CREATE INDEX live ON registrations (number) WHERE until IS NULL AND durable = 0;
{_BLOCKS}
CREATE TABLE state (only INTEGER PRIMARY KEY CHECK (only = 0), version INTEGER NOT NULL, {_IDENTITY});
INSERT INTO state (only, version) VALUES (0, 0);
{_NEW_IDENTITY}
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT};
COMMIT;
"""

# What leads from each format to the next.
_UPGRADES = {
    1: _BLOCKS,
    2: f"ALTER TABLE registrations ADD COLUMN {_SCHEME};",
    3: f"ALTER TABLE registrations ADD COLUMN {_CHANNEL}; ALTER TABLE state ADD COLUMN {_IDENTITY}; {_NEW_IDENTITY}",
}


def open_database(path: Path) -> sqlite3.Connection:
    """Open or make the file, check it, and set it so that a commit is on disk when it returns.

    Raises StorageCorrupt, StorageFull or StorageError."""
    connection: sqlite3.Connection | None = None
    try:
        make_directory(path.parent)
        # The registry begins transactions itself, and its lock keeps threads apart.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -65536")
        # With 32 MiB a batch of subscriptions seldom pays for a checkpoint.
        connection.execute("PRAGMA wal_autocheckpoint = 8192")
        _prepare(connection, path)
    except BaseException as exc:
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if isinstance(exc, OSError):
            raise StorageError(f"the disk refused the registry {path}: {exc.strerror or exc}") from exc
        if isinstance(exc, sqlite3.Error):
            raise translate(exc, path) from exc
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    format_ = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if (application, format_, tables) == (0, 0, 0):
        connection.executescript(_SCHEMA)
        sync_directory(path.parent)
        return
    if application != _APPLICATION:
        raise StorageCorrupt(f"{path} is not a registry of Culver; name another file", path=str(path))
    if not 1 <= format_ <= _FORMAT:
        raise StorageCorrupt(
            f"{path} has registry format {format_}, and this version of Culver reads formats 1 to {_FORMAT}; "
            "run the version that wrote it",
            path=str(path),
        )
    finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise _corrupt(path, finding)
    for before in range(format_, _FORMAT):
        upgrade = f"{_UPGRADES[before]} PRAGMA user_version = {before + 1};"
        connection.executescript(f"BEGIN IMMEDIATE; {upgrade} COMMIT;")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing := {"registrations", "blocks", "holes", "state"} - found:
        raise _corrupt(path, f"it has no table {min(missing)}")


def translate(error: Exception, path: Path) -> CulverError:
    if isinstance(error, OverflowError | UnicodeEncodeError):
        return InvalidRequest(f"the subscription holds a value that cannot be stored: {error}")
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or (_is_input_output(code) and _is_full(path)):
        return StorageFull(f"the disk is full while writing the registry {path}; free space and try again")
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _corrupt(path, str(error))
    if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(
            f"another process holds the registry {path}; stop it, or use another data directory"
        )
    return StorageError(f"the disk refused an operation on the registry {path}: {error}")


def _is_input_output(code: int | None) -> bool:
    return code is not None and code & 0xFF == sqlite3.SQLITE_IOERR


def _corrupt(path: Path, finding: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"the registry {path} is damaged ({finding}). Stop the site and restore the file from a copy; without "
        "one, docs/storage.md tells how to save what can still be read.",
        path=str(path),
    )


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
