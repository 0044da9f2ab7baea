"""The SQLite registry against kills, full disks and damaged files."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from culver.config import RegistrySettings
from culver.errors import InvalidRequest, StorageCorrupt, StorageError, StorageFull
from culver.registry.sqlite_registry import SqliteRegistry
from support.subscriptions import block_spec, spec

SETTINGS = RegistrySettings()


def position(version: int) -> int:
    return version


def test_commits_are_synced_and_in_the_write_ahead_log(tmp_path: Path) -> None:
    with SqliteRegistry(tmp_path / "r.db", SETTINGS) as registry:
        assert registry._database is not None
        assert registry._database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert registry._database.connection.execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("version > 5 ORDER BY version, number", "added"),
        ("ended_version > 5 ORDER BY ended_version, number", "ended"),
        ("until IS NULL AND expires_at_us <= 5", "expiring"),
        ("until IS NULL AND durable = 0", "live"),
        ("id = 'a' AND until IS NULL", "in_effect"),
        ("until IS NULL AND id > 'a' ORDER BY id LIMIT 5", "in_effect"),
    ],
)
def test_every_question_has_its_index(tmp_path: Path, query: str, index: str) -> None:
    with SqliteRegistry(tmp_path / "r.db", SETTINGS) as registry:
        assert registry._database is not None
        plan = registry._database.connection.execute(
            f"EXPLAIN QUERY PLAN SELECT filter FROM registrations WHERE {query}"
        ).fetchall()
    assert len(plan) == 1
    assert f"USING INDEX {index}" in plan[0][3]


_CHANGE = """
import sys
from pathlib import Path
from culver.config import RegistrySettings
from culver.registry.sqlite_registry import SqliteRegistry
from support.subscriptions import spec

registry = SqliteRegistry(Path(sys.argv[1]), RegistrySettings())
while True:
    n = registry.version
    if n % 3 == 2:
        registry.remove([f"s{n - 1}"], lambda version: version * 7, 1)
    else:
        registry.add([spec(f"s{n}"), spec(f"t{n}")], lambda version: version * 7, 1)
    print(registry.version, flush=True)
"""


@pytest.mark.slow(seconds=2)
def test_killed_process_loses_no_acknowledged_change_and_skips_no_version(tmp_path: Path) -> None:
    acknowledged = 0
    for round_ in range(4):
        with start(_CHANGE, str(tmp_path / "r.db")) as process:
            assert process.stdout is not None
            for _ in range(15 + 13 * round_):
                acknowledged = int(process.stdout.readline())
            process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    acknowledged = int(line)
        with SqliteRegistry(tmp_path / "r.db", SETTINGS) as registry:
            assert acknowledged <= registry.version <= acknowledged + 1
            changes = registry.changes(0)
            seen = {r.version for r in changes.added} | {until // 7 for _, until in changes.ended}
            assert seen == set(range(1, registry.version + 1))
            assert all(r.since == 7 * r.version for r in changes.added)


_FILL = """
import resource, signal, sys
from pathlib import Path
from culver.config import RegistrySettings
from culver.errors import StorageFull
from culver.registry.sqlite_registry import SqliteRegistry
from support.subscriptions import spec

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
registry = SqliteRegistry(Path(sys.argv[1]), RegistrySettings())
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
refused = 0
while refused < 3:
    version, count = registry.version, registry.count()
    try:
        registry.add([spec() for _ in range(20)], lambda version: version, 1)
    except StorageFull:
        refused += 1
        assert (registry.version, registry.count()) == (version, count)
        assert len(list(registry.registrations())) == count
