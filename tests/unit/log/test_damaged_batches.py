"""Damage in the middle of a log: only the damaged batch is lost, and the log says which it is."""

import logging
import random
import shutil
from pathlib import Path

import pytest

from culver.errors import StorageCorrupt
from culver.log import DamagedEvents
from culver.log.files import FileLog, FileLogReader
from support.logs import (
    ONE_SEGMENT,
    SMALL_SEGMENTS,
    Listener,
    batch,
    damage_record,
    last_segment,
    numbers,
    records_of,
)


def readable_numbers(log: FileLog | FileLogReader, end: int) -> tuple[list[int], list[tuple[int, int]]]:
    """What can be read below `end`, as a reader that goes on behind damage reads it, and what it has left out."""
    found: list[int] = []
    lost: list[tuple[int, int]] = []
    start = 0
    while start < end:
        try:
            for offset, part in log.read(start, end):
                assert offset == start
                start += part.num_rows
                found += part.column("d:i:n").to_pylist()
        except StorageCorrupt as exc:
            lost.append((exc.details["start"], exc.details["end"]))
            start = exc.details["end"]
    return found, lost


@pytest.mark.parametrize("kind", ["length", "checksum", "offset", "salt", "body", "zeros"])
def test_only_the_damaged_batch_is_lost_to_any_reader(tmp_path: Path, kind: str) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        for start in range(0, 240, 4):
            log.append([batch(start, 3, received_us=start), batch(start + 3, 1, received_us=start)])
        path = last_segment(tmp_path)
        record = records_of(path)[70]  # three events, of a group of two records
        damage_record(path, record, kind)
        start, end = record.offset, record.end_offset
        expected = [n for n in range(240) if not start <= n < end], [(start, end)]
        log._recent = ()
        for _ in range(2):
            assert readable_numbers(log, 240) == expected
        assert readable_numbers(FileLogReader(tmp_path), 240) == expected
        assert numbers(FileLogReader(tmp_path), end, 240) == list(range(end, 240))
        assert log.append([batch(240, 2)]) == 240
        assert numbers(log, end, 242) == list(range(end, 242))
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        assert log.next_offset == 242
        assert log.damage == [DamagedEvents(str(path), record.position, start, end)]
        assert readable_numbers(log, 240) == expected
        assert log.append([batch(242)]) == 242
        assert numbers(log, end, 243) == list(range(end, 243))
        assert (log.offset_at(start), log.offset_at(start + 1)) == (start, start + 4)


def test_several_damaged_batches_in_several_segments_are_told_apart(tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    with FileLog(whole, SMALL_SEGMENTS) as log:
        for n in range(80):
            log.append([batch(n)])
    generator = random.Random(5)
    kinds = ["length", "checksum", "offset", "salt", "body", "zeros"]
    for _ in range(20):
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(whole, damaged)
        lost = sorted(generator.sample(range(79), 5))
        for path in damaged.glob("*.log"):
            for record in records_of(path):
                if record.offset in lost:
                    damage_record(path, record, generator.choice(kinds))
        with FileLog(damaged, SMALL_SEGMENTS) as log:
            found, ranges = readable_numbers(log, 80)
        assert found == [n for n in range(80) if n not in lost]
        assert [n for start, end in ranges for n in range(start, end)] == lost


def test_damage_is_logged_once_with_file_byte_and_offsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        for start in range(0, 30, 3):
            log.append([batch(start, 3)])
        path = last_segment(tmp_path)
        record = records_of(path)[4]
        damage_record(path, record, "body")
        log._recent = ()
        with caplog.at_level(logging.ERROR, "culver.log"):
            for _ in range(3):
                readable_numbers(log, 30)
    assert caplog.text.count("is damaged") == 1
    assert f"{path} is damaged at byte {record.position}" in caplog.text
    assert "from offset 12 up to 15" in caplog.text


def test_damage_that_is_trimmed_is_forgotten(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for n in range(60):
            log.append([batch(n)])
        path = min(tmp_path.glob("*.log"))
        damage_record(path, records_of(path)[1], "body")
        log._recent = ()
        readable_numbers(log, 60)
        assert len(log.damage) == 1
        log.trim(40)
        assert log.offset_at(0) == log.first_offset
        assert not log.damage


def test_an_event_stamped_in_the_future_does_not_stamp_those_of_the_next_run(tmp_path: Path) -> None:
    """A clock that was ahead for one run keeps nothing from getting old."""
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for n in range(20):
            log.append([batch(n, received_us=1_000 + n)])
        log.append([batch(20, received_us=10**15)])
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        log.committer(Listener(), lambda: 2_000)
        for n in range(21, 60):
            log.append([batch(n, received_us=2_000 + n)])
        for reader in (log.offset_at, lambda us: FileLogReader(tmp_path).offset_at(us, 60)):
            assert reader(1_005) == 5
            assert reader(2_040) == 40
            assert reader(3_000) == 60


def test_where_damage_ends_is_told_only_if_something_intact_follows(tmp_path: Path) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        for start in range(0, 12, 4):
            log.append([batch(start, 4)])
        path = last_segment(tmp_path)
        record = records_of(path)[-1]
        damage_record(path, record, "body")
        with pytest.raises(StorageCorrupt) as caught:
            numbers(FileLogReader(tmp_path), 0, 12)
        assert (caught.value.details["start"], "end" in caught.value.details) == (8, False)
        log.append([batch(12)])
        with pytest.raises(StorageCorrupt) as caught:
            numbers(FileLogReader(tmp_path), 0, 12)
        assert (caught.value.details["start"], caught.value.details["end"]) == (8, 12)


def test_the_next_segment_tells_where_damage_at_the_end_of_one_ends(tmp_path: Path) -> None:
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        while len(list(tmp_path.glob("*.log"))) < 2:
            log.append([batch(log.next_offset, 4, padding=200)])
        first, last = sorted(tmp_path.glob("*.log"))
        record = records_of(first)[-1]
        assert record.end_offset == int(last.stem)
        damage_record(first, record, "zeros")
        with pytest.raises(StorageCorrupt) as caught:
            numbers(FileLogReader(tmp_path), 0, log.next_offset)
        assert (caught.value.details["start"], caught.value.details["end"]) == (
            record.offset,
            record.end_offset,
        )
