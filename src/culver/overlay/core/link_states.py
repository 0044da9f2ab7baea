"""The graph of sites and links, and the shortest ways in it.

Every site floods its own links (link state, as in OSPF), so all of them see the same graph and work out the same
trees:

    states   paris: (lyon 1) (bonn 4)      lyon: (paris 1) (bonn 1)      bonn: (paris 4) (lyon 1)
    tree of paris                paris -> lyon -> bonn
                                 parents {lyon: paris, bonn: lyon}

A link counts if both ends tell of it, so a dead site's own words do not keep it in the graph. Of several shortest
ways a tree has the one whose sites have the smaller keys, the same at every site. A packet follows the tree of its
origin: it crosses each link of that tree at most once, however often it is divided on its way. Everything else
follows the tree of the site that sends it on.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from culver.overlay.core.overlay_messages import LinkState

_Parents = dict[str, str]


class LinkStates:
    """Holds the newest link state of every site, and works out what follows from them. `own` is this site."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.states: dict[str, LinkState] = {}
        self.changes = 0
        """Counts how often the graph has changed."""
        self._taken_at: dict[str, float] = {}
        self._costs: dict[str, dict[str, int]] = {}
        self._trees: dict[str, tuple[_Parents, dict[str, int]]] = {}
        self._ways: dict[str, dict[str, str | None]] = {}

    def take(self, state: LinkState, now: float) -> bool:
        """Keep a state if it is newer than the one at hand; returns whether it is."""
        before = self.states.get(state.site)
        if before is not None and before.sequence >= state.sequence:
            return False
        self.states[state.site] = state
        self._taken_at[state.site] = now
        if before is None or before.links != state.links:
            self._costs[state.site] = dict(state.links)
            self._graph_changed()
        return True

    def taken_since(self, time: float) -> list[LinkState]:
        """The states that were new at a time or later, and this site's own."""
        return [
            state for site, state in self.states.items() if site == self.own or self._taken_at[site] >= time
        ]

    def forget(self, time: float) -> None:
        """Drop the states of sites that cannot be reached and have said nothing since a time."""
        old = [
            site for site, taken_at in self._taken_at.items() if taken_at < time and not self.reaches(site)
        ]
        for site in old:
            del self.states[site], self._taken_at[site], self._costs[site]
        if old:
            self._graph_changed()

    def reaches(self, site: str) -> bool:
        """Whether there is a way from this site to that one."""
        return site == self.own or site in self._tree(self.own)[0]

    def reachable(self) -> Iterator[str]:
        """All other sites to which there is a way, in no particular order."""
        return iter(self._tree(self.own)[0])

    def distance(self, site: str) -> int | None:
        """The cost of the shortest way to a site."""
        return self._tree(self.own)[1].get(site)

    def next_hop(self, site: str) -> str | None:
        """The neighbour on the shortest way from here to a site."""
        return self._way(self.own, site)

    def next_hop_of(self, origin: str, site: str) -> str | None:
        """The neighbour to which a packet of that origin goes on its way to a site. Where this site is not on that
        way, because the two know different graphs at the moment, the packet goes the shortest way from here."""
        return self._way(origin, site) or self._way(self.own, site)

    def parent(self, origin: str) -> str | None:
        """The neighbour before this site in an origin's tree."""
        return self._tree(origin)[0].get(self.own)

    def children(self, origin: str) -> list[str]:
        """The neighbours behind this site in an origin's tree."""
        parents = self._tree(origin)[0]
        return sorted(site for site, parent in parents.items() if parent == self.own)

    def path(self, site: str) -> list[str]:
        """The sites on the shortest way from here to a site, that one included; empty where there is no way."""
        parents = self._tree(self.own)[0]
        path: list[str] = []
        while site in parents:
            path.append(site)
            site = parents[site]
        return path[::-1]

    def _graph_changed(self) -> None:
        self.changes += 1
        self._trees.clear()
        self._ways.clear()

    def _way(self, origin: str, site: str) -> str | None:
        """The site behind this one on the way from an origin to a site; None where this one is not on it."""
        ways = self._ways.setdefault(origin, {})
        if site not in ways:
            parents = self._tree(origin)[0]
            step: str | None = site
            while step is not None and (parent := parents.get(step)) != self.own:
                step = parent
            ways[site] = step
        return ways[site]

    def _tree(self, origin: str) -> tuple[_Parents, dict[str, int]]:
        """The parent and the distance of every site that an origin reaches (Dijkstra)."""
        if origin not in self._trees:
            self._trees[origin] = self._shortest_paths(origin)
        return self._trees[origin]

    def _shortest_paths(self, origin: str) -> tuple[_Parents, dict[str, int]]:
        parents: _Parents = {}
        distances: dict[str, int] = {}
        queue: list[tuple[int, str, str]] = [(0, "", origin)]
        while queue:
            # Of equal distances the smallest parent comes first, so the order of messages has no say.
            distance, parent, site = heappop(queue)
            if site in distances:
                continue
            distances[site] = distance
            if site != origin:
                parents[site] = parent
            for neighbour, cost in self._costs.get(site, {}).items():
                if neighbour not in distances and site in self._costs.get(neighbour, ()):
                    heappush(queue, (distance + max(cost, 1), site, neighbour))
        del distances[origin]
        return parents, distances
