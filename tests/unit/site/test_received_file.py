"""The positions in other sites' logs survive: from the file, and from the log behind it."""

import logging
from pathlib import Path

import pytest

from culver.config import LogSettings
from culver.log import ReadableLog
from culver.log.files import FileLog
from culver.model import Event, Origin
from culver.model.columns import encode
from culver.site.wide_area.received_file import ReceivedFile
from support.gateway import run
from support.logs import damage_record, last_segment, records_of
from support.memory_log import MemoryLog

LYON, BONN = "lyon~0123456789abcdef", "bonn~fedcba9876543210"


def events(*origins: Origin | None) -> list[Event]:
    return [Event({}, {"a": 1}, b'{"a":1}', origin) for origin in origins]


@pytest.fixture
def log(request: pytest.FixtureRequest) -> MemoryLog:
    log = MemoryLog.open(f"memory:{request.node.name}", None)  # type: ignore[arg-type]
    first = events(Origin(LYON, 4), None, Origin(BONN, 70))
    second = events(None, Origin(LYON, 9))
    log.append(encode(first, 0))
    log.append(encode(second, 0))
    return log


def test_log_alone_tells_the_positions(tmp_path: Path, log: ReadableLog) -> None:
    file = ReceivedFile(tmp_path / "overlay" / "received.json")
    assert file.recover(log, now_us=1_000) == {LYON: 10, BONN: 71}
    assert file.position == 5


def test_log_is_searched_around_a_damaged_batch(tmp_path: Path) -> None:
    with FileLog(tmp_path / "log", LogSettings()) as log:
        for each in (Origin(LYON, 4), Origin(BONN, 70), Origin(LYON, 9)):
            log.append(encode(events(each), 0))
    path = last_segment(tmp_path / "log")
    damage_record(path, records_of(path)[1])
    with FileLog(tmp_path / "log", LogSettings()) as log:
        file = ReceivedFile(tmp_path / "received.json")
        assert file.recover(log, now_us=1_000) == {LYON: 10}
        assert file.position == 3


def test_log_is_searched_from_the_stored_position_on(tmp_path: Path, log: MemoryLog) -> None:
    async def scenario() -> None:
        file = ReceivedFile(tmp_path / "received.json")
        file.recover(log, now_us=1_000)
        file.add_gap(BONN, 71, 90, "away")
        file.promised, file.floors = {LYON: 4}, {BONN: 2}
        await file.store(3, {LYON: 5, BONN: 90})
        assert file.position == 3

    run(scenario())
    again = ReceivedFile(tmp_path / "received.json")
    assert again.recover(log, now_us=10) == {LYON: 10, BONN: 90}
    assert again.boot > 1_000, "higher than before, although the clock went back"
    assert [(each.origin, each.start, each.end, each.reason) for each in again.gaps] == [
        (BONN, 71, 90, "away")
    ]
    assert again.gap_count == 1
    assert (again.promised, again.floors) == ({LYON: 4}, {BONN: 2})


def test_altered_number_is_not_believed(
    tmp_path: Path, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "received.json"
    ReceivedFile(path).recover(log, now_us=1_000)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"position":5', b'"position":7'))
    assert ReceivedFile(path).recover(log, now_us=2_000) == {LYON: 10, BONN: 71}
    assert f"{path} cannot be read (it fails its checksum)" in caplog.text


def test_file_of_before_has_no_checksum_and_is_read(tmp_path: Path, log: MemoryLog) -> None:
    path = tmp_path / "received.json"
    path.write_text('{"position": 5, "positions": {"bonn~fedcba9876543210": 90}}')
    assert ReceivedFile(path).recover(log, now_us=1_000) == {BONN: 90}


def test_new_identity_is_kept_and_the_floors_of_the_old_one_are_not(tmp_path: Path, log: MemoryLog) -> None:
    path = tmp_path / "received.json"
    file = ReceivedFile(path)
    file.recover(log, now_us=1_000)
    assert (file.identity, file.given_anew) == (b"", None)
    file.promised, file.floors = {LYON: 4}, {"bonn": 2}
    run(file.store(5, {LYON: 10}))
    for identity, given_anew in ((bytes(16), 3), (bytes([7] * 16), 4)):
        file.renew(identity, given_anew)
        file = ReceivedFile(path)
        assert file.recover(log, now_us=2_000) == {LYON: 10}
        assert (file.identity, file.given_anew, file.floors) == (identity, 3, {})
        assert file.promised == {LYON: 4}


def test_runs_on_one_copy_of_the_file_have_different_numbers(tmp_path: Path, log: ReadableLog) -> None:
    path = tmp_path / "received.json"
    ReceivedFile(path).recover(log, now_us=1_000)
    copied, boots = path.read_bytes(), set()
    for now_us in (2_000, 3_000):
        path.write_bytes(copied)
        file = ReceivedFile(path)
        file.recover(log, now_us)
        boots.add(file.boot)
    assert len(boots) == 2


def test_damaged_file_is_named_and_the_log_searched(
    tmp_path: Path, log: ReadableLog, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "received.json"
    path.write_text('{"position": 3, "positi')
    with caplog.at_level(logging.WARNING):
        assert ReceivedFile(path).recover(log, now_us=1) == {LYON: 10, BONN: 71}
    assert "received.json cannot be read" in caplog.text


def test_only_the_last_hundred_gaps_are_kept(tmp_path: Path, log: ReadableLog) -> None:
    file = ReceivedFile(tmp_path / "received.json")
    file.recover(log, now_us=1)
    for number in range(150):
        file.add_gap(LYON, number, number + 1, "away")
    assert (len(file.gaps), file.gaps[0].start, file.gap_count) == (100, 50, 150)
