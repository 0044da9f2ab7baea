"""A site whose index is in slices gives what the reference gives, whatever the placement. `test_engines` changes the
placement of a site on Spark."""

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from culver.config import PipelineSettings, Settings
from culver.control.elastic_slices import ElasticSlices
from culver.errors import StorageFull
from culver.matching import IndexWriter
from culver.matching.index.storage.version_files import index_versions
from culver.site import RunningSite
from support.scenes import (
    Expectation,
    check,
    check_counts,
    delivered,
    narrow_predicate,
    random_steps,
    run,
    sets_on_disk,
    subscribe,
    subscribe_then_publish,
)
from support.until import until

DIVIDING = ["hashed", "event-space", "kmeans"]  # mpartition is to a site what event-space is
MANY = 250  # subscriptions at once, enough for a placement to learn from


def settings_for(data_dir: Path, placement: str, slices: int) -> Settings:
    pipeline = PipelineSettings(engine="inline", placement=placement, slices=slices)
    return Settings(data_dir=data_dir, pipeline=pipeline)


@pytest.mark.parametrize(
    ("placement", "slices"),
    [("replicated", 1), ("event-space", 1), *((name, 3) for name in ["replicated", *DIVIDING])],
)
def test_inline_site_in_slices_gives_what_the_reference_gives(
    placement: str, slices: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{placement} {slices}")
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await subscribe(site, rng, expected, MANY)
        await random_steps(site, rng, expected, 30)
        await check(site, expected)

    run(settings_for(tmp_path / "data", placement, slices), scene, scene)
    used = slices if placement in ("hashed", "kmeans") else 1  # before anything is learnt, all is in the rest
    assert sets_on_disk(tmp_path / "data") == set(range(used))


def test_counters_of_the_operators_add_up(tmp_path: Path) -> None:
    rng = random.Random(14)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        before = site.observation.observe()
        await subscribe_then_publish(site, rng, expected, MANY)
        check_counts(site, before, expected, 3)
        seen = site.observation.observe()
        # Each event goes to every slice, and all of them come through batches.
        assert [each.sent for each in seen.pipeline.slices] == [100] * 3
        assert seen.pipeline.batches.events == 100
        assert sum(each.registrations for each in seen.index) == len(expected.windows)
        assert seen.queues.mailboxes == sum(len(expected.offsets(name)) for name in expected.windows)

    settings = settings_for(tmp_path / "data", "hashed", 3)
    run(settings, scene, scene)


def test_housekeeping_goes_on_while_slices_are_being_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_done(slices: ElasticSlices) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ElasticSlices, "tick", never_done)

    def counted(site: RunningSite, count: int) -> bool:
        return bool(site.observation.status()["subscriptions"] == count)

    async def scene(site: RunningSite) -> None:
        for count in (1, 2):
            await subscribe(site, random.Random(count), Expectation(), 1)
            # Housekeeping counts them, once a second: the second time, the first tick has long begun.
            await until(partial(counted, site, count))

    run(settings_for(tmp_path / "data", "mpartition", 2), scene)


def test_auto_divides_an_index_that_does_not_fit_and_keeps_one_that_does(tmp_path: Path) -> None:
    rng = random.Random(13)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await subscribe(site, rng, expected, MANY)
        await random_steps(site, rng, expected, 20)
        await check(site, expected)

    def settings(memory: int) -> Settings:
        pipeline = PipelineSettings(engine="inline", slices=3, worker_memory_bytes=memory)
        return Settings(data_dir=tmp_path / "data", pipeline=pipeline)

    run(settings(0), scene)
    assert sets_on_disk(tmp_path / "data") == {0}
    run(settings(20_000), scene)
    assert sets_on_disk(tmp_path / "data") == {0, 1, 2}


def test_auto_takes_what_can_change_while_the_site_runs_where_slices_are_to_come_and_go(
    tmp_path: Path,
) -> None:
    async def scene(site: RunningSite) -> None:
        assert site.observation.observe().placement.name == "mpartition"
        assert len((await site.slices.add()).slices) == 3

    pipeline = PipelineSettings(engine="inline", slices=2, elastic=True)
    run(Settings(data_dir=tmp_path / "data", pipeline=pipeline), scene)


def test_a_site_divides_itself_and_on_a_full_disk_makes_room_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, expected = random.Random(7), Expectation()
    tries: list[int] = []

    def refuse(writer: IndexWriter, *arguments: object) -> None:
        tries.append(writer.version)
        raise StorageFull("the disk is full")

    async def without_room(site: RunningSite) -> None:
        for _ in range(5):
            await subscribe(site, rng, expected, 50, narrow_predicate)
        with monkeypatch.context() as patched:
            patched.setattr(IndexWriter, "redivide", refuse)
            await until(lambda: bool(tries))
            # The versions before the first batch are wanted by no one, and go all the same.
            await random_steps(site, rng, expected, 3)
            await delivered(site)
            await until(lambda: len(index_versions(tmp_path / "data" / "index")) < 5)
            await site.keep_house()
            assert len(tries) == 1, "it is not tried again at once: every try writes most of the index"

    async def with_room(site: RunningSite) -> None:
        await until(lambda: len(site.slices.view().layers) > 0)
        await random_steps(site, rng, expected, 10)
        await site.slices.add()
        assert site.observation.observe().placement.slices == 4
        await random_steps(site, rng, expected, 10)
        await site.slices.remove(0)
        await random_steps(site, rng, expected, 10)
        await check(site, expected)

    run(settings_for(tmp_path / "data", "mpartition", 3), without_room, with_room)
