"""Brokers in clusters and rings that disseminate publications, message by message (section 4 of the paper).

A time unit is one second. Messages arrive at once, and every message counts where it is sent and where it is
received. The layout and the load balancing are the objects of production. Every second brokers learn the others'
figures of the second before, as gossip and piggybacking would bring them; that is not counted. Requests for help,
and their answers, are.
"""

import random as chance
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from culver.overlay.clusters.layout.cluster_layout import ClusterLayout
from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.clusters.load.load_balance import LoadBalance
from culver.overlay.clusters.load.load_messages import LoadKind, SendLoadMessage

RING, CLUSTER, SUBSCRIPTION, CLIENT = LoadKind


@dataclass(slots=True)
class BrokerLoads:
    """Messages of each broker in the time that is measured."""

    brokers: int
    sent: NDArray[np.int64] = field(init=False)
    received: NDArray[np.int64] = field(init=False)
    delivered: NDArray[np.int64] = field(init=False)
    published: NDArray[np.int64] = field(init=False)
    publications: int = 0
    control_messages: int = 0
    handed_over: int = 0
    seconds: float = 1.0

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.sent, self.received, self.delivered, self.published = (
            np.zeros(self.brokers, dtype=np.int64) for _ in range(4)
        )
        self.publications = self.control_messages = self.handed_over = 0

    def count(self, source: int, destination: int) -> None:
        """A message from one broker to another."""
        self.sent[source] += 1
        self.received[destination] += 1

    @property
    def forwarding(self) -> NDArray[np.float64]:
        """Messages in and out a second, among brokers."""
        return (self.sent + self.received) / self.seconds

    @property
    def with_deliveries(self) -> NDArray[np.float64]:
        """As `forwarding`, and one message to the clients of each broker that wants a publication."""
        return (self.sent + self.received + self.delivered) / self.seconds

    @property
    def with_clients(self) -> NDArray[np.float64]:
        """As `with_deliveries`, and the publications of the clients."""
        return (self.sent + self.received + self.delivered + self.published) / self.seconds


