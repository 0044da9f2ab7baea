"""What a broker knows of the load of others."""

from collections.abc import Iterable

from culver.overlay.clusters.load.load_messages import LoadFigures, is_sound

# A broker may claim any load. In a mean, no claim counts for more than twice a capacity.
_MOST_USE = 2.0


class KnownLoads:
    """The latest figures by site, for a while. An unknown broker is taken for idle, of the capacity that all begin
    with. Memory is bounded: the figures of further sites are ignored."""

    def __init__(self, first_capacity: float, memory_seconds: float, most_sites: int) -> None:
        self._first_capacity = first_capacity
        self._memory_seconds = memory_seconds
        self._most_sites = most_sites
        self._figures: dict[str, tuple[LoadFigures, float]] = {}
        # Hot: senders of publications look at these.
        self._uses: dict[str, float] = {}
        self._lost: set[str] = set()

    def __contains__(self, site: object) -> bool:
        return site in self._figures

    def heard(self, site: str, figures: LoadFigures, now: float) -> bool:
        """Returns False where the figures make no sense, or there are too many of them."""
        if not is_sound(figures) or (site not in self._figures and len(self._figures) >= self._most_sites):
            return False
        self._lost.discard(site)
        self._figures[site] = figures, now
        self._uses[site] = figures.use
        return True

    def lost(self, site: str) -> None:
        self._figures.pop(site, None)
        self._uses.pop(site, None)
        if len(self._lost) < self._most_sites:
            self._lost.add(site)

    def forget(self, now: float) -> None:
        horizon = now - self._memory_seconds
        for site in [site for site, (_, when) in self._figures.items() if when < horizon]:
            del self._figures[site], self._uses[site]

    def alive(self, sites: Iterable[str]) -> list[str]:
        """The sites that are not lost, in their order."""
        return [site for site in sites if site not in self._lost]

    def use_of(self, site: str) -> float:
        return self._uses.get(site, 0.0)

    def ring_use_of(self, site: str) -> float:
        known = self._figures.get(site)
        return known[0].ring_use if known is not None else 0.0

    def capacity_of(self, site: str) -> float:
        known = self._figures.get(site)
        return known[0].capacity if known is not None else self._first_capacity

    def accepts_all(self, site: str) -> bool:
        return self.acceptance_of(site) >= 1.0

    def acceptance_of(self, site: str) -> float:
        known = self._figures.get(site)
        return known[0].acceptance if known is not None else 1.0

    def room_of(self, site: str, level: float) -> float:
        """Messages a second until the site has this use; not below 0."""
        return max(0.0, level - self.use_of(site)) * self.capacity_of(site)

    def mean_use(self, sites: Iterable[str], *own: float) -> float:
        """The mean of the known ones among the sites, and of further uses; 0 of nothing."""
        uses = [min(self._uses[site], _MOST_USE) for site in sites if site in self._uses]
        uses += own
        return sum(uses) / len(uses) if uses else 0.0
