"""A world of simulated sites: what is published and subscribed there, and everything that can break.

The events are those of a small pool. A subscription is the number of one of nine filters.
"""

from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Generic, TypeVar

from culver.config import UNLIMITED_FILTERS
from culver.matching import EncodedFilter, EncodedPredicate, PredicateSummary, predicate_of
from culver.model import ENCODED
from culver.model.columns import encode as encode_events
from culver.model.formats import parse_event
from culver.model.language import Predicate, evaluate, parse
from culver.overlay.core.replaced_sites import FORGOTTEN
from culver.simulation.overlay_oracle import OverlayOracle
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_network import LinkQuality, Partition, SimulatedNetwork
from culver.simulation.simulated_site import EventPool, SimulatedSite, SiteFaults

_FILTERS = (
    "topic = 'a'",
    "topic = 'b' AND size > 3",
    "topic IN ('c', 'd')",
    "size < 2",
    "size BETWEEN 4 AND 6",
    "topic LIKE 'e%'",
    "urgent = TRUE",
    "topic = 'a' AND size = 7",
    "size IS NOT NULL AND topic <> 'a'",
)
_TOPICS = ("a", "b", "c", "d", "east", "f")


def _payload(number: int, topic: str, size: int, urgent: bool) -> bytes:
    # The number comes first, so that a simulated log finds the event again.
    text = f'{number:08d}{{"topic": "{topic}", "size": {size}, "urgent": {str(urgent).lower()}}}'
    return text.encode()


PAYLOADS = tuple(
    _payload(number, topic, size, urgent)
    for number, (topic, size, urgent) in enumerate(
        (topic, size, urgent) for topic in _TOPICS for size in (0, 1, 3, 5, 7) for urgent in (False, True)
    )
)


@lru_cache
def _predicates() -> tuple[Predicate, ...]:
    return tuple(parse(text, UNLIMITED_FILTERS) for text in _FILTERS)


@lru_cache(maxsize=4096)
def _encode(subscriptions: frozenset[int]) -> EncodedPredicate:
    summary = PredicateSummary()
    for number in sorted(subscriptions):
        summary.add(number, _predicates()[number % len(_FILTERS)].clauses)
    return summary.encode()


@lru_cache(maxsize=4096)
def _matched(predicate: EncodedPredicate) -> frozenset[int]:
    events = [parse_event(payload[8:]) for payload in PAYLOADS]
    (batch,) = encode_events(events, 0)
    made = EncodedFilter()
    made.add([(0, predicate_of(predicate.text, ENCODED))])
    found = made.match(batch)
    return frozenset(
        number for number in range(len(events)) if found.offsets[number] < found.offsets[number + 1]
    )


@lru_cache(maxsize=4096)
def wants(number: int, event: int) -> bool:
    """Whether the subscription of a number matches the event of a number."""
    return evaluate(_predicates()[number % len(_FILTERS)].condition, parse_event(PAYLOADS[event][8:])) is True


POOL = EventPool(PAYLOADS, lambda predicate, event: event in _matched(predicate), _encode)

Site = TypeVar("Site", bound=SimulatedSite)
Oracle = TypeVar("Oracle", bound=OverlayOracle)


