"""The architectures that the paper compares clusters with (section 4): a tree of brokers, and a distributed hash
table.

Tree: subscriptions are flooded, so every broker knows which of its links lead to a broker that wants a publication,
and a publication follows these links from broker to broker. Covering is ignored. A random tree links each broker
with a random one before it; a balanced one has a fixed fan-out.

Hash table: a Chord ring. A publication is routed by fingers, in O(log n) hops, to the rendezvous broker of its part
of the event space. This one multicasts it to the brokers that want it, and routes to them share their common
beginnings (as in the multicast of Baldoni and others over Chord); this is kinder to the table than one route for
each broker, as in Meghdoot. Publications fall into all parts of the event space alike.
"""

import random as chance
from bisect import bisect_left
from collections.abc import Collection, Iterator

from culver.simulation.clusters.cluster_world import BrokerLoads

_BITS = 32


class BrokerTree:
    def __init__(self, brokers: int, seed: int, fan_out: int | None = None) -> None:
        """A random tree, or with a fan-out the balanced one."""
        random = chance.Random(seed)
        self._parent = [-1] + [
            random.randrange(number) if fan_out is None else (number - 1) // fan_out
            for number in range(1, brokers)
        ]
        self._depth = [0] * brokers
        for number in range(1, brokers):
            self._depth[number] = self._depth[self._parent[number]] + 1

    def publish(self, publisher: int, wanted: Collection[int], loads: BrokerLoads) -> None:
        """Count the messages of a publication."""
        links: set[tuple[int, int]] = set()
        for broker in wanted:
            links.update(self._path(publisher, broker))
        for source, destination in links:
            loads.count(source, destination)

    def _path(self, source: int, destination: int) -> Iterator[tuple[int, int]]:
        down = []
        while source != destination:
            if self._depth[source] >= self._depth[destination]:
                yield source, self._parent[source]
                source = self._parent[source]
            else:
                down.append((self._parent[destination], destination))
                destination = self._parent[destination]
        yield from down


class RendezvousRing:
    def __init__(self, brokers: int, seed: int) -> None:
        self._random = chance.Random(seed)
        self._ids = sorted(self._random.sample(range(1 << _BITS), brokers))
        self._fingers = [
            sorted({self._owner(own + (1 << bit)) for bit in range(_BITS)} - {number})
            for number, own in enumerate(self._ids)
        ]

    def publish(self, publisher: int, wanted: Collection[int], loads: BrokerLoads) -> None:
        """Count the messages of a publication with a random place in the event space."""
        rendezvous = self._owner(self._random.randrange(1 << _BITS))
        hops = list(self._route(publisher, rendezvous))
        multicast: set[tuple[int, int]] = set()
        for broker in wanted:
            multicast.update(self._route(rendezvous, broker))
        for source, destination in (*hops, *multicast):
            loads.count(source, destination)

    def _owner(self, place: int) -> int:
        """The first broker at or behind a place of the ring."""
        return bisect_left(self._ids, place % (1 << _BITS)) % len(self._ids)

    def _route(self, source: int, destination: int) -> Iterator[tuple[int, int]]:
        """Each hop goes as far as a finger reaches without passing the destination."""
        brokers = len(self._ids)
        while source != destination:
            remaining = (destination - source) % brokers
            step = max(
                (finger - source) % brokers
                for finger in self._fingers[source]
                if (finger - source) % brokers <= remaining
            )
            following = (source + step) % brokers
            yield source, following
            source = following
