import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from culver.config import LogSettings
from culver.delivery.payload_reader import PayloadReader
from culver.errors import StorageError
from culver.log.files import FileLog
from support.logs import batch


class CountingLog(FileLog):
    """Counts how often it is read, and fails when told so."""

    reads = 0
    failing = False

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        self.reads += 1
        if self.failing:
            raise StorageError("the disk refuses")
        return super().read(start, end)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CountingLog]:
    with CountingLog(tmp_path, LogSettings()) as made:
        made.append([batch(start, 100) for start in range(0, 2_000, 100)])
        yield made


def payload(offset: int) -> bytes:
    return b'{"n": %d}' % offset


def test_many_readers_of_neighbouring_events_read_the_log_once(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log)
        answers = await asyncio.gather(*(reader.read([offset, offset + 100]) for offset in range(130)))
        assert answers == [[payload(offset), payload(offset + 100)] for offset in range(130)]
        assert log.reads == 1
        await reader.close()

    asyncio.run(run())


def test_a_block_that_grows_is_read_on_where_it_ended(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log)
        assert await reader.read([1_999]) == [payload(1_999)]
        assert await reader.read([2_000]) == [None]
        log.append([batch(2_000, 3)])
        assert await reader.read([1_998, 2_000, 2_002]) == [payload(1_998), payload(2_000), payload(2_002)]
        await reader.close()

    asyncio.run(run())


def test_what_is_remembered_is_bounded(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log, cache_bytes=100_000)  # two blocks
        for _ in range(2):
            for offset in (0, 600, 1_200):
                assert await reader.read([offset]) == [payload(offset)]
        assert log.reads == 6
        await reader.read([1_200])
        assert log.reads == 6
        tiny = PayloadReader(log, cache_bytes=1)
        assert await tiny.read([5, 6, 700]) == [payload(5), payload(6), payload(700)]
        await reader.close()
        await tiny.close()

    asyncio.run(run())


def test_one_answer_is_bounded_but_never_empty(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log, answer_bytes=20)
        assert await reader.read([0, 1, 2, 3, 4]) == [payload(0), payload(1), payload(2)]
        generous = PayloadReader(log, answer_bytes=1)
        assert await generous.read([0, 1]) == [payload(0)]
        await reader.close()
        await generous.close()

    asyncio.run(run())


def test_a_disk_that_refuses_is_reported_to_everybody_and_tried_again(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log)
        log.failing = True
        results = await asyncio.gather(reader.read([0]), reader.read([1]), return_exceptions=True)
        assert [type(result) for result in results] == [StorageError, StorageError]
        abandoned = asyncio.create_task(reader.read([2]))
        await asyncio.sleep(0)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        log.failing = False
        await reader.close()
        reader = PayloadReader(log)
        assert await reader.read([2]) == [payload(2)]
        await reader.close()

    asyncio.run(run())


def test_what_was_just_published_is_not_read_back(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log)
        await reader.read([1_999])
        reads = log.reads
        for first in range(2_000, 4_000, 40):
            log.append([batch(first, 40)])
            reader.remember(first, [payload(offset) for offset in range(first, first + 40)])
        assert await reader.read(range(1_990, 4_000)) == [payload(offset) for offset in range(1_990, 4_000)]
        assert log.reads == reads
        await reader.close()

    asyncio.run(run())


def test_remembering_out_of_order_leaves_no_hole(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log)
        log.append([batch(2_000, 600)])
        for first, last in [(2_300, 2_600), (2_000, 2_100), (2_200, 2_300), (2_100, 2_200)]:
            reader.remember(first, [payload(offset) for offset in range(first, last)])
        assert await reader.read(range(2_000, 2_600)) == [payload(offset) for offset in range(2_000, 2_600)]
        await reader.close()

    asyncio.run(run())


def test_what_was_just_published_is_remembered_within_bounds(log: CountingLog) -> None:
    async def run() -> None:
        reader = PayloadReader(log, cache_bytes=10_000)
        reader.remember(2_048, [b"x" * 1_000] * 5_000)
        assert reader._bytes <= 10_000
        await reader.close()

    asyncio.run(run())
