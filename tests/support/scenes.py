"""Random life of a site (subscriptions come, change and go while events flow), and what the reference says of it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from culver.assembly import open_site
from culver.config import Settings
from culver.control import SiteObservation
from culver.delivery.deliveries import Delivery
from culver.errors import CulverError
from culver.matching.index.storage.version_files import index_versions, read_version
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import Predicate, evaluate
from culver.registry.registration import Registration, SubscriptionSpec
from culver.site import RunningSite
from support.events import random_event
from support.filters import random_filter
from support.until import until


@dataclass
class Expectation:
    """What the reference says each mailbox holds. Events and windows are only added, and a window only ends: what a
    window has been found to match is not evaluated again."""

    events: dict[int, Event] = field(default_factory=dict)
    windows: dict[str, list[tuple[int, int | None, Predicate]]] = field(default_factory=dict)
    _matches: dict[tuple[str, int], "_Matches"] = field(default_factory=dict)

    def offsets(self, subscription: str) -> list[int]:
        return sorted(
            offset
            for place, (since, until, predicate) in enumerate(self.windows[subscription])
            for offset in self._matching(subscription, place, since, predicate)
            if until is None or offset < until
        )

    def _matching(self, subscription: str, place: int, since: int, predicate: Predicate) -> list[int]:
        matches = self._matches.setdefault((subscription, place), _Matches())
        matches.offsets += [
            offset
            for offset, event in islice(self.events.items(), matches.events, None)
            if since <= offset and evaluate(predicate.condition, event) is True
        ]
        matches.events = len(self.events)
        return matches.offsets


@dataclass
class _Matches:
    """What the first so many events have in common with one window."""

    events: int = 0
    offsets: list[int] = field(default_factory=list)


def random_predicate(rng: random.Random) -> Predicate:
    while True:
        try:
            return parse(random_filter(rng))
        except CulverError:
            continue


def narrow_predicate(rng: random.Random) -> Predicate:
    """Of two dimensions that can be divided."""
    a, b = rng.randrange(-3, 7), rng.randrange(-3, 7)
    return parse(f"a >= {a} AND a < {a + 2} AND b >= {b} AND b < {b + 2}")


def random_scheme(rng: random.Random) -> str:
    return rng.choices(("columnar", "counting", "reference"), (6, 3, 1))[0]


async def ready(site: RunningSite) -> None:
    await until(lambda: site.observation.ready, 120)


async def delivered(site: RunningSite) -> None:
    def caught_up() -> bool:
        status = site.observation.status()
        return bool(status["delivered_offset"] == status["log_next_offset"])

    await until(caught_up, 120)


async def received(site: RunningSite, registration: Registration) -> list[int]:
    session = await site.sessions.open(registration)
    offsets: list[int] = []
    while items := await session.receive(500, 0):
        assert all(isinstance(item, Delivery) for item in items), items
        offsets += [item.offset for item in items if isinstance(item, Delivery)]
    await session.close()
    return offsets


async def subscribe(
    site: RunningSite,
    rng: random.Random,
    expected: Expectation,
    count: int,
    make: Callable[[random.Random], Predicate] = random_predicate,
) -> None:
    predicates = [make(rng) for _ in range(count)]
    added = await site.subscriptions.add(
        [SubscriptionSpec(predicate, scheme=random_scheme(rng)) for predicate in predicates]
    )
    for registration, predicate in zip(added, predicates, strict=True):
        expected.windows[registration.id] = [(registration.since, None, predicate)]


async def random_steps(
    site: RunningSite, rng: random.Random, expected: Expectation, steps: int, *, replacing: bool = True
) -> None:
    for _ in range(steps):
        step = rng.random()
        ids = list(expected.windows)
        if step < 0.3 or not ids:
            await subscribe(site, rng, expected, rng.randrange(1, 6))
        elif step < 0.4 and replacing:
            subscription, predicate = rng.choice(ids), random_predicate(rng)
            spec = SubscriptionSpec(predicate, id=subscription, scheme=random_scheme(rng))
            replaced = await site.subscriptions.replace(spec)
            since, _, before = expected.windows[subscription].pop()
            expected.windows[subscription] += [
                (since, replaced.since, before),
                (replaced.since, None, predicate),
            ]
        elif step < 0.45:
            subscription = rng.choice(ids)
            await site.subscriptions.remove(subscription)
            del expected.windows[subscription]
        else:
            await publish(site, rng, expected, rng.choice([1, 1, 3, 20]))


async def publish(site: RunningSite, rng: random.Random, expected: Expectation, count: int) -> None:
    events = [random_event(rng) for _ in range(count)]
    receipt = await site.publications.publish(events)
    expected.events.update(zip(range(receipt.first_offset, receipt.next_offset), events, strict=True))


async def check(site: RunningSite, expected: Expectation) -> None:
    await delivered(site)
    for subscription, windows in expected.windows.items():
        got = await received(site, await site.subscriptions.get(subscription))
        texts = [predicate.text for _, _, predicate in windows]
        assert got == expected.offsets(subscription), f"{subscription} {texts}"


def check_counts(site: RunningSite, before: SiteObservation, expected: Expectation, slices: int) -> None:
    """Nothing is unseen or counted twice: each slice looked at every event since `before`, and what all of them found
    is what came into the mailboxes."""
    seen = site.observation.observe()
    first = before.log_next_offset
    events_before = {each.slice: each.events for each in before.pipeline.slices}
    done = seen.pipeline.slices
    assert [each.slice for each in done] == [each.slice for each in seen.index] == list(range(slices))
    events = [each.events - events_before.get(each.slice, 0) for each in done]
    assert events == [seen.log_next_offset - first] * slices
    assert all(each.sent <= each.events for each in done)
    found = sum(len([o for o in expected.offsets(name) if o >= first]) for name in expected.windows)
    pairs_before = sum(each.pairs for each in before.pipeline.slices)
    assert sum(each.pairs for each in done) - pairs_before == found > 0
    assert all(min(each.ap_seconds, each.ep_seconds) > 0 for each in done), done
    assert all((each.m_seconds > 0) == (each.sent > 0) for each in done), done
    assert sum(each.registrations for each in seen.index) >= len(
        expected.windows
    )  # some are in several slices
    assert (seen.queues.commit, seen.queues.index, seen.queues.match, seen.queues.accept) == (0, 0, 0, 0)
    assert seen.placement.slices == slices


async def subscribe_then_publish(
    site: RunningSite, rng: random.Random, expected: Expectation, subscriptions: int
) -> None:
    """Without removals, so that every match counts for a mailbox that is there at the end."""
    await subscribe(site, rng, expected, subscriptions)
    for _ in range(5):
        await publish(site, rng, expected, 20)
    await delivered(site)


def sets_on_disk(data_dir: Path) -> set[int]:
    newest = read_version(data_dir / "index", index_versions(data_dir / "index")[-1])
    return {part.set for part in newest.segments}


def run(settings: Settings, *scenes: Callable[[RunningSite], Awaitable[None]]) -> None:
    """Each scene has the site of a new start on the same data."""

    async def play() -> None:
        for scene in scenes:
            async with open_site(settings) as site:
                await ready(site)
                await scene(site)

    asyncio.run(play())
