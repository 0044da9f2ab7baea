"""Both engines against the reference: random subscriptions that come, change and go while events flow."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from culver.assembly import RunningSite, open_site
from culver.config import DeliverySettings, PipelineSettings, Settings
from culver.delivery.messages import Delivery
from culver.errors import CulverError, NotFound
from culver.model.evaluate import evaluate
from culver.model.event import Event
from culver.model.language import parse
from culver.model.predicate import Predicate
from culver.registry.registration import Registration
from culver.registry.registry import SubscriptionSpec
from support.events import random_event
from support.filters import random_filter
from support.until import until

ENGINES = ["inline", pytest.param("spark", marks=pytest.mark.spark)]


@dataclass
class Expectation:
    """What the reference says each mailbox holds."""

    events: dict[int, Event] = field(default_factory=dict)
    windows: dict[str, list[tuple[int, int | None, Predicate]]] = field(default_factory=dict)

    def offsets(self, subscription: str) -> list[int]:
        return sorted(
            offset
            for offset, event in self.events.items()
            for since, until, predicate in self.windows[subscription]
            if since <= offset and (until is None or offset < until)
            if evaluate(predicate.condition, event) is True
        )


def settings_for(engine: str, data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir, pipeline=PipelineSettings(engine=engine, spark_master="local[2]"))


def random_predicate(rng: random.Random) -> Predicate:
    while True:
        try:
            return parse(random_filter(rng))
        except CulverError:
            continue


async def ready(site: RunningSite) -> None:
    await until(lambda: site.ready, 120)


async def delivered(site: RunningSite) -> None:
    await until(lambda: site.status()["delivered_offset"] == site.status()["log_next_offset"], 120)


async def received(site: RunningSite, registration: Registration) -> list[int]:
    session = await site.open_session(registration)
    offsets: list[int] = []
    while items := await session.receive(500, 0):
        assert all(isinstance(item, Delivery) for item in items), items
        offsets += [item.offset for item in items if isinstance(item, Delivery)]
    await session.close()
    return offsets


async def random_steps(
    site: RunningSite, rng: random.Random, expected: Expectation, steps: int, *, replacing: bool = True
) -> None:
    for _ in range(steps):
        step = rng.random()
        ids = list(expected.windows)
        if step < 0.3 or not ids:
            predicates = [random_predicate(rng) for _ in range(rng.randrange(1, 6))]
            added = await site.subscribe([SubscriptionSpec(predicate) for predicate in predicates])
            for registration, predicate in zip(added, predicates, strict=True):
                expected.windows[registration.id] = [(registration.since, None, predicate)]
        elif step < 0.4 and replacing:
            subscription, predicate = rng.choice(ids), random_predicate(rng)
            replaced = await site.replace(SubscriptionSpec(predicate, id=subscription))
            since, _, before = expected.windows[subscription].pop()
            expected.windows[subscription] += [
                (since, replaced.since, before),
                (replaced.since, None, predicate),
            ]
        elif step < 0.45:
            subscription = rng.choice(ids)
            await site.unsubscribe(subscription)
            del expected.windows[subscription]
        else:
            events = [random_event(rng) for _ in range(rng.choice([1, 1, 3, 20]))]
            receipt = await site.publish(events)
            expected.events.update(zip(range(receipt.first_offset, receipt.next_offset), events, strict=True))


async def check(site: RunningSite, expected: Expectation) -> None:
    await delivered(site)
    for subscription, windows in expected.windows.items():
        got = await received(site, await site.subscription(subscription))
        texts = [predicate.text for _, _, predicate in windows]
        assert got == expected.offsets(subscription), f"{subscription} {texts}"


def run(engine: str, data_dir: Path, *scenes: Callable[[RunningSite], Awaitable[None]]) -> None:
    """Each scene has the site of a new start on the same data."""

    async def play() -> None:
        for scene in scenes:
            async with open_site(settings_for(engine, data_dir)) as site:
                await ready(site)
                await scene(site)

    asyncio.run(play())


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

    run(engine, tmp_path / "data", scene, stop_in_the_middle, scene)


@pytest.mark.spark
def test_site_changes_its_engine_between_starts(tmp_path: Path) -> None:
    rng = random.Random(8)
    expected = Expectation()

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 40)
        await check(site, expected)

    for engine in ("spark", "inline", "spark"):
        run(engine, tmp_path / "data", scene)


@pytest.mark.spark
def test_killed_driver_and_killed_workers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    rng = random.Random(9)
    expected = Expectation()

    def victims(name: str) -> list[psutil.Process]:
        found = []
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends at this moment, or is a zombie
                found += [child] if name in " ".join(child.cmdline()) else []
        return found

    async def scene(site: RunningSite) -> None:
        await random_steps(site, rng, expected, 30)
        for name in ("culver.pipeline.spark.daemon", "culver.pipeline.spark.driver"):
            killed = victims(name)
            assert killed, f"no process of {name}"
            for process in killed:
                process.kill()
            await random_steps(site, rng, expected, 30)
            await check(site, expected)

    run("spark", tmp_path / "data", scene)


@pytest.mark.spark
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

    run("spark", tmp_path / "data", scene)
    found = sorted(files.glob("*.ntf"))
    assert len(found) > 4
    found[1].unlink()
    found[3].write_bytes(found[3].read_bytes()[:-1])
    run("spark", tmp_path / "data", scene)


@pytest.mark.parametrize("engine", ["inline"])
def test_expired_subscription_receives_nothing_more(engine: str, tmp_path: Path) -> None:
    async def scene(site: RunningSite) -> None:
        spec = SubscriptionSpec(parse("TRUE"), id="brief", expires_at_us=time.time_ns() // 1000 + 300_000)
        await site.subscribe([spec])
        session = await site.open_session(await site.subscription("brief"))
        with pytest.raises(NotFound):
            await session.receive(1, 20)
        with pytest.raises(NotFound):
            await site.subscription("brief")

    run(engine, tmp_path / "data", scene)


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
            [registration] = await site.subscribe([SubscriptionSpec(parse("TRUE"))])
            for _ in range(60):
                await site.publish([random_event(rng) for _ in range(10)])
            await delivered(site)
            await asyncio.sleep(2.5)  # two rounds of housekeeping
            assert site.status()["log_first_offset"] == 0
            session = await site.open_session(registration)
            last = 0
            while items := await session.receive(100, 0):
                last = max(item.offset for item in items if isinstance(item, Delivery))
            assert last == 599
            await session.acknowledge(last)
            await session.close()
            await until(lambda: site.status()["log_first_offset"] > 300)

    asyncio.run(play())
