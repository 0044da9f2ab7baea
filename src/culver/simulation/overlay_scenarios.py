"""What happens to sites of an overlay: calm days, and everything that can break.

python -m culver.simulation culver.simulation.overlay_scenarios:stormy_overlay --seed 17
"""

from random import Random

from culver.simulation.overlay_oracle import OverlayOracle
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_site import SimulatedSite, SiteFaults
from culver.simulation.site_disk import SiteDisk
from culver.simulation.site_world import POOL, SiteWorld, Storm, storm_faults, wants

_CHECK_SECONDS = 40.0
_SILENCE_SECONDS = 2.0


class _World(SiteWorld[SimulatedSite, OverlayOracle]):
    """Sites with random links between them."""

    def __init__(
        self,
        run: SeededRun,
        faults: SiteFaults,
        *,
        least_sites: int = 2,
        most_sites: int,
        watches_links: bool,
    ) -> None:
        super().__init__(run, OverlayOracle(run, POOL, wants, watches_links=watches_links))
        count = _size(self.random, least_sites, most_sites)
        links = _topology(self.random, count)
        sites = [
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
        for site in sites:
            self.begin(site)


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
    world.finish(_CHECK_SECONDS)
    world.fall_silent(_SILENCE_SECONDS)


def stormy_overlay(run: SeededRun) -> None:
    """Crashes, partitions, broken and half-open links, lost, late and doubled packets, full disks, lost data
    directories, and sites that run on earlier copies of theirs. When they are over, nothing acknowledged is missing
    without a gap, or doubled."""
    random, backups = run.random("storm"), _Backups(run.random("backups"))
    world = _World(run, storm_faults(random), most_sites=16, watches_links=False)
    run.clock.run_for(random.uniform(0.0, 5.0))
    storm = Storm(world, random)
    for _ in range(random.randint(3, 12)):
        world.live(random.uniform(0.2, 3.0), 0.05)
        storm.strike()
        backups.act(world)
    storm.end()
    for site in world.sites:
        site.faults = SiteFaults()
        if not site.is_running:
            site.start()
    world.live(2.0, 0.05)
    world.finish(_CHECK_SECONDS)


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
        world.start_later(site, random.uniform(0.1, 6.0))


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
