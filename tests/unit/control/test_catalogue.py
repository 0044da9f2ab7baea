"""Changes of subscriptions, with a real registry and a real index."""

import asyncio
import math
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from culver.config import RegistrySettings
from culver.control.catalogue import Catalogue
from culver.disk_reserve import DiskReserve
from culver.errors import Conflict, InvalidFilter, NotFound
from culver.matching import Entry, Index, IndexWriter
from culver.matching.index.storage.version_files import index_versions
from culver.model.columns.event_batch import encode
from culver.model.formats import parse_event
from culver.model.language.parser import parse
from culver.pipeline.head import HeadTracker
from culver.registry.registration import Block, Registration, SubscriptionSpec
from culver.registry.sqlite_registry import SqliteRegistry
from support.subscriptions import block_spec
from support.until import until


class SlowWriter(IndexWriter):
    """Publishes only while `open` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.open = threading.Event()
        self.open.set()

    def publish(
        self, version: int, added: Sequence[Entry], ended: Sequence[tuple[int, int]], *rest: Any
    ) -> None:
        assert self.open.wait(10)
        super().publish(version, added, ended, *rest)


class Site:
    """A catalogue with what surrounds it. The log has 100 events, until told otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log_end = 100
        self.registered: list[Registration | Block] = []
        self.registry = SqliteRegistry(path / "registry.db", RegistrySettings())
        self.writer = SlowWriter(path / "index")
        self.tracker = HeadTracker(100, self.writer.version, 0)
        self.moves = 0
        self.catalogue = Catalogue(
            self.registry,
            self.writer,
            self.tracker,
            self,
            log_end=lambda: self.log_end,
            horizon=lambda: 0,
            clock_us=lambda: 1,
            reserve=DiskReserve(path / "reserve", 0),
            quiet_seconds=0.02,
        )

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        self.registered += registrations

    def head_moved(self) -> None:
        self.moves += 1

    def publish(self, log_end: int) -> None:
        self.log_end = log_end
        self.tracker.committed(log_end)


