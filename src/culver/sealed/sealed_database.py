"""SQLite files that notice damage, for which SQLite's own checks are not enough.

A bit that flips in a cell passes them. A bit that flips in the write-ahead log makes SQLite drop the rest of that log
in silence. A sealed file notices both:

    every table   ... | checksum      crc32 of the row, which SQLite computes and stores with it
    seal          commits | digest | schema
                                      the number of transactions, the sum of all checksums, the crc32 of the schema
    FILE-seal     commits             in a file of its own, see `seal_file`

A file with a lower count than its seal has lost transactions.
"""

import contextlib
import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from culver.errors import StorageCorrupt
from culver.sealed.seal_file import SealFile, read_seal, seal_path

SUFFIXES = ("", "-wal", "-shm", "-seal")
"""The endings of the files that belong to one database."""
_SEAL_TABLE = """
CREATE TABLE seal (
    only INTEGER PRIMARY KEY CHECK (only = 0), commits INTEGER NOT NULL, digest INTEGER NOT NULL, schema INTEGER
)
"""
_encode = msgspec.msgpack.Encoder().encode


class Table(NamedTuple):
    """The columns of a table with their definitions, in the order of the checksum. The first names a row."""

    columns: Mapping[str, str]
    options: str = ""

    def statements(self, name: str) -> list[str]:
        """Those that create the table, and keep the digest of the file up to date."""
        columns = ", ".join(f"{column} {definition}" for column, definition in self.columns.items())
        checksum = f"INTEGER GENERATED ALWAYS AS (row_checksum({', '.join(self.columns)})) STORED"
        changes = {
            "INSERT": "+ NEW.checksum",
            "UPDATE": "+ NEW.checksum - OLD.checksum",
            "DELETE": "- OLD.checksum",
        }
        return [
            f"CREATE TABLE {name} ({columns}, checksum {checksum}) {self.options}",
            *(
                f"CREATE TRIGGER {name}_{event} AFTER {event} ON {name} "
                f"BEGIN UPDATE seal SET digest = digest {change}; END"
                for event, change in changes.items()
            ),
        ]


@dataclass(frozen=True, slots=True)
class DatabaseFormat:
    """The content of a file. Files of the formats from `oldest` on are brought to this one: each table takes over the
    columns that it had. `upgrade` then sees the old tables as `earlier_NAME`; `complete` adds what a new file needs
    too. `remedy` tells a person what to do with a damaged file."""

    what: str
    remedy: str
    application: int
    number: int
    oldest: int
    tables: Mapping[str, Table]
    indexes: tuple[str, ...]
    upgrade: tuple[str, ...] = ()
    complete: tuple[str, ...] = ()

    def damage(self, path: Path, finding: str) -> StorageCorrupt:
        return StorageCorrupt(f"{self.what} {path} is damaged ({finding}). {self.remedy}", path=str(path))


class SealedDatabase:
    """An open file. Its owner closes it. It lets `sqlite3.Error` pass."""

    def __init__(self, connection: sqlite3.Connection, seal: SealFile) -> None:
        self.connection = connection
        self.seal = seal

    def commit(self) -> None:
        """End a transaction; it is on disk and counted on return."""
        with self.seal.locked():
            (commits,) = self.connection.execute(
                "UPDATE seal SET commits = commits + 1 RETURNING commits"
            ).fetchone()
            self.connection.execute("COMMIT")
            self.seal.write(commits)

    def close(self) -> None:
        self.seal.close()
        self.connection.close()


def open_sealed(
    path: Path, format_: DatabaseFormat, *, check: bool = True, busy_seconds: float = 5.0
) -> SealedDatabase:
    """Open or make a file so that a commit is on disk when it returns. Check all of it first, and raise
    StorageCorrupt before anything has changed; a further process of a running site need not check again. Lets
    `sqlite3.Error` and OSError pass."""
    if check:
        _check(path, format_)
    # Their owners keep threads apart and begin transactions themselves.
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if check:
            _prepare(connection, format_)
        database = SealedDatabase(connection, SealFile(path))
        if check:
            database.seal.write(_commits(connection))
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
        raise
    return database


def row_checksum(*cells: Any) -> int:
    return zlib.crc32(_encode(cells))


