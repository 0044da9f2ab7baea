"""What happens to sites that route by clusters: calm days, and everything that can break.

python -m culver.simulation culver.simulation.clusters.cluster_scenarios:stormy_clusters --seed 17
"""

from hashlib import blake2b
from random import Random

from culver.overlay import name_of
from culver.overlay.clusters.cluster_messages import ClusterNote, MemberAdvertisement
from culver.overlay.clusters.cluster_node import REMOVED, ClusterSettings
from culver.overlay.clusters.member_streams import BEGUN_ANEW
from culver.overlay.core.overlay_messages import OverlayMessage, Packet
from culver.overlay.core.overlay_node import FORGOTTEN
from culver.simulation.clusters.simulated_cluster_site import SimulatedClusterSite
from culver.simulation.overlay_oracle import OverlayOracle
from culver.simulation.overlay_scenarios import PAYLOADS, POOL
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_network import LinkQuality, Partition, SimulatedNetwork
from culver.simulation.simulated_site import SimulatedSite, SiteFaults

_SUBSCRIPTIONS = range(9)
_CALM_SECONDS = 12.0
_STORM_SECONDS = 40.0


def _wants(subscription: int, event: int) -> bool:
    return POOL.encoded_matches(POOL.encode(frozenset({subscription})), event)


class ClusterOracle(OverlayOracle):
    """Also counts what is sent, and takes note of who is told a predicate of whom."""

    def __init__(self, run: SeededRun) -> None:
        super().__init__(run, POOL, _wants, watches_links=False)
        self.notes = 0
        self.told: set[tuple[str, str]] = set()

    def sent(self, site: SimulatedSite, peer: str, message: OverlayMessage) -> None:
        if isinstance(message, Packet):
            self.packets += 1
        elif isinstance(message, ClusterNote):
            self.notes += 1
            if isinstance(message.body, MemberAdvertisement):
                self.told.add((message.body.site, message.destination))

    def excuse(self, name: str) -> None:
        """A site is away for good. What nobody has of its events waits in its log, and nobody may have heard that it
        had lost an earlier one."""
        for origin in [each for each in self._published if name_of(each) == name]:
            del self._published[origin]


class _World:
    """Sites with random links between them, one dialling the other."""

    def __init__(
        self, run: SeededRun, faults: SiteFaults, *, most_sites: int, note_drop: float = 0.0
    ) -> None:
        self.run = run
        self.random = run.random("world")
        self.oracle = ClusterOracle(run)
        self.faults = faults
        self.note_drop = note_drop
        quality = LinkQuality(latency_seconds=self.random.uniform(0.001, 0.03), jitter_seconds=0.002)
        self.network = SimulatedNetwork(
            run.clock,
            run.random("network"),
            quality,
            connect_timeout_seconds=2.0,
            silence_timeout_seconds=3.0,
        )
        self.settings = ClusterSettings(clusters=self.random.choice((0, 0, 1, 2, 3, 5)))
        self.expected_gaps: set[str] = set()
        self.sites: list[SimulatedClusterSite] = []
        for _ in range(min(most_sites, 1 + int(self.random.paretovariate(1.1) * 2))):
            self.join()

    def join(self) -> None:
        """A new site dials one to three others."""
        number = len(self.sites)
        count = min(number, self.random.choice((1, 1, 2, 3)))
        peers = {
            site.name: self.random.choice((1, 1, 2, 5)) for site in self.random.sample(self.sites, count)
        }
        site = SimulatedClusterSite(
            f"s{number}",
            peers,
            self.network,
            self.run.clock,
            self.run.random(f"site {number}"),
            POOL,
            self.oracle,
            self.faults,
            self.settings,
            self.note_drop,
        )
        for _ in range(self.random.choice((0, 1, 1, 2))):
            site.disk.subscriptions.add(self.random.choice(_SUBSCRIPTIONS))
        self.sites.append(site)
        site.start()

    def running(self) -> list[SimulatedClusterSite]:
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
            number = self.random.choice(_SUBSCRIPTIONS)
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
        for site in self.sites:
            if not site.is_running:
                self.oracle.excuse(site.name)
        self.oracle.check(list(self.running()), everything=True)
        for reason in sorted(self.oracle.gap_reasons.keys() - {FORGOTTEN, *self.expected_gaps}):
            self.run.violate(f"a gap is announced though no mailbox loses anything: {reason}")
        for reason, count in sorted(self.oracle.refusals.items()):
            self.run.record("refused", reason, count)
        self.run.record("deliveries", self.oracle.deliveries)
        logs = repr([site.disk.log for site in self.sites])
        self.run.record("logs", blake2b(logs.encode(), digest_size=8).hexdigest())

    def check_predicates(self) -> None:
        """Check that all sites agree on the layout, and none knows a predicate of another cluster."""
        layouts = {
            tuple(
                node.membership.layout.members(cluster) for cluster in range(node.membership.layout.clusters)
            )
            for node in (site.cluster_node for site in self.running())
            if node.membership.layout is not None
        }
        if len(layouts) != 1:
            self.run.violate(f"there are {len(layouts)} layouts")
        for site in self.running():
            strangers = set(site.cluster_node.shelf.sites()) - set(site.cluster_node.membership.mates)
            if strangers:
                self.run.violate(f"{site.key} knows what {sorted(strangers)} want, and is in another cluster")

    def fall_silent(self) -> None:
        """The last subscriber leaves: some seconds later nothing crosses a link any more."""
        for site in self.running():
            for number in sorted(site.disk.subscriptions):
                site.unsubscribe(number)
        self.run.clock.run_for(8.0)
        before = self.oracle.packets
        for site in self.running():
            site.publish(self.random.randrange(len(PAYLOADS)))
        self.run.clock.run_for(2.0)
        if self.oracle.packets > before:
            self.run.violate(f"{self.oracle.packets - before} packets travel though nobody subscribes")