def play(path: Path, scene: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        site = Site(path)
        await site.catalogue.start()
        await scene(site)
        site.writer.open.set()
        await site.catalogue.close()
        site.registry.close()

    asyncio.run(run())


def spec(subscription: str, text: str = "a = 1") -> SubscriptionSpec:
    return SubscriptionSpec(parse(text), id=subscription)


def test_subscription_is_registered_and_indexed_when_it_is_acknowledged(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        [added] = await site.catalogue.add([spec("x")])
        assert added.since == 100
        assert site.registered == [added]
        assert site.writer.version == added.version == site.tracker.head.index_version
        with Index.open(site.path / "index", added.version) as index:
            assert index.count == 1

    play(tmp_path, scene)


def test_head_waits_for_the_index_and_no_longer(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        site.writer.open.clear()
        adding = asyncio.create_task(site.catalogue.add([spec("x")]))
        await until(lambda: bool(site.registered))
        site.publish(500)
        assert site.tracker.head.log_end == 100
        site.writer.open.set()
        await adding
        assert site.tracker.head.log_end == 500

    play(tmp_path, scene)


@pytest.mark.parametrize("operation", ["add", "replace", "remove"])
def test_change_whose_asker_is_cancelled_goes_on(tmp_path: Path, operation: str) -> None:
    async def scene(site: Site) -> None:
        await site.catalogue.add([spec("x")])
        changes: dict[str, Callable[[], Awaitable[object]]] = {
            "add": lambda: site.catalogue.add([spec("y")]),
            "replace": lambda: site.catalogue.replace(spec("x", "b = 2")),
            "remove": lambda: site.catalogue.remove("x"),
        }
        asking = asyncio.ensure_future(changes[operation]())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        site.publish(500)
        await until(lambda: site.writer.version == 2 and len(site.registered) == 2)
        await until(lambda: site.tracker.head.log_end == 500)

    play(tmp_path, scene)


def test_refused_change_releases_the_head_and_says_so(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        await site.catalogue.add([spec("x")])
        moves = site.moves
        with pytest.raises(Conflict):
            await site.catalogue.add([spec("x")])
        site.publish(500)
        assert site.tracker.head.log_end == 500
        assert site.moves > moves
        with pytest.raises(NotFound):
            await site.catalogue.remove("nobody")
        assert site.tracker.head.log_end == 500

    play(tmp_path, scene)


def test_registry_forgets_an_end_only_when_the_index_knows_it(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        await site.catalogue.add([spec("x"), spec("y")])
        site.writer.open.clear()
        ended = await site.catalogue.remove("y")
        await site.catalogue.forget([ended.number])
        assert len(list(site.registry.registrations())) == 2, "the index does not know it yet"
        site.writer.open.set()
        await until(lambda: site.writer.version == 2)
        await site.catalogue.forget([])
        assert len(list(site.registry.registrations())) == 1
        with Index.open(site.path / "index", 2) as index:
            assert index.count == 1

    play(tmp_path, scene)


def test_index_catches_up_with_the_registry_at_start(tmp_path: Path) -> None:
    async def first(site: Site) -> None:
        await site.catalogue.add([spec("x")])

    async def second(site: Site) -> None:
        with Index.open(site.path / "index", site.registry.version) as index:
            assert index.count == 2
        assert site.tracker.head.index_version == site.registry.version

    play(tmp_path, first)
    with SqliteRegistry(tmp_path / "registry.db", RegistrySettings()) as registry:
        registry.add([spec("y")], lambda version: 100, 1)
    play(tmp_path, second)


def test_many_subscriptions_that_came_in_batches_end_in_one_segment_that_the_head_tells(
    tmp_path: Path,
) -> None:
    async def scene(site: Site) -> None:
        for batch in range(8):
            await site.catalogue.add([spec(f"{batch}-{n}") for n in range(260)])
        await until(lambda: site.writer.segments == 1)
        await until(lambda: site.tracker.head.index_version == site.writer.version)
        assert site.writer.version > site.writer.registry_version == 8
        with Index.open(site.path / "index", site.tracker.head.index_version) as index:
            assert index.count == 2_080
        site.publish(500)
        await site.catalogue.remove("3-0")
        await until(lambda: site.writer.registry_version == 9)
        await until(lambda: site.tracker.head.log_end == 500)

    play(tmp_path, scene)


def test_old_index_versions_go_even_where_nothing_is_matched(tmp_path: Path) -> None:
    async def scene(site: Site) -> None:
        for n in range(70):
            await site.catalogue.add([spec(f"{n}")])
        await site.catalogue.retire(0)
        kept = index_versions(site.path / "index")
        assert kept[-1] == site.writer.version
        assert len(kept) <= 65

    play(tmp_path, scene)


def numbers_matching(site: Site, event: str, position: int = 200) -> list[int]:
    with Index.open(site.path / "index", site.writer.version) as index:
        (batch,) = encode([parse_event(event.encode())], 0)
        return sorted(index.match(batch, position).numbers.tolist())


def test_rows_of_a_set_are_indexed_together_and_leave_one_by_one_or_together(tmp_path: Path) -> None:
    rows = [["a", 1.0], ["b", 2.0], ["a", 3.0], ["a", 9.0]]
    event = '{"symbol": "a", "close": 5}'

    async def scene(site: Site) -> None:
        block = await site.catalogue.add_block(block_spec("q", rows))
        assert [each.number for each in site.registered] == [block.number]
        assert not block.values, "the caller has them"
        assert numbers_matching(site, event) == [block.number, block.number + 2]
        await site.catalogue.remove("q.0")
        more = await site.catalogue.add_block(block_spec("q", rows[:1]))
        assert numbers_matching(site, event) == [block.number + 2, more.number]
        with pytest.raises(InvalidFilter) as caught:
            await site.catalogue.add_block(block_spec("q", [["a", 1.0], ["a", math.nan]]))
        assert (caught.value.details["row"], caught.value.details["parameter"]) == (1, 2)
        assert await site.catalogue.remove_set("q") == 4
        last = await site.catalogue.add_block(block_spec("r", rows))
        assert numbers_matching(site, event) == [last.number, last.number + 2]
        with pytest.raises(NotFound):
            await site.catalogue.remove_set("q")

    play(tmp_path, scene)


def test_index_that_is_gone_is_made_again_with_the_sets(tmp_path: Path) -> None:
    rows = [["a", float(n)] for n in range(100)]

    async def fill(site: Site) -> None:
        await site.catalogue.add_block(block_spec("q", rows))
        await site.catalogue.replace(spec("q.3", "symbol = 'z'"))
        await site.catalogue.remove("q.4")

    async def look(site: Site) -> None:
        assert numbers_matching(site, '{"symbol": "a", "close": 5}') == [1, 2, 3, 6]
        assert numbers_matching(site, '{"symbol": "z"}') == [101]

    play(tmp_path, fill)
    shutil.rmtree(tmp_path / "index")
    play(tmp_path, look)
