"""The way of every message through a network of brokers, with the bytes on each link: by the objects of production.

    route   (origin, message)     the clients at the origin, and hops in breadth-first order
    hop     a packet on a link    its bytes, where it arrives, how many clients are there, and the hops that follow

B-DRP's hops come from each broker's own `LinkStates`: destinations are divided by their next hop (figure 1).
Flooding's go to all neighbours but the one that the message came from; a copy that finds the message there already
has no hops behind it. Bytes are those of an encoded `Packet` with one message and its frame; where messages share a
packet they are fewer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from culver.bench.overlay.broker_topologies import Topology
from culver.bench.overlay.client_workload import DrawnWorkload
from culver.bench.overlay.real_sites.broker_costs import BrokerCosts
from culver.jit import Integers, Reals, read_only
from culver.overlay import site_key
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.overlay_messages import (
    LinkState,
    Packet,
    StreamAcknowledgement,
    StreamPart,
    encode_message,
)
from culver.overlay.core.site_numbers import NumberTable
from culver.overlay.links.frame_format import FrameKind, pack_frame

B_DRP, FLOODING = "b-drp", "flooding"

# A log has some hundred thousand events: its offsets take five bytes.
_OFFSET = 300_000
_WINDOW = 1_700_000_000_000_000


class RouteTable(NamedTuple):
    """All routes, that of message m from origin o at o * messages + m. Read-only; see the module's text."""

    messages: int
    brokers: int
    links: int
    origin_seconds: Reals  # of the origin's processor
    origin_clients: Integers
    first_hop: Integers  # per route, and one more
    first_end: Integers  # the end of the hops that the origin sends itself
    hop_link: Integers
    hop_broker: Integers
    hop_bytes: Integers
    hop_seconds: Reals  # of the processor of the broker where it arrives
    hop_clients: Integers
    hop_answers: Integers  # whether the broker acknowledges
    next_hop: Integers  # the hops that follow, as a range
    next_end: Integers
    answer_start: Integers  # per broker * brokers + origin: the links of the way back
    answer_links: Integers
    answer_bytes: int


class _Hop(NamedTuple):
    parent: int  # -1 for the origin
    link: int
    broker: int
    destinations: int
    bits_bytes: int
    is_wanted: bool
    is_known: bool  # the message is there already