full_at = registry.version
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
registry.add([spec("after")], lambda version: version, 1)
print(full_at, registry.version, registry.count(), flush=True)
import os
os._exit(0)
"""


def test_full_disk_refuses_a_change_as_a_whole_and_goes_on_when_there_is_space(tmp_path: Path) -> None:
    with start(_FILL, str(tmp_path / "r.db")) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    full_at, version, count = map(int, output.split())
    assert full_at > 3
    assert (version, count) == (full_at + 1, 20 * full_at + 1)
    with SqliteRegistry(tmp_path / "r.db", SETTINGS) as registry:
        assert (registry.version, registry.count()) == (version, count)
        assert registry.get("after").version == version


def test_sqlite_telling_that_the_disk_is_full_is_storage_full(tmp_path: Path) -> None:
    with SqliteRegistry(tmp_path / "r.db", SETTINGS) as registry:
        assert registry._database is not None
        pages = registry._database.connection.execute("PRAGMA page_count").fetchone()[0]
        registry._database.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageFull, match=r"r\.db"):
            registry.add([spec() for _ in range(1_000)], position, 1)
        assert (registry.version, registry.count(), list(registry.registrations())) == (0, 0, [])
        registry._database.connection.execute("PRAGMA max_page_count = 1000000")
        assert len(registry.add([spec() for _ in range(1_000)], position, 1)) == 1_000


def test_file_that_is_no_database_is_damage_and_named(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StorageCorrupt) as caught:
        SqliteRegistry(path, SETTINGS)
    assert str(path) in caught.value.message
    assert caught.value.details["path"] == str(path)


def test_overwritten_pages_are_damage_and_named(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with SqliteRegistry(path, SETTINGS) as registry:
        registry.add([spec() for _ in range(2_000)], position, 1)
    content = bytearray(path.read_bytes())
    for page in range(8, 20):
        content[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    path.write_bytes(content)
    with pytest.raises(StorageCorrupt, match=r"r\.db is damaged"):
        SqliteRegistry(path, SETTINGS)


def test_registry_without_its_tables_is_damage(tmp_path: Path) -> None:
    SqliteRegistry(tmp_path / "r.db", SETTINGS).close()
    robbed = sqlite3.connect(tmp_path / "r.db")
    robbed.execute("DROP TABLE state")
    robbed.close()
    with pytest.raises(StorageCorrupt, match="no table state"):
        SqliteRegistry(tmp_path / "r.db", SETTINGS)


def test_other_databases_and_later_formats_are_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    with pytest.raises(StorageCorrupt, match="not the registry"):
        SqliteRegistry(tmp_path / "other.db", SETTINGS)
    SqliteRegistry(tmp_path / "r.db", SETTINGS).close()
    later = sqlite3.connect(tmp_path / "r.db")
    later.execute("PRAGMA user_version = 9")
    later.close()
    with pytest.raises(StorageCorrupt, match="format 9"):
        SqliteRegistry(tmp_path / "r.db", SETTINGS)


def test_second_writer_on_the_same_file_is_found_out(tmp_path: Path) -> None:
    with (
        SqliteRegistry(tmp_path / "r.db", SETTINGS) as one,
        SqliteRegistry(tmp_path / "r.db", SETTINGS) as other,
    ):
        one.add([spec("a")], position, 1)
        with pytest.raises(StorageError, match="another process"):
            other.add([spec("b")], position, 1)
        assert [r.id for r in one.page(None, 10)] == ["a"]


def test_directory_that_cannot_be_used_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError):
        SqliteRegistry(tmp_path / "file" / "r.db", SETTINGS)


def test_value_that_does_not_fit_is_an_invalid_request_and_changes_nothing(tmp_path: Path) -> None:
    with SqliteRegistry(tmp_path / "r.db", SETTINGS) as registry:
        with pytest.raises(InvalidRequest):
            registry.add([spec("a"), spec("b", expires_at_us=2**70)], position, 1)
        assert (registry.version, registry.count()) == (0, 0)
        assert registry.add([spec("a")], position, 1)[0].version == 1


def start(script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[2])])},
    )


FORMAT_4 = """
CREATE TABLE registrations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, filter TEXT NOT NULL, durable INTEGER NOT NULL,
    since INTEGER NOT NULL, until INTEGER, removed INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL,
    ended_version INTEGER, created_at_us INTEGER NOT NULL, expires_at_us INTEGER, mailbox_count INTEGER,
    mailbox_bytes INTEGER, mailbox_age_seconds INTEGER, scheme TEXT NOT NULL DEFAULT 'columnar', channel TEXT
);
CREATE UNIQUE INDEX in_effect ON registrations (id) WHERE until IS NULL;
CREATE INDEX added ON registrations (version);
CREATE INDEX ended ON registrations (ended_version) WHERE ended_version IS NOT NULL;
CREATE INDEX expiring ON registrations (expires_at_us) WHERE until IS NULL AND expires_at_us IS NOT NULL;
CREATE INDEX live ON registrations (number) WHERE until IS NULL AND durable = 0;
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY, count INTEGER NOT NULL, members INTEGER NOT NULL, prefix TEXT NOT NULL,
    first INTEGER NOT NULL, filter TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER, version INTEGER NOT NULL,
    ended_version INTEGER, created_at_us INTEGER NOT NULL, expires_at_us INTEGER, mailbox_count INTEGER,
    mailbox_bytes INTEGER, mailbox_age_seconds INTEGER, content BLOB NOT NULL
);
CREATE UNIQUE INDEX blocks_in_effect ON blocks (prefix, first) WHERE until IS NULL;
CREATE INDEX blocks_added ON blocks (version);
CREATE INDEX blocks_ended ON blocks (ended_version) WHERE ended_version IS NOT NULL;
CREATE INDEX blocks_expiring ON blocks (expires_at_us) WHERE until IS NULL AND expires_at_us IS NOT NULL;
CREATE TABLE holes (number INTEGER PRIMARY KEY);
CREATE TABLE state (only INTEGER PRIMARY KEY CHECK (only = 0), version INTEGER NOT NULL, identity BLOB);
INSERT INTO state VALUES (0, 3, randomblob(16));
INSERT INTO registrations (number, id, filter, durable, since, version, created_at_us) VALUES
    (1, 'kept', 'x = 1', 1, 7, 1, 1), (2, 'changed', 'x = 1', 1, 7, 2, 1), (9, 'forgotten', 'x = 1', 1, 7, 3, 1);
