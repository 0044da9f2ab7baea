"""Both engines against the reference: random subscriptions that come, change and go while events flow."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from culver.assembly import open_site
from culver.config import DeliverySettings, PipelineSettings, Settings
from culver.delivery.deliveries import Delivery
from culver.errors import NotFound
from culver.model.language.parser import parse
from culver.pipeline.spark.checkpoint import damage_in
from culver.registry.registration import SubscriptionSpec
from culver.site import RunningSite
from support.events import random_event
from support.scenes import Expectation, check, delivered, random_steps, ready, run
from support.until import until

ENGINES = ["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow(seconds=35)])]


def settings_for(engine: str, data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, pipeline=PipelineSettings(engine=engine, spark_master="local[2]"))


@pytest.mark.parametrize("engine", ENGINES)
def test_mailboxes_hold_what_the_reference_says_through_changes_and_restarts(
    engine: str, tmp_path: Path
) -> None:
    rng = random.Random(7)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 120)
        await check(site, expected)

    async def stop_in_the_middle(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 60)

    run(settings_for(engine, tmp_path / "data"), scene, stop_in_the_middle, scene)


@pytest.mark.spark
@pytest.mark.slow(seconds=30)
def test_site_changes_its_engine_between_starts_and_does_without_a_damaged_checkpoint(tmp_path: Path) -> None:
    rng = random.Random(8)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 40)
        await check(site, expected)

    run(settings_for("spark", tmp_path / "data"), scene)
    run(settings_for("inline", tmp_path / "data"), scene)
    checkpoint = tmp_path / "data" / "spark" / "checkpoint"
    assert damage_in(checkpoint) is None
    newest = max((checkpoint / "offsets").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-1])
    run(settings_for("spark", tmp_path / "data"), scene)
    assert (checkpoint.with_name("checkpoint.unusable") / "offsets" / newest.name).exists()


@pytest.mark.spark
@pytest.mark.slow(seconds=30)
def test_lost_or_damaged_notification_files_are_made_again(tmp_path: Path) -> None:
    rng = random.Random(11)
    expected = Expectation()
    files = tmp_path / "data" / "delivery" / "notifications"

    async def scene(site: RunningSite) -> None:
        for _ in range(8):
            # The index need not keep a replaced filter once its events are on disk.
            await random_steps(site, rng, expected, 6, replacing=False)
            await delivered(site)
        await check(site, expected)

    run(settings_for("spark", tmp_path / "data"), scene)
    found = sorted(files.glob("*.ntf"))
    assert len(found) > 4
    found[1].unlink()
    found[3].write_bytes(found[3].read_bytes()[:-1])
    run(settings_for("spark", tmp_path / "data"), scene)


@pytest.mark.parametrize("engine", ["inline"])
def test_expired_subscription_receives_nothing_more(engine: str, tmp_path: Path) -> None:
    async def scene(site: RunningSite) -> None:
        spec = SubscriptionSpec(parse("TRUE"), id="brief", expires_at_us=time.time_ns() // 1000 + 300_000)
        await site.subscriptions.add([spec])
        session = await site.sessions.open(await site.subscriptions.get("brief"))
        with pytest.raises(NotFound):
            await session.receive(1, 20)
        with pytest.raises(NotFound):
            await site.subscriptions.get("brief")

    run(settings_for(engine, tmp_path / "data"), scene)


@pytest.mark.parametrize("engine", ["inline"])
def test_log_is_trimmed_only_behind_what_mailboxes_need(engine: str, tmp_path: Path) -> None:
    from culver.config import LogSettings

    settings = Settings(
        data_dir=tmp_path / "data",
        pipeline=PipelineSettings(engine=engine),
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
