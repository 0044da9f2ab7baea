"""Rivals of B-DRP's routing, for simulated sites: what a site advertises, and what its mailbox at another one gets.

    b-drp        encoded predicates decide at the source; a packet names its destinations
    names-only   as b-drp, but a predicate says only which attributes an event must have
    exact        as b-drp, but the predicates themselves decide at the source
    flooding     a site passes every event on to all its neighbours but the one that it came from
    clusters     the other way to route of production: a site knows the predicates of its own cluster

The first three differ in their `EventPool` alone. Flooding has a node of its own as well: sites advertise that they
want everything, and packets follow all links.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from culver.matching import ColumnarFilter, EncodedFilter, EncodedPredicate, PredicateSummary, predicate_of
from culver.model import ENCODED
from culver.model.language import Clause, Computed, Predicate, Presence
from culver.overlay.clusters.origin_clustering import ClusterSettings
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import Instruction, SendMessage
from culver.overlay.core.overlay_messages import OverlayMessage, Packet
from culver.overlay.core.overlay_node import NodeSettings, OverlayNode
from culver.simulation.clusters.simulated_cluster_site import SimulatedClusterSite
from culver.simulation.simulated_network import LinkQuality, SimulatedNetwork
from culver.simulation.simulated_site import EventPool, NodeMaker, OverlayWatcher, SimulatedSite, SiteFaults
from culver.simulation.virtual_clock import VirtualClock

_SEEN = 1 << 16


class _FloodedLinks(LinkStates):
    """A broadcast comes from any neighbour, the `source`, and follows every link instead of the origin's tree."""

    source: str | None = None

    def children(self, origin: str) -> list[str]:
        state = self.states.get(self.own)
        return [] if state is None else [site for site, _ in state.links]

    def parent(self, origin: str) -> str | None:
        return self.source


class FloodingNode(OverlayNode):
    """Passes a packet on to all neighbours but the one that it came from, the first time that it sees it."""

    states_type = _FloodedLinks
    states: _FloodedLinks

    def __init__(
        self, own: str, boot: int, position: int, positions: Mapping[str, int], settings: NodeSettings
    ) -> None:
        super().__init__(own, boot, position, positions, settings)
        self._peers: dict[int, str] = {}
        self._seen: dict[tuple[str, int, int], None] = {}

    def link_opened(self, link: int, peer: str, cost: int, now: float) -> list[Instruction]:
        self._peers[link] = peer
        return super().link_opened(link, peer, cost, now)

    def received(self, link: int, message: OverlayMessage, now: float) -> list[Instruction]:
        if not isinstance(message, Packet):
            return super().received(link, message, now)
        name = message.origin, message.window, message.offsets[0] if message.offsets else -1
        if name in self._seen or message.origin == self.own:
            return []
        self._seen[name] = None
        self.states.source = self._peers[link]
        if len(self._seen) > _SEEN:
            del self._seen[next(iter(self._seen))]
        return [
            each
            for each in super().received(link, message, now)
            if not (isinstance(each, SendMessage) and each.link == link and isinstance(each.message, Packet))
        ]


class RoutingPolicy(NamedTuple):
    """`pool` makes the pool of a run from its payloads, its events as columns and the local predicates. With
    `clusters`, sites route by clusters."""

    name: str
    pool: Callable[[Sequence[bytes], pa.RecordBatch, Sequence[Predicate]], EventPool]
    settings: NodeSettings = NodeSettings(open_limit=1 << 16)
    make_node: NodeMaker = OverlayNode
    clusters: ClusterSettings | None = None


def names_only(clause: Clause) -> Clause:
    """A wider clause, which asks only that the attributes be there."""
    return tuple(
        constraint if isinstance(constraint, Computed) else Presence(constraint.attribute, True)
        for constraint in clause
        if not isinstance(constraint, Presence) or constraint.present
    )


def whole_clause(clause: Clause) -> Clause:
    return clause


def no_clause(clause: Clause) -> Clause:
    """The widest clause: it wants every event."""
    return ()


