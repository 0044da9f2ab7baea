"""Both engines against the reference: random subscriptions that come, change and go while events flow."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from culver.assembly import open_site
from culver.config import DeliverySettings, LogSettings, PipelineSettings, Settings
from culver.delivery.deliveries import Delivery
from culver.errors import NotFound
from culver.model.language.parser import parse
from culver.pipeline.spark.checkpoint import damage_in
from culver.registry.registration import SubscriptionSpec
from culver.site import RunningSite
from support.events import random_event
from support.scenes import (
    Expectation,
    check,
    check_counts,
    delivered,
    publish,
    random_steps,
    ready,
    run,
    sets_on_disk,
    subscribe_then_publish,
)
from support.until import until

Act = Callable[[RunningSite], Awaitable[None]]


def settings_for(data_dir: Path, engine: str, placement: str = "auto", slices: int = 0) -> Settings:
    pipeline = PipelineSettings(engine=engine, spark_master="local[2]", placement=placement, slices=slices)
    return Settings(data_dir=data_dir, pipeline=pipeline)


def test_mailboxes_hold_what_the_reference_says_through_changes_and_restarts(tmp_path: Path) -> None:
    rng = random.Random(7)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 60)
        await check(site, expected)

    async def stop_in_the_middle(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 30)

    run(settings_for(tmp_path / "data", "inline"), scene, stop_in_the_middle, scene)


class SparkLife:
    """One site's life over several starts, because each of Spark's costs seconds of all cores."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.rng = random.Random(12)
        self.expected = Expectation()
        self.checkpoint = data_dir / "spark" / "checkpoint"

    def start(self, placement: str, slices: int, *acts: Act) -> None:
        async def scene(site: RunningSite) -> None:
            for act in acts:
                await act(site)

        run(settings_for(self.data_dir, "spark", placement, slices), scene)

    async def steps(self, site: RunningSite) -> None:
        await random_steps(site, self.rng, self.expected, 40)

    async def check(self, site: RunningSite) -> None:
        await check(site, self.expected)

    async def count(self, site: RunningSite) -> None:
        await delivered(site)
        before = site.observation.observe()
        await subscribe_then_publish(site, self.rng, self.expected, 150)
        check_counts(site, before, self.expected, before.placement.slices)
        # The driver and the data source report a batch each by itself, in either order.
        await until(lambda: site.observation.observe().pipeline.batches.stages)
        await until(lambda: site.observation.observe().pipeline.batches.seconds > 0)

    async def make_files(self, site: RunningSite) -> None:
        for _ in range(8):
            # The index need not keep a replaced filter once its events are on disk.
            await random_steps(site, self.rng, self.expected, 3, replacing=False)
            await publish(site, self.rng, self.expected, 3)
            await delivered(site)

    def damage_checkpoint(self) -> Path:
        assert damage_in(self.checkpoint) is None
        newest = max((self.checkpoint / "offsets").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        newest.write_bytes(newest.read_bytes()[:-1])
        return newest

    def damage_files(self) -> None:
        """One notification file is lost and another is cut, of the last that were made."""
        found = sorted((self.data_dir / "delivery" / "notifications").glob("*.ntf"))[-6:]
        found[1].unlink()
        found[3].write_bytes(found[3].read_bytes()[:-1])


@pytest.mark.spark
@pytest.mark.slow(seconds=25)
def test_spark_site_gives_what_the_reference_gives_whatever_happens_between_its_starts(
    tmp_path: Path, full_length: bool
) -> None:
    """It loses some of its notification files, gets another engine, loses its checkpoint, gets another placement, and
    stops in the middle."""
    life = SparkLife(tmp_path / "data")
    partials = life.data_dir / "partials"
    inline = settings_for(life.data_dir, "inline")

    life.start("hashed", 3, life.count, life.steps, life.check, life.make_files)
    assert sets_on_disk(life.data_dir) == {0, 1, 2}
    if full_length:
        life.start("event-space", 2, life.check, life.count, life.make_files)
        assert sets_on_disk(life.data_dir) == {0}, "nothing is learnt yet"
    assert list(partials.iterdir()) == []
    life.damage_files()

    run(inline, life.check, life.steps, life.check)
    damaged = life.damage_checkpoint()

    life.start("kmeans", 4, life.check, life.count, life.steps, life.check, life.steps)
    assert (life.checkpoint.with_name("checkpoint.unusable") / "offsets" / damaged.name).exists()
    assert sets_on_disk(life.data_dir) == {0, 1, 2, 3}
    run(inline, life.check)


def test_expired_subscription_receives_nothing_more(tmp_path: Path) -> None:
    async def scene(site: RunningSite) -> None:
        spec = SubscriptionSpec(parse("TRUE"), id="brief", expires_at_us=time.time_ns() // 1000 + 300_000)
        await site.subscriptions.add([spec])
        session = await site.sessions.open(await site.subscriptions.get("brief"))
        with pytest.raises(NotFound):
            await session.receive(1, 20)
        with pytest.raises(NotFound):
            await site.subscriptions.get("brief")

    run(settings_for(tmp_path / "data", "inline"), scene)


def test_log_is_trimmed_only_behind_what_mailboxes_need(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        pipeline=PipelineSettings(engine="inline"),
        log=LogSettings(segment_bytes=20_000),
        delivery=DeliverySettings(),
    )
    rng = random.Random(10)

    async def play() -> None:
        async with open_site(settings) as site:
            await ready(site)
            [registration] = await site.subscriptions.add([SubscriptionSpec(parse("TRUE"))])
            for _ in range(60):
                await site.publications.publish([random_event(rng) for _ in range(10)])
            await delivered(site)
            await site.keep_house()
            assert site.observation.status()["log_first_offset"] == 0
            session = await site.sessions.open(registration)
            last = 0
            while items := await session.receive(100, 0):
                last = max(item.offset for item in items if isinstance(item, Delivery))
            assert last == 599
            await session.acknowledge(last)
            await session.close()
            await until(lambda: site.observation.status()["log_first_offset"] > 300)

    asyncio.run(play())
