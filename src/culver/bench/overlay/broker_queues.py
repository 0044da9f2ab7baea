"""Brokers as queues, on virtual time: one processor each, and links with a bandwidth between them.

    publisher --Poisson--> [ processor of the origin ] --[ link ]--> [ processor ] --[ link ]--> ...
                                    |                                     |
                                    v                                     v
                               its clients                           its clients

Every queue is first in, first out, and as long as need be. A broker works on one message at a time for as long as the
route table says, then puts the packets that follow into the queues of their links. A broker that gets a message
acknowledges it to the origin, at most every few milliseconds; answers take room on links and no time of processors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from culver.bench.overlay.packet_routes import RouteTable
from culver.jit import Integers, Reals, compiled

LATENCY_SECONDS = 0.001
PATIENCE_SECONDS = 1.0
# A log syncs about so often while it gets events, and answers then.
_ANSWER_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class QueueResult:
    """Numbers by second. `due` and `late` are by the second in which a message was published, and count deliveries;
    late ones took longer than a second, or had not come at the end. `link_bytes` is that of the busiest link, and
    `all_bytes` that of all links over the whole time."""

    published: Integers
    due: Integers
    delivered: Integers
    late: Integers
    link_bytes: Integers
    all_bytes: int
    mean_delay_seconds: float

    @property
    def undelivered_percent(self) -> float:
        return 100.0 * float(self.late.sum()) / max(1.0, float(self.due.sum()))


def run_queues(
    table: RouteTable,
    rate: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seconds: int,
    link_bytes_per_second: float,
    seed: int,
) -> QueueResult:
    """Let clients publish for so long. `rate` gives the messages a second of all clients together at some times; it
    may only grow."""
    random = np.random.default_rng(seed)
    times = _poisson(rate, seconds, random)
    origins = random.integers(table.brokers, size=len(times))
    routes = origins * table.messages + random.integers(table.messages, size=len(times))
    due, delivered, late, link_bytes, delay = _simulate(
        table, times, routes, link_bytes_per_second, seconds, PATIENCE_SECONDS
    )
    published = np.bincount(times.astype(np.int64), minlength=seconds)[:seconds]
    busiest = link_bytes.max(axis=0) if table.links else np.zeros(seconds, np.int64)
    return QueueResult(
        published, due, delivered, late, busiest, int(link_bytes.sum()), delay / max(1, int(delivered.sum()))
    )


def _poisson(
    rate: Callable[[NDArray[np.float64]], NDArray[np.float64]], seconds: int, random: np.random.Generator
) -> Reals:
    """The times of a Poisson process whose rate grows: one of the highest rate, thinned out."""
    highest = float(rate(np.array([float(seconds)]))[0])
    count = random.poisson(highest * seconds)
    times = np.sort(random.random(count) * seconds)
    kept: Reals = times[random.random(count) * highest < rate(times)]
    return kept


@compiled
def _simulate(
    table: RouteTable, times: Reals, routes: Integers, bandwidth: float, seconds: int, patience: float
) -> tuple[Integers, Integers, Integers, Integers, float]:
    brokers, messages = table.brokers, table.messages
    free = np.zeros(brokers)  # when each processor is
    link_free = np.zeros(max(1, table.links))
    answered = np.full(brokers * brokers, -1.0)
    due = np.zeros(seconds, np.int64)
    delivered = np.zeros(seconds, np.int64)
    late = np.zeros(seconds, np.int64)
    link_bytes = np.zeros((max(1, table.links), seconds), np.int64)
    delay = 0.0
    end = seconds + patience
    # Arrivals at brokers: time, message, hop. A hop of -1 is the publication itself.
    arrivals = [(np.inf, -1, -1)]
    following = 0
    while True:
        if following < len(times) and times[following] <= arrivals[0][0]:
            now, message, hop = times[following], following, -1
            following += 1
        else:
            now, message, hop = heappop(arrivals)
            if message < 0 or now >= end:
                break
        route = routes[message]
        origin = route // messages
        published = int(times[message])
        if hop < 0:
            broker, cost, clients = origin, table.origin_seconds[route], table.origin_clients[route]
            begin, stop = table.first_hop[route], table.first_end[route]
            due[published] += clients
            for each in range(table.first_hop[route], table.first_hop[route + 1]):
                due[published] += table.hop_clients[each]
                late[published] += table.hop_clients[each]  # until it arrives in time
            late[published] += clients
        else:
            broker, cost, clients = table.hop_broker[hop], table.hop_seconds[hop], table.hop_clients[hop]
            begin, stop = table.next_hop[hop], table.next_end[hop]
        done = max(now, free[broker]) + cost
        free[broker] = done
        if done < seconds:
            delivered[int(done)] += clients
            delay += clients * (done - times[message])
        if done < end and done - times[message] <= patience:
            late[published] -= clients
        for each in range(begin, stop):
            link, size = table.hop_link[each], table.hop_bytes[each]
            sent = max(done, link_free[link]) + size / bandwidth
            link_free[link] = sent
            if sent < seconds:
                link_bytes[link, int(sent)] += size
            heappush(arrivals, (sent + LATENCY_SECONDS, message, each))
        if hop >= 0 and table.hop_answers[hop] != 0:
            pair = broker * brokers + origin
            if done - answered[pair] >= _ANSWER_SECONDS:
                answered[pair] = done
                for place in range(table.answer_start[pair], table.answer_start[pair + 1]):
                    link = table.answer_links[place]
                    sent = max(done, link_free[link]) + table.answer_bytes / bandwidth
                    link_free[link] = sent
                    if sent < seconds:
                        link_bytes[link, int(sent)] += table.answer_bytes
    return due, delivered, late, link_bytes, delay
