"""Slices that come and go by themselves: decisions are carried out, one at a time, and told."""

import asyncio
import logging

import pytest

from culver.errors import Unavailable
from culver.pipeline.elastic import ElasticSlices
from culver.pipeline.elasticity import ElasticitySettings
from culver.pipeline.metering import Meter
from culver.pipeline.observation import SliceTotals
from culver.pipeline.slices import SlicesView
from support.memory_slices import MemorySlices

SETTINGS = ElasticitySettings(least=1, most=4)


class Slow(MemorySlices):
    """Changes wait for `gate`, and fail where `error` says so."""

    def __init__(self, placement: str = "mpartition") -> None:
        super().__init__(placement)
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def add(self, split: int | None = None) -> SlicesView:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return await super().add(split)


class Scene:
    """A pipeline that is busy all the time and gets twice as much as it can do; time is a number."""

    def __init__(self, placement: str = "mpartition") -> None:
        self.now = 0.0
        self.inner = Slow(placement)
        self.meter = Meter()
        self.elastic = ElasticSlices(self.inner, self.meter, SETTINGS, lambda: self.now)

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            done = round(1_000 * self.now)
            totals = [
                SliceTotals(number, done, done, 0, 0.0, self.now * (0.9 if number == 1 else 0.5), 0.0)
                for number in range(len(self.inner.lists))
            ]
            self.meter.observe(self.now, 2 * done, done, totals)
            self.elastic.step(done)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def sizes(self) -> list[int]:
        return [len(points) for points in self.inner.lists]


def test_saturation_splits_the_busiest_slice_and_is_told() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.inner.gate.set()
        await scene.pass_seconds(20)
        assert scene.sizes() == [100, 15, 15]
        view = scene.elastic.view()
        assert view.elastic
        assert view.last_change is not None
        assert (view.last_change.action, view.last_change.slice) == ("add", 1)
        assert view.last_change.reason.startswith("the backlog has grown by 1,000 events a second")
        assert 0 < view.last_change.seconds_ago < 20
        assert view.decision is not None
        assert "left of the pause" in view.decision.reason
        await scene.elastic.close()

    asyncio.run(scenario())


def test_change_that_takes_long_is_the_only_one_and_is_waited_for_at_the_end() -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.pass_seconds(200)
        assert scene.sizes() == [100, 30]
        closing = asyncio.create_task(scene.elastic.close())
        await asyncio.sleep(0)
        assert not closing.done()
        scene.inner.gate.set()
        await closing
        assert scene.sizes() == [100, 15, 15]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [Unavailable("not now"), ValueError("a bug")])
def test_change_that_fails_is_logged_and_comes_again_after_the_pause(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.inner.gate.set()
        scene.inner.error = error
        with caplog.at_level(logging.WARNING):
            await scene.pass_seconds(25)
        assert scene.sizes() == [100, 30]
        assert [record.message.partition(" ")[0] for record in caplog.records] == ["splitting"]
        scene.inner.error = None
        await scene.pass_seconds(35)
        assert len(scene.sizes()) == 3

    asyncio.run(scenario())


def test_placement_that_cannot_change_is_left_alone_and_that_is_told() -> None:
    async def scenario() -> None:
        scene = Scene("replicated")
        scene.inner.gate.set()
        await scene.pass_seconds(40)
        assert scene.sizes() == [100, 30]
        told = scene.elastic.view().decision
        assert told is not None
        assert told.reason.startswith("with the placement replicated slices stay as they are")

    asyncio.run(scenario())


def test_change_by_hand_goes_through_and_is_followed_by_a_pause() -> None:
    async def scenario() -> None:
        scene = Scene()
        scene.inner.gate.set()
        await scene.pass_seconds(3)
        view = await scene.elastic.add(0)
        assert len(view.slices) == 3
        assert len((await scene.elastic.remove(0)).slices) == 2
        await scene.elastic.add(0)
        await scene.pass_seconds(25)
        told = scene.elastic.view().decision
        assert told is not None
        assert "pause" in told.reason
        assert len(scene.sizes()) == 3

    asyncio.run(scenario())