def calm_clusters(run: SeededRun) -> None:
    """Sites, predicates and events at random, and no fault: everything arrives, and predicates stay in their
    clusters."""
    world = _World(run, SiteFaults(), most_sites=12)
    run.clock.run_for(5.0)
    world.oracle.told.clear()
    world.live(5.0, 0.05)
    clusters = {site.key: site.cluster_node.membership.cluster for site in world.sites}
    for owner, other in sorted(world.oracle.told):
        if clusters[owner] != clusters[other]:
            run.violate(f"{other} is told what {owner} wants, and is in another cluster")
    world.finish(_CALM_SECONDS)
    world.check_predicates()
    run.record("packets", world.oracle.packets, "notes", world.oracle.notes)
    world.fall_silent()


def stormy_clusters(run: SeededRun) -> None:
    """Crashes, sites that never come back, partitions, broken and half-open links, lost, late and doubled packets,
    lost notes, full disks, lost data directories, and sites that join. When they are over, nothing acknowledged is
    missing without a gap, or doubled."""
    random = run.random("storm")
    faults = SiteFaults(
        drop=random.choice((0.0, 0.05, 0.3)),
        twice=random.choice((0.0, 0.1)),
        late=random.choice((0.0, 0.1)),
        disk_refuses=random.choice((0.0, 0.0, 0.1)),
    )
    world = _World(run, faults, most_sites=9, note_drop=random.choice((0.0, 0.0, 0.1)))
    run.clock.run_for(random.uniform(0.0, 5.0))
    partitions: list[Partition] = []
    for _ in range(random.randint(3, 12)):
        world.live(random.uniform(0.2, 3.0), 0.05)
        _break_something(world, random, partitions)
    for partition in partitions:
        partition.end()
    dead = _bury(world, random)
    for site in world.sites:
        site.faults, site.note_drop = SiteFaults(), 0.0
        if not site.is_running and site not in dead:
            site.start()
    world.live(2.0, 0.05)
    world.finish(_STORM_SECONDS)


def _bury(world: _World, random: Random) -> list[SimulatedClusterSite]:
    """Choose sites that never come back, so that the others stay connected."""
    dialled = {name for site in world.sites for name in site.peers}
    dead = [
        site
        for site in world.sites
        if site.name not in dialled and len(world.sites) > 2 and random.random() < 0.3
    ]
    for site in dead:
        world.run.record("dead", site.key)
        if site.is_running:
            site.crash()
    return dead


def _break_something(world: _World, random: Random, partitions: list[Partition]) -> None:
    site = random.choice(world.sites)
    match random.choice(
        (
            "crash",
            "crash",
            "crash",
            "partition",
            "mend",
            "reset",
            "half-open",
            "forget",
            "start",
            "join",
            "let go",
        )
    ):
        case "crash" if site.is_running:
            world.run.record("crash", site.key)
            site.crash(silently=random.random() < 0.3)
            if random.random() < 0.7:
                _start_later(world, site, random.uniform(0.0, 6.0))
        case "start" if not site.is_running:
            site.start()
        case "let go" if site.is_running:
            _let_go(world, random, site)
        case "join" if len(world.sites) < 12:
            world.run.record("join", len(world.sites))
            world.join()
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


def _let_go(world: _World, random: Random, site: SimulatedClusterSite) -> None:
    """The operator of a site has it forget another one that it cannot reach."""
    away = [each.key for each in world.sites if each.key != site.key]
    away = [key for key in away if not site.cluster_node.states.reaches(key)]
    if away and random.random() < 0.5:
        forgotten = random.choice(away)
        world.run.record("let go", site.key, forgotten)
        world.expected_gaps |= {REMOVED, BEGUN_ANEW}
        site.let_go(forgotten)


def _start_later(world: _World, site: SimulatedClusterSite, seconds: float) -> None:
    world.run.clock.after(seconds, lambda: site.start() if not site.is_running else None)