class SiteWorld(Generic[Site, Oracle]):
    """Sites with links between them, one dialling the other. A subclass makes the sites."""

    def __init__(self, run: SeededRun, oracle: Oracle) -> None:
        self.run = run
        self.random = run.random("world")
        self.oracle = oracle
        quality = LinkQuality(latency_seconds=self.random.uniform(0.001, 0.03), jitter_seconds=0.002)
        self.network = SimulatedNetwork(
            run.clock,
            run.random("network"),
            quality,
            connect_timeout_seconds=2.0,
            silence_timeout_seconds=3.0,
        )
        self.sites: list[Site] = []
        self.expected_gaps = {FORGOTTEN}

    def begin(self, site: Site) -> None:
        """Start a new site, with some subscriptions."""
        for _ in range(self.random.choice((0, 1, 1, 2))):
            site.disk.subscriptions.add(self.random.randrange(len(_FILTERS)))
        self.sites.append(site)
        site.start()

    def running(self) -> list[Site]:
        return [site for site in self.sites if site.is_running]

    def act(self) -> None:
        """Publish something, or change a subscription, somewhere."""
        running = self.running()
        if not running:
            return
        site, fate = self.random.choice(running), self.random.random()
        if fate < 0.85:
            for _ in range(self.random.choice((1, 1, 2, 5))):
                site.publish(self.random.randrange(len(PAYLOADS)))
        elif fate < 0.95 or not site.disk.subscriptions:
            number = self.random.randrange(len(_FILTERS))
            if number not in site.disk.subscriptions:
                site.subscribe(number)
        else:
            number = self.random.choice(sorted(site.disk.subscriptions))
            site.unsubscribe(number)
            self.oracle.unsubscribed(site.key, number)

    def live(self, seconds: float, pause_seconds: float) -> None:
        """Let sites act at random moments."""
        end = self.run.clock.now + seconds
        while self.run.clock.now < end:
            self.act()
            self.run.clock.run_for(self.random.expovariate(1 / pause_seconds))

    def finish(self, seconds: float) -> None:
        """Let everything arrive, and check it."""
        self.run.clock.run_for(seconds)
        self.oracle.check(list(self.running()), everything=True)
        if not self.oracle.has_restored:
            for reason in sorted(self.oracle.gap_reasons.keys() - self.expected_gaps):
                self.run.violate(f"a gap is announced though no mailbox loses anything: {reason}")
        for reason, count in sorted(self.oracle.refusals.items()):
            self.run.record("refused", reason, count)
        self.run.record("deliveries", self.oracle.deliveries)
        logs = repr([site.disk.log for site in self.sites])
        self.run.record("logs", blake2b(logs.encode(), digest_size=8).hexdigest())

    def fall_silent(self, seconds: float) -> None:
        """The last subscriber leaves: so much later nothing crosses a link any more, on cycles neither."""
        for site in self.running():
            for number in sorted(site.disk.subscriptions):
                site.unsubscribe(number)
        self.run.clock.run_for(seconds)
        before = self.oracle.packets
        for site in self.running():
            site.publish(self.random.randrange(len(PAYLOADS)))
        self.run.clock.run_for(2.0)
        if self.oracle.packets > before:
            self.run.violate(f"{self.oracle.packets - before} packets travel though nobody subscribes")

    def start_later(self, site: Site, seconds: float) -> None:
        self.run.clock.after(seconds, lambda: site.start() if not site.is_running else None)

    def suffer(self, accident: str, site: Site, random: Random) -> None:
        """Have an accident happen that only one kind of world knows. Raises ValueError where this one knows none."""
        raise ValueError(f"nobody knows how to {accident}")


def storm_faults(random: Random) -> SiteFaults:
    return SiteFaults(
        drop=random.choice((0.0, 0.05, 0.3)),
        twice=random.choice((0.0, 0.1)),
        late=random.choice((0.0, 0.1)),
        disk_refuses=random.choice((0.0, 0.0, 0.1)),
    )


class Storm(Generic[Site, Oracle]):
    """Breaks something in a world now and then. `further` are accidents that the world itself knows."""

    def __init__(self, world: SiteWorld[Site, Oracle], random: Random, further: tuple[str, ...] = ()) -> None:
        self._world = world
        self._random = random
        self._partitions: list[Partition] = []
        self._accidents = (
            *("crash", "crash", "crash", "partition", "mend", "reset", "half-open", "forget", "start"),
            *further,
        )

    def strike(self) -> None:
        world, random = self._world, self._random
        site, accident = random.choice(world.sites), random.choice(self._accidents)
        match accident:
            case "crash" if site.is_running:
                world.run.record("crash", site.key)
                site.crash(silently=random.random() < 0.3)
                if random.random() < 0.7:
                    world.start_later(site, random.uniform(0.0, 6.0))
            case "start" if not site.is_running:
                site.start()
            case "forget":
                world.run.record("forget", site.key)
                if site.is_running:
                    site.crash()
                site.forget()
                world.start_later(site, random.uniform(0.1, 6.0))
            case "partition":
                inside = random.sample(world.sites, random.randint(1, len(world.sites)))
                outside = [each.name for each in world.sites if each not in inside]
                names = [each.name for each in inside]
                one_way = random.random() < 0.2
                self._partitions.append(world.network.partition(names, outside, one_way=one_way))
            case "mend" if self._partitions:
                self._partitions.pop(random.randrange(len(self._partitions))).end()
            case "reset" | "half-open":
                ends = world.network.connections(site.name)
                if ends:
                    broken = random.choice(ends)
                    is_reset = accident == "reset"
                    world.network.reset(broken) if is_reset else world.network.make_half_open(broken)
            case "crash" | "start" | "mend":
                pass
            case _:
                world.suffer(accident, site, random)

    def end(self) -> None:
        """End all partitions. Sites that are down stay so."""
        for partition in self._partitions:
            partition.end()
