"""What happens to sites of an overlay: calm days, and everything that can break.

python -m culver.simulation culver.simulation.overlay_scenarios:stormy_overlay --seed 17
"""

from functools import lru_cache
from hashlib import blake2b
from random import Random

from culver.config import UNLIMITED_FILTERS
from culver.matching import EncodedFilter, EncodedPredicate, PredicateSummary, predicate_of
from culver.model import ENCODED
from culver.model.columns import encode as encode_events
from culver.model.formats import parse_event
from culver.model.language import Predicate, evaluate, parse
from culver.overlay.core.overlay_node import FORGOTTEN
from culver.simulation.overlay_oracle import OverlayOracle
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_network import LinkQuality, Partition, SimulatedNetwork
from culver.simulation.simulated_site import EventPool, SimulatedSite, SiteFaults
from culver.simulation.site_disk import SiteDisk

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
_CHECK_SECONDS = 40.0


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
def _wants(number: int, event: int) -> bool:
    return evaluate(_predicates()[number % len(_FILTERS)].condition, parse_event(PAYLOADS[event][8:])) is True


POOL = EventPool(PAYLOADS, lambda predicate, event: event in _matched(predicate), _encode)


class _World:
    """Sites with random links between them, one dialling the other."""

    def __init__(
        self,
        run: SeededRun,
        faults: SiteFaults,
        *,
        least_sites: int = 2,
        most_sites: int,
        watches_links: bool,
    ) -> None:
        self.run = run
        self.random = run.random("world")
        self.oracle = OverlayOracle(run, POOL, _wants, watches_links=watches_links)
        quality = LinkQuality(latency_seconds=self.random.uniform(0.001, 0.03), jitter_seconds=0.002)
        self.network = SimulatedNetwork(
            run.clock,
            run.random("network"),
            quality,
            connect_timeout_seconds=2.0,
            silence_timeout_seconds=3.0,
        )
        count = _size(self.random, least_sites, most_sites)
        links = _topology(self.random, count)
        self.sites = [
            SimulatedSite(
                f"s{number}",
                {f"s{other}": cost for (one, other), cost in links.items() if one == number},
                self.network,
                run.clock,
                run.random(f"site {number}"),
                POOL,
                self.oracle,
                faults,
            )
            for number in range(count)
        ]
        self.links = [(f"s{one}", f"s{other}") for one, other in links]
        for site in self.sites:
            for _ in range(self.random.choice((0, 1, 1, 2))):
                site.disk.subscriptions.add(self.random.randrange(len(_FILTERS)))
            site.start()

    def running(self) -> list[SimulatedSite]:
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

    def finish(self, *, everything: bool = True) -> None:
        """Let everything arrive, and check it."""
        self.run.clock.run_for(_CHECK_SECONDS)
        self.oracle.check(self.sites, everything=everything)
        if not self.oracle.has_restored:
            for reason in self.oracle.gap_reasons.keys() - {FORGOTTEN}:
                self.run.violate(f"a gap is announced though no mailbox loses anything: {reason}")
        for reason, count in sorted(self.oracle.refusals.items()):
            self.run.record("refused", reason, count)
        self.run.record("deliveries", self.oracle.deliveries)
        logs = repr([site.disk.log for site in self.sites])
        self.run.record("logs", blake2b(logs.encode(), digest_size=8).hexdigest())

    def fall_silent(self) -> None:
        """The last subscriber leaves: two seconds later nothing crosses a link any more, on cycles neither."""
        for site in self.sites:
            for number in sorted(site.disk.subscriptions):
                site.unsubscribe(number)
        self.run.clock.run_for(2.0)
        before = self.oracle.packets
        for site in self.sites:
            site.publish(self.random.randrange(len(PAYLOADS)))
        self.run.clock.run_for(2.0)
        if self.oracle.packets > before:
            self.run.violate(f"{self.oracle.packets - before} packets travel though nobody subscribes")


def calm_overlay(run: SeededRun) -> None:
    """Sites, predicates and events at random, and no fault: every event takes the shortest ways, once over each
    link."""
    _calm(run, _World(run, SiteFaults(), most_sites=24, watches_links=True))


def large_overlay(run: SeededRun) -> None:
    """A calm overlay of a hundred sites. Takes 15 seconds."""
    _calm(run, _World(run, SiteFaults(), least_sites=100, most_sites=100, watches_links=True))


