"""The networks of brokers of B-DRP's experiments (section 5.2): 1, 2, 4, 8 and 42 of them.

The paper says of its networks: 4 brokers are a square with one diagonal, 8 have diameter 3, and 42 have diameter 11.
The last two came from the generator BRITE and are not published. Ours follow the same model (Waxman): brokers lie on
a plane, each new one is linked with near ones most likely, and the first network with the paper's diameter is taken.

        0 --- 1
        |   / |          the square with its diagonal
        |  /  |
        2 --- 3
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

SQUARE = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3))

# Waxman's parameter: how far links reach, as a share of the longest distance.
_REACH = 0.2
_MOST_ATTEMPTS = 10_000


@dataclass(frozen=True, slots=True)
class Topology:
    """Brokers have the numbers from 0 on. A link has the smaller number first."""

    brokers: int
    links: tuple[tuple[int, int], ...]

    @property
    def diameter(self) -> int:
        """The longest of all shortest ways, in links."""
        return int(max(max(self._distances(broker)) for broker in range(self.brokers)))

    @property
    def is_connected(self) -> bool:
        return math.inf not in self._distances(0)

    @property
    def flooded_copies(self) -> int:
        """How often an event crosses a link where every broker passes it on to all neighbours but the one that it
        came from."""
        return 2 * len(self.links) - self.brokers + 1

    def neighbours(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(self.brokers)]
        for one, other in self.links:
            found[one].append(other)
            found[other].append(one)
        return found

    def _distances(self, source: int) -> list[float]:
        neighbours = self.neighbours()
        distances: list[float] = [math.inf] * self.brokers
        distances[source] = 0
        reached = [source]
        for broker in reached:
            for neighbour in neighbours[broker]:
                if distances[neighbour] == math.inf:
                    distances[neighbour] = distances[broker] + 1
                    reached.append(neighbour)
        return distances


def paper_topology(brokers: int, seed: int) -> Topology:
    """The paper's network of so many brokers: 1, 2, 4, 8 or 42. Raises KeyError for another number."""
    if brokers <= 2:
        return Topology(brokers, ((0, 1),)[: brokers - 1])
    if brokers == 4:
        return Topology(4, SQUARE)
    links, diameter = {8: (12, 3), 42: (50, 11)}[brokers]
    return waxman(brokers, links, diameter, seed)


def waxman(brokers: int, links: int, diameter: int | None, seed: int) -> Topology:
    """A connected network with so many links and that diameter, or any where that is None, always the same for the
    same seed. Raises ValueError where none is found."""
    random = Random(seed)
    for _ in range(_MOST_ATTEMPTS):
        made = Topology(brokers, tuple(sorted(_grown(brokers, links, random))))
        if diameter is None or made.diameter == diameter:
            return made
    raise ValueError(f"no network of {brokers} brokers and {links} links has diameter {diameter}")


def _grown(brokers: int, links: int, random: Random) -> set[tuple[int, int]]:
    places = [(random.random(), random.random()) for _ in range(brokers)]
    made = {(_near(places, new, range(new), random), new) for new in range(1, brokers)}
    while len(made) < links:
        one = random.randrange(brokers)
        other = _near(places, one, [each for each in range(brokers) if each != one], random)
        made.add((min(one, other), max(one, other)))
    return made


def _near(places: list[tuple[float, float]], one: int, others: Iterable[int], random: Random) -> int:
    choices = list(others)
    weights = [math.exp(-math.dist(places[one], places[each]) / (_REACH * math.sqrt(2))) for each in choices]
    return random.choices(choices, weights)[0]