class BrokerNetwork:
    """The brokers of a topology, each with what it knows of the others."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.keys = [
            site_key(f"broker-{number}", number.to_bytes(8, "big")) for number in range(topology.brokers)
        ]
        self.neighbours = topology.neighbours()
        directed = [(one, other) for pair in topology.links for one, other in (pair, pair[::-1])]
        self.link_numbers = {pair: number for number, pair in enumerate(directed)}
        self._number_of = {key: number for number, key in enumerate(self.keys)}
        self._numbers = {pair: NumberTable() for pair in directed}
        states = [
            LinkState(
                key, 1, tuple(sorted((self.keys[each], 1) for each in self.neighbours[number])), _OFFSET
            )
            for number, key in enumerate(self.keys)
        ]
        self._states = [LinkStates(key) for key in self.keys]
        for own in self._states:
            for state in states:
                own.take(state, 0.0)

    def partitioned(self, origin: int, destinations: Iterable[int]) -> list[_Hop]:
        """Dynamic receiver partitioning: the hops of a packet to these brokers."""
        hops: list[_Hop] = []
        waiting = deque([(-1, origin, frozenset(destinations) - {origin})])
        while waiting:
            parent, broker, behind = waiting.popleft()
            parts: dict[int, list[int]] = {}
            for each in sorted(behind):
                key = self._states[broker].next_hop_of(self.keys[origin], self.keys[each])
                assert key is not None
                parts.setdefault(self._number_of[key], []).append(each)
            for neighbour, own in parts.items():
                table = self._numbers[broker, neighbour]
                keys = [self.keys[each] for each in own]
                table.number(keys)
                link = self.link_numbers[broker, neighbour]
                rest = frozenset(own) - {neighbour}
                hops.append(
                    _Hop(parent, link, neighbour, len(own), len(table.bits(keys)), neighbour in own, False)
                )
                if rest:
                    waiting.append((len(hops) - 1, neighbour, rest))
        return hops

    def flooded(self, origin: int) -> list[_Hop]:
        """The hops of a message to everybody."""
        hops: list[_Hop] = []
        reached = {origin}
        waiting = deque([(-1, origin, -1)])
        while waiting:
            parent, broker, source = waiting.popleft()
            for neighbour in self.neighbours[broker]:
                if neighbour != source:
                    known = neighbour in reached
                    reached.add(neighbour)
                    link = self.link_numbers[broker, neighbour]
                    hops.append(_Hop(parent, link, neighbour, 0, 0, not known, known))
                    if not known:
                        waiting.append((len(hops) - 1, neighbour, broker))
        return hops

    def way_back(self, broker: int, origin: int) -> list[int]:
        """The links from a broker to an origin."""
        path = [broker, *(self._number_of[key] for key in self._states[broker].path(self.keys[origin]))]
        return [self.link_numbers[pair] for pair in pairwise(path)]


def route_table(network: BrokerNetwork, drawn: DrawnWorkload, policy: str, costs: BrokerCosts) -> RouteTable:
    """The routes of all messages from all brokers."""
    brokers, messages = network.topology.brokers, len(drawn.payloads)
    sizes = [len(payload) for payload in drawn.payloads]
    columns: list[tuple[int, int, int, float, int, bool, int, int]] = []
    origin_seconds, origin_clients, first_hop, first_end = [], [], [0], []
    for origin in range(brokers):
        hops_to = _hops_of(network, origin, policy)
        for message in range(messages):
            hops = hops_to(frozenset(np.flatnonzero(drawn.reached[message]).tolist()))
            clients = drawn.counts[message].tolist()
            begins, ends = _ranges(hops, len(columns))
            own = ends[-1] - begins[-1]
            origin_seconds.append(costs.at_origin(own, clients[origin]))
            origin_clients.append(clients[origin])
            first_end.append(ends[-1])
            for place, hop in enumerate(hops):
                here = clients[hop.broker] if hop.is_wanted else 0
                followed = ends[place] - begins[place]
                seconds = costs.at_hop(followed, here, is_wanted=hop.is_wanted, is_known=hop.is_known)
                size = packet_bytes(hop.destinations, hop.bits_bytes, sizes[message])
                answers = hop.is_wanted and policy != FLOODING
                columns.append(
                    (hop.link, hop.broker, size, seconds, here, answers, begins[place], ends[place])
                )
            first_hop.append(len(columns))
    ways = [network.way_back(broker, origin) for broker in range(brokers) for origin in range(brokers)]

    def column(place: int) -> Integers:
        return read_only(np.array([row[place] for row in columns], np.int64))

    return RouteTable(
        messages,
        brokers,
        len(network.link_numbers),
        read_only(np.array(origin_seconds, np.float64)),
        read_only(np.array(origin_clients, np.int64)),
        read_only(np.array(first_hop, np.int64)),
        read_only(np.array(first_end, np.int64)),
        column(0),
        column(1),
        column(2),
        read_only(np.array([row[3] for row in columns], np.float64)),
        column(4),
        column(5),
        column(6),
        column(7),
        read_only(np.cumsum([0, *map(len, ways)]).astype(np.int64)),
        read_only(np.array([link for way in ways for link in way], np.int64)),
        answer_bytes(),
    )


def _hops_of(network: BrokerNetwork, origin: int, policy: str) -> Callable[[frozenset[int]], Sequence[_Hop]]:
    if policy == FLOODING:
        flooded = network.flooded(origin)
        return lambda destinations: flooded
    return cache(lambda destinations: network.partitioned(origin, destinations))


def _ranges(hops: Sequence[_Hop], first: int) -> tuple[list[int], list[int]]:
    """The hops that follow each hop, and last those that the origin sends, as places from `first` on. They lie side
    by side."""
    begins, ends = [first] * (len(hops) + 1), [first] * (len(hops) + 1)
    for place, hop in enumerate(hops):
        if ends[hop.parent] == begins[hop.parent]:
            begins[hop.parent] = first + place
        ends[hop.parent] = first + place + 1
    return begins, ends


@cache
def packet_bytes(destinations: int, bits_bytes: int, payload_bytes: int) -> int:
    """What a packet with one message has on a link."""
    packet = Packet(
        site_key("broker-00", bytes(8)),
        _WINDOW,
        3,
        b"\xff" * bits_bytes,
        (StreamPart(_OFFSET, _OFFSET + 1, 1),) * destinations,
        (_OFFSET,),
        (bytes(payload_bytes),),
    )
    return len(pack_frame(FrameKind.DATA, encode_message(packet)))


@cache
def answer_bytes() -> int:
    key = site_key("broker-00", bytes(8))
    return len(pack_frame(FrameKind.DATA, encode_message(StreamAcknowledgement(key, key, 1, _OFFSET, False))))
