"""Sealed files notice what SQLite does not: altered cells, and transactions that a damaged log has lost."""

import contextlib
import logging
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from culver.errors import StorageCorrupt
from culver.sealed import DatabaseFormat, Table, open_sealed, read_seal, seal_path

FORMAT = DatabaseFormat(
    what="the table of things",
    remedy="Restore it.",
    application=77,
    number=2,
    oldest=1,
    tables={"things": Table({"number": "INTEGER PRIMARY KEY", "text": "TEXT NOT NULL", "more": "BLOB"})},
    indexes=("CREATE INDEX by_text ON things (text)",),
)
ROWS = 60
# Writes a row in each transaction, changes some and deletes one, and dies without closing anything.
WRITER = """
import os, sys
from pathlib import Path
from test_sealed_database import FORMAT, ROWS, rows
from culver.sealed import open_sealed

database = open_sealed(Path(sys.argv[1]), FORMAT)
for row in rows():
    database.connection.execute("BEGIN IMMEDIATE")
    database.connection.execute("INSERT INTO things (number, text, more) VALUES (?, 'draft', ?)", (row[0], row[2]))
    database.connection.execute("UPDATE things SET text = ? WHERE number = ?", (row[1], row[0]))
    database.commit()
database.connection.execute("BEGIN IMMEDIATE")
database.connection.execute("INSERT INTO things (number, text) VALUES (1000, 'gone')")
database.connection.execute("DELETE FROM things WHERE number = 1000")
database.commit()
os._exit(0)
"""


def rows() -> list[tuple[int, str, bytes]]:
    return [(number, f"thing number {number}", bytes([number]) * number) for number in range(1, ROWS + 1)]


def read(path: Path) -> list[tuple[int, str, bytes]]:
    with contextlib.closing(open_sealed(path, FORMAT)) as database:
        return database.connection.execute("SELECT number, text, more FROM things ORDER BY number").fetchall()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a process has left which was killed."""
    directory = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", WRITER, str(directory / "t.db")]
    subprocess.run(command, check=True, cwd=Path(__file__).parent)
    return directory


@pytest.fixture(scope="module")
def closed(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("closed")
    shutil.copytree(killed, directory, dirs_exist_ok=True)
    assert read(directory / "t.db") == rows()
    return directory


def altered(directory: Path, old: bytes, new: bytes, at: Path) -> Path:
    """A copy in which a part of a file is another."""
    shutil.copytree(directory, at, dirs_exist_ok=True)
    path = at / "t.db"
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return path


def test_what_a_killed_process_has_committed_is_read_back(killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    assert read_seal(tmp_path / "t.db") == ROWS + 2
    assert read(tmp_path / "t.db") == rows()


def test_altered_cell_is_found_and_its_row_named(closed: Path, tmp_path: Path) -> None:
    path = altered(closed, b"thing number 17", b"thing number 71", tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
    with pytest.raises(
        StorageCorrupt, match=r"t\.db is damaged \(row 17 of table things fails its checksum\)"
    ):
        read(path)


def test_cell_that_is_no_text_any_more_is_found_and_its_row_named(closed: Path, tmp_path: Path) -> None:
    path = altered(closed, b"thing number 17", b"thing\xffnumber 17", tmp_path)
    with pytest.raises(StorageCorrupt, match="row 17 of table things"):
        read(path)


def test_row_that_is_gone_is_found(closed: Path, tmp_path: Path) -> None:
    shutil.copytree(closed, tmp_path, dirs_exist_ok=True)
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        trigger = "SELECT sql FROM sqlite_schema WHERE name = 'things_DELETE'"
        (text,) = connection.execute(trigger).fetchone()
        connection.execute("DROP TRIGGER things_DELETE")
        connection.execute("DELETE FROM things WHERE number = 5")
        connection.execute(text)
        connection.commit()
    with pytest.raises(StorageCorrupt, match="rows are missing"):
        read(tmp_path / "t.db")


def test_schema_that_is_no_text_any_more_is_found(closed: Path, tmp_path: Path) -> None:
    path = altered(closed, b"CREATE INDEX by_text ON things", b"CREATE INDEX by_text O\xce things", tmp_path)
    with pytest.raises(StorageCorrupt, match="its schema cannot be read"):
        read(path)


def test_altered_schema_is_found(closed: Path, tmp_path: Path) -> None:
    path = altered(closed, b"digest + NEW.checksum - OLD", b"digest - NEW.checksum - OLD", tmp_path)
    with pytest.raises(StorageCorrupt, match="its schema fails its checksum"):
        read(path)


def test_transactions_that_a_flipped_bit_has_lost_are_counted_and_nothing_is_changed(
    killed: Path, tmp_path: Path
) -> None:
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "t.db-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 4
    log.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StorageCorrupt, match=r"its last \d+ changes are gone, as t\.db-seal proves"):
            read(tmp_path / "t.db")
    assert log.read_bytes() == content
    content[len(content) // 2] ^= 4
    log.write_bytes(content)
    assert read(tmp_path / "t.db") == rows()


def test_file_that_is_missing_is_no_new_file(closed: Path, tmp_path: Path) -> None:
    shutil.copytree(closed, tmp_path, dirs_exist_ok=True)
    (tmp_path / "t.db").unlink()
    with pytest.raises(StorageCorrupt, match="it is missing"):
        read(tmp_path / "t.db")


def test_seal_that_is_behind_or_absent_is_written_anew(killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "t.db"
    seal_path(path).unlink()
    assert read(path) == rows()
    assert read_seal(path) == ROWS + 2


def test_damaged_seal_is_named_and_written_anew(
    killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "t.db"
    seal_path(path).write_bytes(bytes(20))
    assert read(path) == rows()
    assert f"{seal_path(path)} is torn or altered" in caplog.text
    assert read_seal(path) == ROWS + 2


@pytest.mark.parametrize("kind", ["killed", "closed"])
def test_any_flipped_bit_leaves_the_content_or_is_reported_with_the_file(
    kind: str, killed: Path, closed: Path, tmp_path: Path, full_length: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    rng = random.Random(5)
    source, reported = {"killed": killed, "closed": closed}[kind], 0
    files = sorted(path.name for path in source.iterdir() if path.stat().st_size)
    for number in range(2_000 if full_length else 100):
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        path = copy / rng.choice(files)
        content = bytearray(path.read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            assert read(copy / "t.db") == rows(), f"flip {number}: bit {bit} of {path.name}"
        except (StorageCorrupt, sqlite3.Error) as exc:  # the owner of a file names it where SQLite does not
            reported += 1
            if isinstance(exc, StorageCorrupt) and str(copy / "t.db") not in exc.message:
                raise
        shutil.rmtree(copy)
    assert reported