DELETE FROM registrations WHERE number = 9;
PRAGMA application_id = 1129663574;
PRAGMA user_version = 4;
"""
FORMAT_3 = f"""{FORMAT_4}
ALTER TABLE registrations DROP COLUMN channel; ALTER TABLE state DROP COLUMN identity; PRAGMA user_version = 3;
"""
FORMAT_2 = f"{FORMAT_3} ALTER TABLE registrations DROP COLUMN scheme; PRAGMA user_version = 2;"
FORMAT_1 = f"{FORMAT_2} DROP TABLE blocks; DROP TABLE holes; PRAGMA user_version = 1;"


@pytest.mark.parametrize("earlier", [FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4])
def test_file_of_an_earlier_format_is_brought_to_this_one(earlier: str, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(earlier)
    with SqliteRegistry(path, SETTINGS) as registry:
        kept = registry.get("kept")
        assert (kept.number, kept.filter, kept.since) == (1, "x = 1", 7)
        assert registry.version == 3
        assert registry.add([spec("new")], position, 1)[0].number == 10, "numbers are never used again"
    identities: set[bytes] = set()
    for _ in range(2):
        with SqliteRegistry(path, SETTINGS) as registry:
            assert registry.get("kept") == kept
            assert (kept.scheme, kept.channel) == ("columnar", None)
            identities.add(registry.identity)
            registry.add_block(block_spec("quotes", [["ACME", 1.0]]), lambda version: 8, 1)
            registry.replace(spec("changed", scheme="counting", channel="c"), lambda version: 8, 1)
            assert (registry.get("changed").scheme, registry.get("changed").channel) == ("counting", "c")
    assert [len(identity) for identity in identities] == [16], "it stays"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (5,)
        assert connection.execute("SELECT count(*) FROM blocks").fetchone() == (2,)
        schemes = "SELECT scheme FROM registrations WHERE id = 'changed' ORDER BY number"
        assert connection.execute(schemes).fetchall() == [("columnar",), ("counting",), ("counting",)]
