"""The inline engine matches a few events while the disk makes them durable: that must never show."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from culver.config import LogSettings
from culver.log.files import FileLog
from culver.pipeline.inline_engine import InlineEngine
from culver.pipeline.site_files import SiteFiles
from support.engine_bench import EngineBench, events
from support.until import settled


class CountingLog(FileLog):
    reads = 0

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        self.reads += 1
        return super().read(start, end)


@contextmanager
def opened(directory: Path) -> Iterator[EngineBench]:
    with CountingLog(SiteFiles(directory).log, LogSettings()) as log:
        yield EngineBench("inline", directory, log)


@asynccontextmanager
async def running(bench: EngineBench) -> Any:
    await bench.engine.start()
    await bench.done()
    try:
        yield
    finally:
        await bench.engine.stop()


def test_what_was_foreseen_is_handed_on_when_it_is_in_the_log_and_not_before(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path) as bench:
            async with running(bench):
                bench.register(5, 20)
                batches = bench.foresee([4, 10, 30])
                await settled()
                assert bench.reached == {}
                bench.commit(batches)
                await bench.done()
                assert bench.reached == {0: set(), 1: {5}, 2: {5, 20}}
                assert isinstance(bench.log, CountingLog)
                assert bench.log.reads == 0

    asyncio.run(main())


def test_nobody_is_woken_where_the_head_moves_and_nothing_is_left_to_match(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path) as bench:
            async with running(bench):
                bench.register(5)
                bench.commit(bench.foresee([4, 10]))
                bench.move()  # of the frontier alone
                assert isinstance(bench.engine, InlineEngine)
                assert not bench.engine._changed.is_set()
                bench.commit(events([7]))  # not foreseen
                assert bench.engine._changed.is_set()
                await bench.done()
                assert bench.reached == {0: set(), 1: {5}, 2: {5}}

    asyncio.run(main())


def test_events_whose_commit_failed_leave_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path) as bench:
            async with running(bench):
                bench.register(5)
                bench.foresee([30])  # and the disk is full
                many = events([1])
                bench.engine.foresee(0, [])  # of a large commit nothing is told
                bench.commit(many)
                await bench.done()
                assert bench.reached == {0: set()}
                bench.foresee([1])
                bench.commit(bench.foresee([30]))
                await bench.done()
                assert bench.reached == {0: set(), 1: {5}}

    asyncio.run(main())


def test_a_registration_that_comes_while_the_disk_is_at_work_gets_the_events(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path) as bench:
            async with running(bench):
                bench.register(5)
                batches = bench.foresee([30])
                bench.register(7)
                bench.commit(batches)
                await bench.done()
                assert bench.reached == {0: {5, 7}}

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_commits_failures_and_registrations_gives_the_reference(
    tmp_path: Path, seed: int
) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        expected: dict[int, set[int]] = {}
        with opened(tmp_path) as bench:
            async with running(bench):
                number = 0
                for _ in range(120):
                    values = [rng.randrange(100) for _ in range(rng.randrange(1, 6))]
                    batches = bench.foresee(values)
                    if rng.random() < 0.2:
                        continue  # the disk has refused
                    if rng.random() < 0.2:
                        number += rng.randrange(1, 5)
                        bench.register(number)
                    for offset, value in enumerate(values, bench.log.next_offset):
                        expected[offset] = {n for n in bench.registered if value >= n}
                    bench.commit(batches)
                    if rng.random() < 0.7:
                        await bench.done()
                await bench.done()
        assert bench.reached == expected

    asyncio.run(main())
