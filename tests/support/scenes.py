"""Random life of a site (subscriptions come, change and go while events flow), and what the reference says of it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from culver.assembly import open_site
from culver.config import Settings
from culver.delivery.deliveries import Delivery
from culver.errors import CulverError
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


def run(settings: Settings, *scenes: Callable[[RunningSite], Awaitable[None]]) -> None:
    """Each scene has the site of a new start on the same data."""

    async def play() -> None:
        for scene in scenes:
            async with open_site(settings) as site:
                await ready(site)
                await scene(site)

    asyncio.run(play())
