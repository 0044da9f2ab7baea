"""The compactor at work beside publications, with a real index."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from culver.control.compactor import Compactor
from culver.disk_reserve import DiskReserve
from culver.matching import Entry, Index, IndexWriter
from culver.matching.index.segments import container
from culver.matching.index.storage.compaction import Compaction
from culver.model.language.parser import parse
from support.until import until

PREDICATE = parse("x = 1")


class Scene:
    def __init__(self, path: Path, quiet_seconds: float) -> None:
        self.path = path
        self.writer = IndexWriter(path)
        self.thread = ThreadPoolExecutor(1)
        self.versions: list[tuple[int, int]] = []
        self.compactor = Compactor(
            self.writer,
            self.thread,
            lambda: 0,
            lambda *versions: self.versions.append(versions),
            DiskReserve(path / "reserve", 0),
            quiet_seconds,
        )

    async def publish(self, count: int) -> None:
        version = self.writer.registry_version + 1
        entries = [Entry(10_000 * version + n, PREDICATE) for n in range(count)]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.thread, self.writer.publish, version, entries, [], 0)
        self.compactor.published()


def play(path: Path, scene: Callable[[Scene], Awaitable[None]], quiet_seconds: float = 60) -> None:
    async def run() -> None:
        made = Scene(path, quiet_seconds)
        made.compactor.start()
        await scene(made)
        await made.compactor.close()
        made.thread.shutdown()

    asyncio.run(run())


def test_a_full_tier_is_compacted_and_the_version_told(tmp_path: Path) -> None:
    async def scene(site: Scene) -> None:
        for _ in range(4):
            await site.publish(300)
        await until(lambda: site.versions == [(4, 5)])
        assert site.writer.segments == 1
        with Index.open(tmp_path, 5) as index:
            assert index.count == 1_200

    play(tmp_path, scene)


def test_after_a_while_without_changes_the_index_is_one_segment(tmp_path: Path) -> None:
    async def scene(site: Scene) -> None:
        for _ in range(3):
            await site.publish(300)
        await until(lambda: site.versions == [(3, 4)])
        assert site.writer.segments == 1
        await site.publish(1)
        await until(lambda: site.versions == [(3, 4), (4, 6)])
        assert site.writer.segments == 1

    play(tmp_path, scene, quiet_seconds=0.05)


def test_what_an_earlier_run_left_is_compacted(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path)
    for version in range(1, 4):
        writer.publish(version, [Entry(1_000 * version + n, PREDICATE) for n in range(300)], [], 0)

    async def scene(site: Scene) -> None:
        await until(lambda: site.versions == [(3, 4)])

    play(tmp_path, scene, quiet_seconds=0.01)


def test_publications_do_not_wait_for_a_compaction_and_closing_abandons_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, go_on = threading.Event(), threading.Event()
    run = Compaction.run

    def held(compaction: Compaction) -> None:
        running.set()
        assert go_on.wait(10)
        run(compaction)

    monkeypatch.setattr(Compaction, "run", held)

    async def scene(site: Scene) -> None:
        for _ in range(4):
            await site.publish(300)
        await until(running.is_set)
        await site.publish(300)
        assert (site.writer.registry_version, site.versions) == (5, [])
        closing = asyncio.create_task(site.compactor.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go_on.set()
        await closing
        assert site.versions == []

    play(tmp_path, scene)
    again = IndexWriter(tmp_path)
    assert (again.version, again.segments, again.problems) == (5, 5, [])
    assert len(list(tmp_path.glob("*.segment"))) == 5, "the compaction has written nothing"


def test_a_compaction_that_fails_is_tried_again_after_the_next_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = container.write
    refused: list[Path] = []

    def refuse_once(path: Path, chunks: list[bytes]) -> None:
        if threading.current_thread().name.startswith("culver-compactor") and not refused:
            refused.append(path)
            raise OSError(28, "refused")
        write(path, chunks)

    monkeypatch.setattr(container, "write", refuse_once)

    async def scene(site: Scene) -> None:
        for _ in range(4):
            await site.publish(300)
        await until(lambda: bool(caplog.records))
        # Where it was at it before the last publication was announced, that one is the next.
        await site.publish(1)
        await until(lambda: bool(site.versions) and site.writer.segments <= 2)

    with caplog.at_level(logging.ERROR):
        play(tmp_path, scene)
    assert "stays as it was" in caplog.text


def test_what_was_abandoned_for_a_change_is_due_again_though_the_change_failed(tmp_path: Path) -> None:
    async def scene(site: Scene) -> None:
        await until(lambda: not site.compactor._published.is_set())
        with pytest.raises(OSError, match="full"):
            async with site.compactor.paused():
                raise OSError("the disk is full")
        assert site.compactor._published.is_set()

    play(tmp_path, scene)
