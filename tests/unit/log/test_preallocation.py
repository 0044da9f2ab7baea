"""Zeros that preallocate space in the last segment: nobody but the file system sees a difference."""

import asyncio
import logging
import os
import resource
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from culver.config import LogSettings
from culver.errors import StorageCorrupt
from culver.log.files import FileLog, FileLogReader
from culver.log.files.disk_thread import PREALLOCATED_BYTES, DiskThread, WriteFailure
from culver.log.files.log_segment import RecordBody
from culver.model.columns import Packed, serialise
from support.logs import ONE_SEGMENT, SMALL_SEGMENTS, batch, last_segment, numbers


def bodies(log: FileLog, events: pa.RecordBatch) -> list[RecordBody]:
    return log.prepare([Packed(events, serialise(events))])


def commit(log: FileLog, count: int = 1) -> None:
    """Append as the event loop and the disk thread do together."""
    first = log.next_offset
    staged = log.stage(bodies(log, batch(first, count)))
    if staged is None:
        log.append([batch(first, count)])
        return
    os.pwrite(staged.descriptor, staged.data, staged.position)
    os.pwrite(staged.descriptor, bytes(staged.preallocate), staged.position + len(staged.data))
    assert log.settle(None) == first


def test_a_small_commit_preallocates_space_for_many_that_follow(tmp_path: Path) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        commit(log)
        size = last_segment(tmp_path).stat().st_size
        assert size > PREALLOCATED_BYTES
        for _ in range(100):
            commit(log)
            assert last_segment(tmp_path).stat().st_size == size
        assert numbers(log, 0, 1_000) == numbers(FileLogReader(tmp_path), 0, 101) == list(range(101))
    assert last_segment(tmp_path).stat().st_size < PREALLOCATED_BYTES


def test_space_is_preallocated_again_where_it_ends_and_never_beyond_a_segment(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=50_000)
    with FileLog(tmp_path, settings) as log:
        for _ in range(500):
            commit(log, 3)
            assert last_segment(tmp_path).stat().st_size <= 50_000
        assert len(list(tmp_path.glob("*.log"))) > 3
        assert numbers(log, 0, 2_000) == numbers(FileLogReader(tmp_path), 0, 1_500) == list(range(1_500))


def test_zeros_that_a_crash_has_left_are_no_damage_and_nothing_to_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FileLog(tmp_path / "site", ONE_SEGMENT) as log:
        for _ in range(5):
            commit(log, 2)
        shutil.copytree(tmp_path / "site", tmp_path / "left")
    with caplog.at_level(logging.WARNING), FileLog(tmp_path / "left", ONE_SEGMENT) as log:
        assert log.next_offset == 10
        commit(log)
        assert numbers(log, 0, 100) == list(range(11))
    assert not caplog.records


def test_segments_that_are_full_may_end_with_zeros(tmp_path: Path) -> None:
    """A crash right after a new segment leaves the zeros of the one before."""
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        for _ in range(40):
            commit(log)
    for path in tmp_path.glob("*.log"):
        path.write_bytes(path.read_bytes() + bytes(1_000))
    with FileLog(tmp_path, SMALL_SEGMENTS) as log:
        assert numbers(log, 0, 100) == numbers(FileLogReader(tmp_path), 0, 40) == list(range(40))


@pytest.mark.parametrize("kept", [8, 40, 200])
def test_a_group_that_is_torn_within_the_zeros_is_cut_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    """Some of its bytes reached the disk, others are zeros still: the first ones, or the last."""
    with FileLog(tmp_path / "site", ONE_SEGMENT) as log:
        commit(log, 2)
        staged = log.stage(bodies(log, batch(2, 2)))
        assert staged is not None
        for place, part in ((0, staged.data[:kept]), (kept, staged.data[kept:])):
            left = tmp_path / f"left-{place}"
            shutil.copytree(tmp_path / "site", left)
            with last_segment(left).open("r+b") as file:
                file.seek(staged.position + place)
                file.write(part)
            caplog.clear()
            with FileLog(left, ONE_SEGMENT) as recovered:
                assert numbers(recovered, 0, 10) == [0, 1]
                commit(recovered)
                assert numbers(recovered, 0, 10) == [0, 1, 2]
            assert "unfinished" in caplog.text


def test_readers_do_not_look_at_what_is_half_written_behind_the_end(tmp_path: Path) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        commit(log, 3)
        staged = log.stage(bodies(log, batch(3, 5, received_us=10)))
        assert staged is not None
        os.pwrite(staged.descriptor, staged.data[:100], staged.position)
        for reader in (log, FileLogReader(tmp_path)):
            assert numbers(reader, 0, 3) == [0, 1, 2]
        assert log.offset_at(5) == FileLogReader(tmp_path).offset_at(5, 3) == 3
        os.pwrite(staged.descriptor, staged.data, staged.position)
        log.settle(None)
        assert log.offset_at(5) == 3
        assert log.offset_at(11) == 8


def test_zeros_in_the_place_of_an_acknowledged_group_are_damage(tmp_path: Path) -> None:
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        commit(log)
        before = log.stage(bodies(log, batch(1)))
        assert before is not None
        os.pwrite(before.descriptor, before.data, before.position)
        log.settle(None)
        commit(log)
    with last_segment(tmp_path).open("r+b") as file:
        file.seek(before.position)
        file.write(bytes(len(before.data)))
    with FileLog(tmp_path, ONE_SEGMENT) as log:
        assert log.damage == [(str(last_segment(tmp_path)), before.position, 1, 2)]
        with pytest.raises(StorageCorrupt, match="from offset 1 up to 2"):
            list(log.read(0, 3))
        assert numbers(log, 2, 3) == [2]


def test_a_commit_is_taken_though_the_disk_has_no_space_to_preallocate(tmp_path: Path) -> None:
    async def write(disk: DiskThread, log: FileLog) -> None:
        staged = log.stage(bodies(log, batch(log.next_offset)))
        assert staged is not None
        answer: asyncio.Future[WriteFailure | None] = asyncio.get_running_loop().create_future()
        disk.write(staged, answer.set_result)
        log.settle(await answer)

    async def main() -> None:
        disk = DiskThread()
        disk.start()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            with FileLog(tmp_path, ONE_SEGMENT) as log:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
                for _ in range(20):
                    await write(disk, log)
                assert last_segment(tmp_path).stat().st_size == 100_000
                assert numbers(log, 0, 100) == list(range(20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            disk.close()

    asyncio.run(main())
