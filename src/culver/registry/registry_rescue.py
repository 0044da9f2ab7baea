"""Makes a registry of what can still be read of a damaged one.

It keeps every row that has its checksum. Pages that SQLite cannot read hide the rows behind them, so it reads each
table from both ends. The version and the numbers go on far above those of the damaged file, whose latest may be lost:
an index, a notification or a cursor must never be taken for that of another registration.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from culver.config import UNLIMITED_FILTERS
from culver.disk import sync_directory
from culver.errors import InvalidFilter, StorageCorrupt
from culver.model import COLUMNAR, ENCODED
from culver.model.columns import read_columns
from culver.model.language import parse, prepare
from culver.registry.registry_database import FORMAT, open_database
from culver.sealed import SUFFIXES, read_seal, row_checksum

_SKIPPED = 1 << 30


class Rescued(NamedTuple):
    """The number of rows that were kept by table, and a sentence for each loss."""

    kept: dict[str, int]
    losses: list[str]


def rescue_registry(path: Path) -> Rescued:
    """Replace the file, and set the damaged one aside as `NAME.damaged` with its companions. Nobody else may have it
    open. Raises StorageCorrupt where nothing can be read, and StorageError; then all is as it was."""
    losses: list[str] = []
    rows = _read(path, losses)
    draft = path.with_name(f"{path.name}.rescued")
    _remove(draft)
    kept = _write(draft, rows, losses)
    for suffix in SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(path.with_name(f"{path.name}{suffix}.damaged"))
    for suffix in ("", "-seal"):
        draft.with_name(draft.name + suffix).rename(path.with_name(path.name + suffix))
    sync_directory(path.parent)
    return Rescued(kept, losses)


_Rows = dict[str, tuple[list[str], list[Sequence[Any]]]]


def _read(path: Path, losses: list[str]) -> _Rows:
    """The columns and the intact rows of each table."""
    found: _Rows = {}
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    with contextlib.closing(connection):
        connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            for name, table in FORMAT.tables.items():
                present = {row[1] for row in connection.execute(f"PRAGMA table_xinfo({name})")}
                columns = [column for column in table.columns if column in present]
                if columns:
                    rows = _intact(connection, name, columns, "checksum" in present, losses)
                    found[name] = columns, list(rows)
        except (sqlite3.Error, UnicodeDecodeError) as exc:
            raise StorageCorrupt(f"nothing can be read of {path}: {exc}; restore it from a copy") from exc
        if "state" not in found:
            raise StorageCorrupt(f"nothing can be read of {path}: it has no tables; restore it from a copy")
        commits = 0
        with contextlib.suppress(sqlite3.Error):
            (commits,) = connection.execute("SELECT commits FROM seal").fetchone()
    if (sealed := read_seal(path) or 0) > commits:
        losses.append(f"the last {sealed - commits} changes are gone")
    return found


def _intact(
    connection: sqlite3.Connection, table: str, columns: list[str], checked: bool, losses: list[str]
) -> Iterator[Sequence[Any]]:
    seen: set[Any] = set()
    chosen = ", ".join([*columns, "checksum"] if checked else columns)
    for order in ("ASC", "DESC"):
        try:
            for row in connection.execute(f"SELECT {chosen} FROM {table} ORDER BY {columns[0]} {order}"):
                if row[0] in seen:
                    continue
                seen.add(row[0])
                cells = row[: len(columns)]
                named = dict(zip(columns, cells, strict=True))
                if checked and row_checksum(*cells) != row[-1]:
                    losses.append(f"a row of {table} fails its checksum, and reads {_shown(named)}")
                elif not _has_meaning(named):
                    losses.append(f"a row of {table} has no meaning: {_shown(named)}")
                else:
                    yield cells
            return
        except sqlite3.DatabaseError as exc:
            losses.append(f"rows of {table} may be missing: {exc}")


def _has_meaning(row: dict[str, Any]) -> bool:
    """Whether the filter of a row parses, and the rows of a block can be read."""
    try:
        if "content" in row:
            prepare(row["filter"], UNLIMITED_FILTERS)
            read_columns(row["content"])
        elif "filter" in row and row.get("scheme", COLUMNAR) != ENCODED:
            parse(row["filter"], UNLIMITED_FILTERS)
    except (InvalidFilter, ValueError, OSError, StopIteration):
        return False
    return True


def _shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {row[name]!r}" for name in ("number", "id", "prefix", "filter") if name in row)


def _write(draft: Path, rows: _Rows, losses: list[str]) -> dict[str, int]:
    database = open_database(draft)
    try:
        execute = database.connection.execute
        execute("BEGIN IMMEDIATE")
        execute("DELETE FROM state")
        for table, (columns, found) in rows.items():
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            for row in found:
                try:
                    execute(insert, row)
                except sqlite3.IntegrityError as exc:
                    losses.append(f"row {row[0]} of {table} contradicts another one: {exc}")
        for statement in FORMAT.complete:
            execute(statement)
        for (number,) in execute(
            "UPDATE blocks SET members = left FROM (SELECT b.number AS block, b.count - count(h.number) AS left "
            "FROM blocks b LEFT JOIN holes h ON h.number >= b.number AND h.number < b.number + b.count "
            "GROUP BY b.number) WHERE block = number AND members != left RETURNING number"
        ).fetchall():
            losses.append(f"block {number} may have members again that were replaced or removed")
        execute(
            "UPDATE state SET last_number = ? + max(last_number, "
            "(SELECT coalesce(max(number), 0) FROM registrations), "
            "(SELECT coalesce(max(number + count), 0) FROM blocks)), version = ? + max(version, "
            "(SELECT coalesce(max(max(version, coalesce(ended_version, 0))), 0) FROM registrations), "
            "(SELECT coalesce(max(max(version, coalesce(ended_version, 0))), 0) FROM blocks))",
            (_SKIPPED, _SKIPPED),
        )
        counts = {
            table: int(execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for table in ("registrations", "blocks")
        }
        database.commit()
    finally:
        database.close()
    return counts


def _remove(draft: Path) -> None:
    for suffix in SUFFIXES:
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
