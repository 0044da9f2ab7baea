"""What happens to sites that route by clusters: calm days, and everything that can break.

python -m culver.simulation culver.simulation.clusters.cluster_scenarios:stormy_clusters --seed 17
"""

from collections import Counter
from dataclasses import replace
from random import Random

from culver.overlay import name_of
from culver.overlay.clusters.cluster_messages import (
    CarrierRefusal,
    CarrierTerms,
    ClusterNote,
    MemberAdvertisement,
)
from culver.overlay.clusters.layout.cluster_count import MeasuredTraffic
from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.clusters.load.load_messages import HoldBack, OffloadAccept, OffloadRequest
from culver.overlay.clusters.member_streams import BEGUN_ANEW
from culver.overlay.clusters.origin_clustering import ClusterSettings, MeasuringSettings
from culver.overlay.core.overlay_messages import OverlayMessage, Packet
from culver.overlay.core.replaced_sites import REMOVED
from culver.simulation.clusters.simulated_cluster_site import SimulatedClusterSite
from culver.simulation.overlay_oracle import OverlayOracle
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_site import SimulatedSite, SiteFaults
from culver.simulation.site_world import PAYLOADS, POOL, SiteWorld, Storm, storm_faults, wants

_CALM_SECONDS = 12.0
_STORM_SECONDS = 40.0
_SILENCE_SECONDS = 8.0
_LOAD = LoadSettings(
    window_seconds=1.0,
    revision_seconds=2.0,
    lease_seconds=3.0,
    figures_seconds=10.0,
    hold_back_seconds=(0.3, 2.0),
    first_capacity=20.0,
)
"""Sites live for seconds here, not for days."""

_COUNTS = (0, 1, 2, 3, 4, 5, 8)
_CAPACITIES = (None, 0.5, 4.0, 15.0, 60.0, 1000.0)


class ClusterOracle(OverlayOracle):
    """Also counts what is sent, and takes note of who is told a predicate of whom."""

    def __init__(self, run: SeededRun) -> None:
        super().__init__(run, POOL, wants, watches_links=False)
        self.notes = 0
        self.told: set[tuple[str, str]] = set()
        self.balanced: Counter[str] = Counter()
        """The messages of sites about their load."""

    def sent(self, site: SimulatedSite, peer: str, message: OverlayMessage) -> None:
        if isinstance(message, Packet):
            self.packets += 1
        elif isinstance(message, ClusterNote):
            self.notes += 1
            self._note(message)

    def _note(self, note: ClusterNote) -> None:
        match note.body:
            case MemberAdvertisement(site=site):
                self.told.add((site, note.destination))
            case CarrierRefusal(is_overloaded=True, instead=""):
                self.balanced["refused"] += 1
            case CarrierRefusal(is_overloaded=True):
                self.balanced["handed over"] += 1
            case CarrierTerms(insists=True):
                self.balanced["insisted"] += 1
            case OffloadRequest():
                self.balanced["asked"] += 1
            case OffloadAccept(amount=amount) if amount > 0:
                self.balanced["accepted"] += 1
            case HoldBack():
                self.balanced["held back"] += 1

    def excuse(self, name: str) -> None:
        """A site is away for good. What nobody has of its events waits in its log, and nobody may have heard that it
        had lost an earlier one."""
        for origin in [each for each in self._published if name_of(each) == name]:
            del self._published[origin]


