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
from culver.matching.index import Entry, IndexWriter
from culver.model.columns.event_batch import encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.pipeline.head import Head
from culver.pipeline.inline_engine import InlineEngine
from culver.pipeline.notifications import Notifications
from culver.pipeline.site_files import SiteFiles
from support.notifications import offsets_of
from support.until import until


class Sink:
    """Keeps what was handed on: which registrations each offset has reached."""

    def __init__(self) -> None:
        self.reached: dict[int, set[int]] = {}
        self.end = 0

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        assert not stored
        assert notifications.start == self.end
        self.end = notifications.end
        for offset in range(notifications.start, notifications.end):
            self.reached[offset] = set()
        for number in notifications.numbers.tolist():
            for offset in offsets_of(notifications, number):
                self.reached[offset].add(number)


class CountingLog(FileLog):
    reads = 0

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        self.reads += 1
        return super().read(start, end)


class Bench:
    """An engine with a log and an index of its own. Registration n asks for events of at least n."""

    def __init__(self, directory: Path, log: CountingLog) -> None:
        files = SiteFiles(directory)
        self.log, self.sink = log, Sink()
        self.writer = IndexWriter(files.index)
        self.registered: list[int] = []
        self.head = Head(0, 0, 0)
        self.engine = InlineEngine(files, log, self.sink, self.head, 1_000, lambda text: None, "adaptive")

    def register(self, *numbers: int) -> None:
        """From the head on."""
        entries = [Entry(n, parse(f"value >= {n}"), since=self.head.log_end) for n in numbers]
        self.writer.publish(self.writer.registry_version + 1, entries, [], 0)
        self.registered += numbers
        self.move(index_version=self.writer.version)

    def foresee(self, values: list[int]) -> list[pa.RecordBatch]:
        batches = encode([Event({}, {"value": value}, b"{}") for value in values], 0)
        self.engine.foresee(self.log.next_offset, batches)
        return batches

    def commit(self, batches: list[pa.RecordBatch]) -> None:
        self.log.append(batches)
        self.move(log_end=self.log.next_offset)

    def move(self, **changes: Any) -> None:
        self.head = self.head._replace(frontier=self.sink.end, **changes)
        self.engine.follow(self.head)

    async def done(self) -> None:
        await until(lambda: self.engine.ready and self.sink.end >= self.head.log_end)


@contextmanager
def opened(directory: Path) -> Iterator[Bench]:
    with CountingLog(SiteFiles(directory).log, LogSettings()) as log:
        yield Bench(directory, log)


@asynccontextmanager
async def running(bench: Bench) -> Any:
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
                await asyncio.sleep(0.02)
                assert bench.sink.reached == {}
                bench.commit(batches)
                await bench.done()
                assert bench.sink.reached == {0: set(), 1: {5}, 2: {5, 20}}
                assert bench.log.reads == 0

    asyncio.run(main())


def test_nobody_is_woken_where_the_head_moves_and_nothing_is_left_to_match(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path) as bench:
            async with running(bench):
                bench.register(5)
                bench.commit(bench.foresee([4, 10]))
                bench.move()  # of the frontier alone
                assert not bench.engine._changed.is_set()
                bench.commit(encode([Event({}, {"value": 7}, b"{}")], 0))  # not foreseen
                assert bench.engine._changed.is_set()
                await bench.done()
                assert bench.sink.reached == {0: set(), 1: {5}, 2: {5}}

    asyncio.run(main())


def test_events_whose_commit_failed_leave_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        with opened(tmp_path) as bench:
            async with running(bench):
                bench.register(5)
                bench.foresee([30])  # and the disk is full
                many = encode([Event({}, {"value": 1}, b"{}")], 0)
                bench.engine.foresee(0, [])  # of a large commit nothing is told
                bench.commit(many)
                await bench.done()
                assert bench.sink.reached == {0: set()}
                bench.foresee([1])
                bench.commit(bench.foresee([30]))
                await bench.done()
                assert bench.sink.reached == {0: set(), 1: {5}}

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
                assert bench.sink.reached == {0: {5, 7}}

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
        assert bench.sink.reached == expected

    asyncio.run(main())