def encoded_pool(
    payloads: Sequence[bytes],
    batch: pa.RecordBatch,
    predicates: Sequence[Predicate],
    *,
    encoding: str = "cells",
    widen: Callable[[Clause], Clause] = whole_clause,
) -> EventPool:
    """Encoded predicates, of clauses that are widened before, decide."""

    @cache
    def matched(predicate: EncodedPredicate) -> frozenset[int]:
        made = EncodedFilter()
        made.add([(0, predicate_of(predicate.text, ENCODED))])
        return frozenset(np.flatnonzero(np.diff(made.match(batch).offsets)).tolist())

    def encode(subscriptions: frozenset[int]) -> EncodedPredicate:
        return encoded_of((predicates[number] for number in sorted(subscriptions)), encoding, widen)

    return EventPool(payloads, lambda predicate, number: number in matched(predicate), encode)


def exact_pool(
    payloads: Sequence[bytes], batch: pa.RecordBatch, predicates: Sequence[Predicate]
) -> EventPool:
    """The predicates themselves decide. What is advertised only stands for them."""
    behind: dict[EncodedPredicate, frozenset[int]] = {}

    def encode(subscriptions: frozenset[int]) -> EncodedPredicate:
        made = encoded_of(predicates[number] for number in sorted(subscriptions))
        behind[made] = behind.get(made, frozenset()) | subscriptions
        return made

    @cache
    def matched(subscriptions: frozenset[int]) -> frozenset[int]:
        made = ColumnarFilter()
        made.add((number, predicates[number]) for number in subscriptions)
        return frozenset(np.flatnonzero(np.diff(made.match(batch).offsets)).tolist())

    return EventPool(payloads, lambda predicate, number: number in matched(behind[predicate]), encode)


def encoded_of(
    predicates: Iterable[Predicate], encoding: str = "cells", widen: Callable[[Clause], Clause] = whole_clause
) -> EncodedPredicate:
    """The advertisement of a site with these predicates."""
    summary = PredicateSummary(encoding)
    for number, predicate in enumerate(predicates):
        summary.add(number, tuple(widen(clause) for clause in predicate.clauses))
    return summary.encode()


def _encoded(name: str, encoding: str, widen: Callable[[Clause], Clause] = whole_clause) -> RoutingPolicy:
    def pool(payloads: Sequence[bytes], batch: pa.RecordBatch, predicates: Sequence[Predicate]) -> EventPool:
        return encoded_pool(payloads, batch, predicates, encoding=encoding, widen=widen)

    return RoutingPolicy(name, pool)


ROUTING_POLICIES = {
    "b-drp": _encoded("b-drp", "cells"),
    "b-drp, paper's encoding": _encoded("b-drp, paper's encoding", "paper"),
    "names-only": _encoded("names-only", "cells", names_only),
    "exact": RoutingPolicy("exact", exact_pool),
    "flooding": _encoded("flooding", "cells", no_clause)._replace(
        settings=NodeSettings(broadcast_threshold=-1.0, open_limit=1 << 16), make_node=FloodingNode
    ),
}
"""B-DRP and its rivals."""

CLUSTER_POLICY = _encoded("clusters", "cells")._replace(clusters=ClusterSettings())


def linked_sites(
    policy: RoutingPolicy,
    pool: EventPool,
    links: Iterable[tuple[int, int]],
    clock: VirtualClock,
    random: Random,
    watcher: OverlayWatcher,
    quality: LinkQuality = LinkQuality(),  # noqa: B008  (frozen)
) -> list[SimulatedSite]:
    """Sites of a policy that do not run yet, on a network of their own. A link is dialled by its first site."""
    network = SimulatedNetwork(clock, random, quality)
    peers: dict[int, dict[str, int]] = {}
    for one, other in links:
        peers.setdefault(one, {})[_name(other)] = 1
        peers.setdefault(other, {})
    sites: list[SimulatedSite] = []
    for number in sorted(peers):
        surroundings = _name(number), peers[number], network, clock, random, pool, watcher, SiteFaults()
        if policy.clusters is not None:
            sites.append(SimulatedClusterSite(*surroundings, policy.clusters))
        else:
            sites.append(SimulatedSite(*surroundings, policy.settings, make_node=policy.make_node))
    return sites


def without_destinations(packet: Packet) -> Packet:
    """The packet that flooding needs to send: the events alone."""
    return msgspec.structs.replace(packet, destinations=b"", streams=())


def _name(number: int) -> str:
    return f"site-{number:02d}"