def _check(path: Path, format_: DatabaseFormat) -> None:
    sealed = read_seal(path) or 0
    if not path.exists():
        if sealed:
            raise format_.damage(path, f"it is missing, and {seal_path(path).name} counts {sealed} changes")
        return
    # A reader leaves the write-ahead log as it is, where the last writer would put its intact part into the file.
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    with contextlib.closing(connection):
        connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            finding = _finding(connection, path, format_, sealed)
        except UnicodeDecodeError:  # SQLite's message quotes a part of the schema that is no text any more
            finding = "its schema cannot be read"
    if finding is not None:
        raise format_.damage(path, finding)


def _finding(connection: sqlite3.Connection, path: Path, format_: DatabaseFormat, sealed: int) -> str | None:
    """Returns what is wrong with a file, if anything. Raises StorageCorrupt for a file that is of another kind or
    format."""
    application, number = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not found and not application and not number:
        lost = (
            f"it is empty, and {seal_path(path).name} counts {sealed} changes; its write-ahead log is damaged"
        )
        return lost if sealed else None
    if application != format_.application and (application, format_.oldest) != (0, 0):
        raise StorageCorrupt(f"{path} is not {format_.what} of Culver; name another file", path=str(path))
    if not format_.oldest <= number <= format_.number:
        raise StorageCorrupt(
            f"{path} has format {number}, and this version of Culver reads formats {format_.oldest} to "
            f"{format_.number}; run the version that wrote it, or restore the file from a copy",
            path=str(path),
        )
    if number == format_.number:
        finding = _seal_finding(connection, path, format_, sealed, found)
    else:
        finding = "it says that it has an earlier format" if "seal" in found else None
    if finding is None:
        finding = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return None if finding == "ok" else finding


def _seal_finding(
    connection: sqlite3.Connection, path: Path, format_: DatabaseFormat, sealed: int, found: set[str]
) -> str | None:
    if missing := {*format_.tables, "seal"} - found:
        return f"it has no table {min(missing)}"
    row: tuple[Any, ...] = connection.execute("SELECT commits, digest, schema FROM seal").fetchone() or ()
    if [type(cell) for cell in row] != [int, int, int]:
        return "its table seal is damaged"
    commits, digest, schema = row
    if schema != _schema_checksum(connection):
        return "its schema fails its checksum"
    if commits < sealed:
        return f"its last {sealed - commits} changes are gone, as {seal_path(path).name} proves"
    total = 0
    for name, table in format_.tables.items():
        for *row, checksum in connection.execute(f"SELECT {', '.join(table.columns)}, checksum FROM {name}"):
            if row_checksum(*row) != checksum:
                return f"row {row[0]} of table {name} fails its checksum"
            total += checksum
    return None if total == digest else "rows are missing, or are those of an earlier moment"


def _prepare(connection: sqlite3.Connection, format_: DatabaseFormat) -> None:
    """Make the tables of a new file, or of one of an earlier format, in one transaction."""
    execute = connection.execute
    if _pragma(connection, "user_version") == format_.number:
        return
    earlier = {
        name: {column for _, column, *_ in execute(f"PRAGMA table_info({name})")} for name in format_.tables
    }
    earlier = {name: columns for name, columns in earlier.items() if columns}
    execute("BEGIN IMMEDIATE")
    for name in earlier:
        execute(f"ALTER TABLE {name} RENAME TO earlier_{name}")
    execute(_SEAL_TABLE)
    execute("INSERT INTO seal VALUES (0, 0, 0, NULL)")
    for name, table in format_.tables.items():
        for statement in table.statements(name):
            execute(statement)
        if name in earlier:
            both = ", ".join(column for column in table.columns if column in earlier[name])
            execute(f"INSERT INTO {name} ({both}) SELECT {both} FROM earlier_{name}")
    for statement in format_.upgrade if earlier else ():
        execute(statement)
    for name in earlier:
        execute(f"DROP TABLE earlier_{name}")
    for statement in (*format_.indexes, *format_.complete):
        execute(statement)
    execute("UPDATE seal SET schema = ?", (_schema_checksum(connection),))
    execute(f"PRAGMA application_id = {format_.application}")
    execute(f"PRAGMA user_version = {format_.number}")
    execute("UPDATE seal SET commits = commits + 1")
    execute("COMMIT")


def _schema_checksum(connection: sqlite3.Connection) -> int:
    rows = connection.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY name")
    return row_checksum(*rows.fetchall())


def _commits(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT commits FROM seal").fetchone()[0])


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
