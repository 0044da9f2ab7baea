"""The paper's game (section V-A): square tiles, and players that walk to random points and take short breaks.

A player subscribes to its tile and publishes three updates a second there, moving or not. Nothing here does input or
output; time is passed in.
"""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

from culver.channels.core.channel_plan import Ring, ServerAddress

_TRIED_NAMES = 101


@dataclass(frozen=True, slots=True)
class GameWorld:
    """A map of 1 by 1 with ``across`` times ``across`` tiles. ``name`` begins the names of their channels, and so
    decides where consistent hashing puts them."""

    across: int
    name: str = "game"
    crossing_seconds: float = 90.0
    most_break_seconds: float = 5.0

    def tile(self, x: float, y: float) -> bytes:
        last = self.across - 1
        column, row = min(last, int(x * self.across)), min(last, int(y * self.across))
        return b"%s:%d:%d" % (self.name.encode(), column, row)

    def tiles(self) -> list[bytes]:
        middle = [(place + 0.5) / self.across for place in range(self.across)]
        return [self.tile(x, y) for x in middle for y in middle]

    def load_shares(self) -> dict[bytes, float]:
        """The part of all deliveries that each tile has: the square of its players' part, because everybody there
        gets everybody's updates. Walkers between random points are in the middle more often than at the edge."""

        def below(x: float) -> float:
            return x * x * (3 - 2 * x)

        edges = [below(place / self.across) for place in range(self.across + 1)]
        parts = [high - low for low, high in pairwise(edges)]
        loads = dict(zip(self.tiles(), ((a * b) ** 2 for a in parts for b in parts), strict=True))
        whole = sum(loads.values())
        return {tile: load / whole for tile, load in loads.items()}


def hash_imbalance(world: GameWorld, servers: int) -> float:
    """The expected load of the busiest of so many servers against the mean, with consistent hashing."""
    numbers = tuple(range(1, servers + 1))
    ring = Ring(1, tuple(ServerAddress(number, "") for number in numbers), numbers)
    loads = dict.fromkeys(numbers, 0.0)
    for tile, share in world.load_shares().items():
        loads[ring.home(tile)] += share
    return max(loads.values()) * servers


def typical_world(across: int, servers: int) -> GameWorld:
    """A world whose names of channels are neither lucky nor unlucky for consistent hashing: the median of many."""
    worlds = [GameWorld(across, f"game{number}") for number in range(_TRIED_NAMES)]
    return sorted(worlds, key=lambda world: hash_imbalance(world, servers))[_TRIED_NAMES // 2]


class WalkingPlayer:
    """Where one player is. It begins somewhere on a walk, as players do who have been there for a while."""

    def __init__(self, world: GameWorld, random: Random, now: float) -> None:
        self._world = world
        self._random = random
        here, self._to = (random.random(), random.random()), (random.random(), random.random())
        part = random.random()
        self._from = tuple(a + part * (b - a) for a, b in zip(here, self._to, strict=True))
        self._left_at = now
        self._break_seconds = 0.0

    def place(self, now: float) -> tuple[float, float]:
        """Time never goes back."""
        while True:
            (x0, y0), (x1, y1) = self._from, self._to
            seconds = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 * self._world.crossing_seconds
            walked = now - self._left_at
            if walked < seconds:
                part = walked / seconds
                return x0 + part * (x1 - x0), y0 + part * (y1 - y0)
            if walked < seconds + self._break_seconds:
                return self._to
            self._left_at += seconds + self._break_seconds
            self._from = self._to
            self._to = (self._random.random(), self._random.random())
            self._break_seconds = self._random.uniform(0.0, self._world.most_break_seconds)

    def tile(self, now: float) -> bytes:
        return self._world.tile(*self.place(now))