class ClusterWorld:
    """Deterministic for a seed. Brokers have numbers; their keys are the layout's."""

    def __init__(
        self,
        brokers: int,
        clusters: int,
        seed: int,
        balanced_capacity: float | None = None,
        settings: LoadSettings | None = None,
    ) -> None:
        """With a `balanced_capacity`, brokers balance their load, and each can handle so many messages a second."""
        self.keys = [f"broker-{number:03d}~{number:016x}" for number in range(brokers)]
        self.layout = ClusterLayout(self.keys, clusters)
        self.random = chance.Random(seed)
        self.loads = BrokerLoads(brokers)
        self.now = 0.0
        self._number = {key: number for number, key in enumerate(self.keys)}
        self._members = [
            [self._number[key] for key in self.layout.members(self.layout.cluster_of(own))]
            for own in self.keys
        ]
        self._contacts = [
            {
                cluster: self.layout.contacts(own, cluster)
                if balanced_capacity is not None
                else (self.layout.contact(own, cluster),)
                for cluster in range(self.layout.clusters)
                if cluster != self.layout.cluster_of(own)
            }
            for own in self.keys
        ]
        self._capacity = balanced_capacity
        self.balances: list[LoadBalance] = []
        if balanced_capacity is not None:
            self.balances = [
                LoadBalance(key, chance.Random(f"{seed}/{key}"), 0.0, settings) for key in self.keys
            ]
            for number, balance in enumerate(self.balances):
                balance.arrange(
                    (self.keys[each] for each in self._members[number]),
                    self.layout.ring_of(self.keys[number]),
                )

    def by_ring(self) -> list[int]:
        """All brokers, ring by ring: so the most active publishers of a skewed workload share rings."""
        return [
            self._number[key]
            for key in sorted(self.keys, key=lambda key: (self.layout.ring(key), self.layout.cluster_of(key)))
        ]

    def run(
        self,
        seconds: int,
        publications: int,
        matching_ratio: float,
        weights: Sequence[float] | None = None,
        measure_from: int = 0,
    ) -> BrokerLoads:
        """Publish so much in every second, by brokers that are drawn with `weights` (evenly without), for so large a
        random share of brokers. Measures from a second on."""
        everybody = range(len(self.keys))
        cumulative = None if weights is None else list(accumulate(weights))
        wanted = round(matching_ratio * len(self.keys))
        for second in range(seconds):
            if second == measure_from:
                self.loads.clear()
            before = self._handled()
            start = self.now
            for turn in range(publications):
                self.now = start + turn / publications
                publisher = self.random.choices(everybody, cum_weights=cumulative)[0]
                self.publish(publisher, frozenset(self.random.sample(everybody, wanted)))
            self.now = start + 1.0
            self._end_second(before)
        self.loads.seconds = float(seconds - measure_from)
        return self.loads

    def publish(self, publisher: int, wanted: frozenset[int]) -> None:
        """Disseminate one publication to the brokers that want it (algorithms 1 and 2)."""
        self.loads.publications += 1
        self.loads.published[publisher] += 1
        for broker in wanted:
            self.loads.delivered[broker] += 1
        if not self.balances:
            for contacts in self._contacts[publisher].values():
                entry = self._number[contacts[0]]
                self.loads.count(publisher, entry)
                self._match(entry, wanted, publisher)
            self._match(publisher, wanted, publisher)
            return
        now = self.now
        self.balances[publisher].received_messages(CLIENT, 1, now)
        for broker in wanted:
            self.balances[broker].sent(CLIENT, 1, now)
        root, helper = publisher, self.balances[publisher].ring_helper(now)
        if helper is not None:
            root = self._number[helper]
            self._hand_over(publisher, root, RING)
        balance = self.balances[root]
        for cluster, contacts in self._contacts[root].items():
            carrier = balance.carrier(cluster, contacts)
            assert carrier is not None
            entry = self._number[carrier]
            self.loads.count(root, entry)
            self.balances[entry].received_messages(RING, 1, now)
            self._match_balanced(entry, wanted, publisher)
        balance.sent(RING, len(self._contacts[root]), now)
        if root == publisher:
            self._match_balanced(root, wanted, publisher)
        else:
            # What was handed over is not handed on.
            balance.sent(CLUSTER, self._match(root, wanted, publisher), now)

    def subscribe(self, broker: int) -> None:
        """Tell the others of the cluster of a subscription."""
        for other in self._members[broker]:
            if other != broker:
                self.loads.count(broker, other)

    def _match_balanced(self, entry: int, wanted: frozenset[int], publisher: int) -> None:
        matcher, helper = entry, self.balances[entry].cluster_helper(self.now)
        if helper is not None:
            matcher = self._number[helper]
            self._hand_over(entry, matcher, CLUSTER)
        self.balances[matcher].sent(CLUSTER, self._match(matcher, wanted, publisher), self.now)

    def _match(self, matcher: int, wanted: frozenset[int], publisher: int) -> int:
        """Send to the brokers of the cluster that want it and have it not yet. Returns how many these are."""
        sent = 0
        for broker in self._members[matcher]:
            if broker in wanted and broker not in (matcher, publisher):
                self.loads.count(matcher, broker)
                sent += 1
                if self.balances:
                    self.balances[broker].received_messages(CLUSTER, 1, self.now)
        return sent

    def _hand_over(self, source: int, helper: int, kind: LoadKind) -> None:
        self.loads.handed_over += 1
        self.loads.count(source, helper)
        self.balances[helper].received_messages(kind, 1, self.now)

    def _handled(self) -> NDArray[np.int64]:
        loads = self.loads
        return loads.sent + loads.received + loads.delivered + loads.published

    def _end_second(self, before: NDArray[np.int64]) -> None:
        if self._capacity is None:
            return
        for balance, messages in zip(self.balances, (self._handled() - before).tolist(), strict=True):
            balance.worked(messages / self._capacity, messages)
        figures = [balance.loads(self.now) for balance in self.balances]
        for own, balance in enumerate(self.balances):
            for number, each in enumerate(figures):
                if number != own:
                    balance.heard(self.keys[number], each, self.now)
        for own, balance in enumerate(self.balances):
            self._deliver(own, balance.tick(self.now))

    def _deliver(self, source: int, instructions: Sequence[SendLoadMessage]) -> None:
        for site, message in instructions:
            destination = self._number[site]
            self.loads.control_messages += 1
            self.loads.count(source, destination)
            self._deliver(
                destination, self.balances[destination].received(self.keys[source], message, self.now)
            )


def zipf_weights(brokers: int, exponent: float) -> list[float]:
    """How often the brokers of the ranks 1, 2, ... publish."""
    return [rank**-exponent for rank in range(1, brokers + 1)]