class _Whims:
    """A rule for numbers of clusters that follows nothing but chance, until the storm is over."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.is_over = False
        self.changes = 0

    def __call__(self, current: int, measured: MeasuredTraffic) -> int:
        if self.is_over or self._random.random() < 0.3:
            return current
        self.changes += 1
        return self._random.choice(_COUNTS)

    def settings(self) -> MeasuringSettings:
        return MeasuringSettings(self._random.choice((0.9, 2.0, 5.0)), 0, self)


class _World(SiteWorld[SimulatedClusterSite, ClusterOracle]):
    """Sites that join one after the other. With `whims`, some have another number of clusters every few seconds."""

    def __init__(
        self,
        run: SeededRun,
        faults: SiteFaults,
        *,
        most_sites: int,
        note_drop: float = 0.0,
        capacities: tuple[float | None, ...] = (None,),
        whims: _Whims | None = None,
    ) -> None:
        super().__init__(run, ClusterOracle(run))
        self.capacities = capacities
        self.faults = faults
        self.note_drop = note_drop
        self.whims = whims
        self.settings = ClusterSettings(clusters=self.random.choice((0, 0, 1, 2, 3, 5)), load=_LOAD)
        self._numbers = run.random("numbers of clusters")
        self._is_of_one_mind = self._numbers.random() < 0.3
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
            self.settings if self._is_of_one_mind else self._own_settings(self._numbers),
            self.note_drop,
            self.run.random(f"load {number}").choice(self.capacities),
        )
        self.begin(site)

    def _own_settings(self, random: Random) -> ClusterSettings:
        """Those of a site that goes its own way."""
        measuring = self.whims.settings() if self.whims is not None and random.random() < 0.5 else None
        return replace(self.settings, clusters=random.choice(_COUNTS), measuring=measuring)

    def suffer(self, accident: str, site: SimulatedClusterSite, random: Random) -> None:
        match accident:
            case "join" if len(self.sites) < 12:
                self.run.record("join", len(self.sites))
                self.join()
            case "let go" if site.is_running:
                self._let_go(site, random)
            case "resettle":
                # From its next start on, the site has another number of clusters, or whims.
                site.cluster_settings = settings = self._own_settings(random)
                self.run.record("resettle", site.key, settings.clusters, settings.measuring is not None)

    def _let_go(self, site: SimulatedClusterSite, random: Random) -> None:
        """The operator of a site has it forget another one that it cannot reach."""
        away = [each.key for each in self.sites if each.key != site.key]
        away = [key for key in away if not site.cluster_node.states.reaches(key)]
        if away and random.random() < 0.5:
            forgotten = random.choice(away)
            self.run.record("let go", site.key, forgotten)
            self.expected_gaps |= {REMOVED, BEGUN_ANEW}
            site.let_go(forgotten)

    def check_claims(self) -> None:
        """Check that all moves come to an end, with the next events of each origin: every site that is there is in
        the cluster that it has chosen, and leaves none."""
        for _ in range(3):
            for site in self.running():
                site.publish(self.random.randrange(len(PAYLOADS)))
            self.run.clock.run_for(4.0)
        views = {site.key: site.cluster_node.membership for site in self.running()}
        for site in self.running():
            for claim in site.cluster_node.origin.ledger.claims.values():
                if claim.member not in views:
                    continue
                chosen = views[claim.member].cluster_at(site.key)
                if claim.cluster != chosen or claim.leaving is not None:
                    self.run.violate(
                        f"{claim.member} is in cluster {claim.cluster} of {site.key}, leaves {claim.leaving} "
                        f"and has chosen {chosen}"
                    )

    def check_predicates(self) -> None:
        """Check that all sites agree on the layouts, and none knows a predicate of a site that is in none of its
        clusters."""
        keys = sorted(site.key for site in self.running())
        for origin in keys:
            layouts = [site.cluster_node.membership.layout_of(origin) for site in self.running()]
            views = {tuple(map(layout.cluster_of, keys)) for layout in layouts if layout is not None}
            if len(views) != 1:
                self.run.violate(f"there are {len(views)} views of the clusters of {origin}")
        for site in self.running():
            strangers = set(site.cluster_node.shelf.sites()) - set(site.cluster_node.membership.mates)
            if strangers:
                self.run.violate(f"{site.key} knows what {sorted(strangers)} want, and shares no cluster")


def calm_clusters(run: SeededRun) -> None:
    """Sites, predicates and events at random, and no fault: everything arrives, and predicates stay in their
    clusters, of which each site may have a number of its own."""
    world = _World(run, SiteFaults(), most_sites=12)
    run.clock.run_for(5.0)
    world.oracle.told.clear()
    world.live(5.0, 0.05)
    mates = {site.key: site.cluster_node.membership.mates for site in world.sites}
    for owner, other in sorted(world.oracle.told):
        if other not in mates[owner]:
            run.violate(f"{other} is told what {owner} wants, and shares no cluster with it")
    world.finish(_CALM_SECONDS)
    world.check_claims()
    world.check_predicates()
    run.record("packets", world.oracle.packets, "notes", world.oracle.notes)
    world.fall_silent(_SILENCE_SECONDS)


def stormy_clusters(run: SeededRun) -> None:
    """Crashes, sites that never come back, partitions, broken and half-open links, lost, late and doubled packets,
    lost notes, full disks, lost data directories, sites that join, that have too much to do, or that have another
    number of clusters every few seconds. When they are over, nothing acknowledged is missing without a gap, or
    doubled."""
    random = run.random("storm")
    faults = storm_faults(random)
    note_drop, whims = random.choice((0.0, 0.0, 0.1)), _Whims(run.random("whims"))
    world = _World(run, faults, most_sites=9, note_drop=note_drop, capacities=_CAPACITIES, whims=whims)
    run.clock.run_for(random.uniform(0.0, 5.0))
    storm = Storm(world, random, ("join", "let go", "resettle"))
    for _ in range(random.randint(3, 12)):
        world.live(random.uniform(0.2, 3.0), 0.05)
        storm.strike()
    storm.end()
    dead = _bury(world, random)
    for site in world.sites:
        site.faults, site.note_drop = SiteFaults(), 0.0
        if not site.is_running and site not in dead:
            site.start()
    world.live(2.0, 0.05)
    whims.is_over = True
    for site in dead:
        world.oracle.excuse(site.name)
    world.finish(_STORM_SECONDS)
    world.check_claims()
    for what, count in sorted(world.oracle.balanced.items()):
        run.record("load", what, count)
    run.record("whims", whims.changes)


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