def _calm(run: SeededRun, world: _World) -> None:
    run.clock.run_for(10.0)
    world.live(5.0, 0.05)
    world.finish()
    world.fall_silent()


def stormy_overlay(run: SeededRun) -> None:
    """Crashes, partitions, broken and half-open links, lost, late and doubled packets, full disks, lost data
    directories, and sites that run on earlier copies of theirs. When they are over, nothing acknowledged is missing
    without a gap, or doubled."""
    random, backups = run.random("storm"), _Backups(run.random("backups"))
    faults = SiteFaults(
        drop=random.choice((0.0, 0.05, 0.3)),
        twice=random.choice((0.0, 0.1)),
        late=random.choice((0.0, 0.1)),
        disk_refuses=random.choice((0.0, 0.0, 0.1)),
    )
    world = _World(run, faults, most_sites=16, watches_links=False)
    run.clock.run_for(random.uniform(0.0, 5.0))
    partitions: list[Partition] = []
    for _ in range(random.randint(3, 12)):
        world.live(random.uniform(0.2, 3.0), 0.05)
        _break_something(world, random, partitions)
        backups.act(world)
    for partition in partitions:
        partition.end()
    for site in world.sites:
        site.faults = SiteFaults()
        if not site.is_running:
            site.start()
    world.live(2.0, 0.05)
    world.finish()


def _break_something(world: _World, random: Random, partitions: list[Partition]) -> None:
    site = random.choice(world.sites)
    match random.choice(
        ("crash", "crash", "crash", "partition", "mend", "reset", "half-open", "forget", "start")
    ):
        case "crash" if site.is_running:
            world.run.record("crash", site.key)
            site.crash(silently=random.random() < 0.3)
            if random.random() < 0.7:
                _start_later(world, site, random.uniform(0.0, 6.0))
        case "start" if not site.is_running:
            site.start()
        case "forget":
            world.run.record("forget", site.key)
            if site.is_running:
                site.crash()
            site.forget()
            _start_later(world, site, random.uniform(0.1, 6.0))
        case "partition":
            inside = random.sample(world.sites, random.randint(1, len(world.sites)))
            outside = [each.name for each in world.sites if each not in inside]
            names = [each.name for each in inside]
            one_way = random.random() < 0.2
            partitions.append(world.network.partition(names, outside, one_way=one_way))
        case "mend" if partitions:
            partitions.pop(random.randrange(len(partitions))).end()
        case "reset" | "half-open" as how:
            ends = world.network.connections(site.name)
            if ends:
                broken = random.choice(ends)
                world.network.reset(broken) if how == "reset" else world.network.make_half_open(broken)


class _Backups:
    """In a third of all runs, copies the disks of sites now and then, and takes sites back to these copies."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._is_on = random.random() < 0.33
        self._copies: dict[str, SiteDisk] = {}

    def act(self, world: _World) -> None:
        random = self._random
        if not self._is_on or random.random() < 0.3:
            return
        site = random.choice(world.sites)
        copied = self._copies.get(site.name)
        if copied is None or copied.identity != site.disk.identity or random.random() < 0.2:
            self._copies[site.name] = site.disk.copy()
            return
        world.run.record("restore", site.key, len(copied.log), "of", len(site.disk.log))
        if site.is_running:
            site.crash()
        site.restore(copied)
        _start_later(world, site, random.uniform(0.1, 6.0))


def _start_later(world: _World, site: SimulatedSite, seconds: float) -> None:
    world.run.clock.after(seconds, lambda: site.start() if not site.is_running else None)


def _size(random: Random, least: int, most: int) -> int:
    """Mostly a few sites, now and then many."""
    return min(most, max(least, int(random.paretovariate(1.1) * 2)))


def _topology(random: Random, count: int) -> dict[tuple[int, int], int]:
    """A random tree and some links more, with costs."""
    links = {(random.randrange(number), number): random.choice((1, 1, 2, 5)) for number in range(1, count)}
    for _ in range(random.randint(0, count)):
        one, other = sorted((random.randrange(count), random.randrange(count)))
        if one != other:
            links.setdefault((one, other), random.choice((1, 1, 2, 5)))
    return links
