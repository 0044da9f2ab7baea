"""Measures how fast one connection consumes a large set of subscriptions as one group.

The set holds one form of W2's filters: `symbol = ? AND close >= ?`. The consumer acknowledges for all members at
once.
"""

import selectors
import time
from collections.abc import Sequence

import httpx
import pyarrow as pa

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.bulk_registration import register_rows
from culver.bench.fanout.bare_connections import NumberedPayload, renumbered
from culver.bench.fanout.culver_connections import CulverConnection
from culver.bench.fanout.saturation import no_garbage_collection
from culver.bench.workloads.quotes import QuotesWorkload, market

_SET = "fanout"
_FILTER = "symbol = ? AND close >= ?"
_STALL_SECONDS = 60.0


def register_set(http: httpx.Client, count: int, seed: int) -> None:
    """Make the set, with the symbols and bounds that W2 draws."""
    drawn = QuotesWorkload().drawn(count, seed)
    symbols = pa.array(market().symbols).take(pa.array(drawn.symbols))
    register_rows(http, _SET, _FILTER, {"symbol": symbols, "close": pa.array(drawn.values["upper_close"])})


def follow_set(connection: CulverConnection, count: int) -> None:
    """Follow the set as one group."""
    followed = connection.ask([{"op": "follow", "set": _SET}])[0]
    if followed.count != count:
        raise BenchmarkFailed(f"the site follows {followed.count:,} subscriptions of {count:,}")


def measure_set(
    publisher: CulverConnection,
    consumer: CulverConnection,
    payloads: Sequence[NumberedPayload],
    *,
    outstanding: int,
    warm_up_seconds: float,
    seconds: float,
) -> float:
    """Publish the payloads in turn, again and again; returns notifications a second. `outstanding` events are under
    way at most: an event is under way until the consumer has it or a later one."""
    published = notifications = 0
    arrived = -1  # the highest number of an event that has arrived
    with selectors.DefaultSelector() as selector, no_garbage_collection():
        selector.register(consumer, selectors.EVENT_READ, consumer)
        selector.register(publisher, selectors.EVENT_READ, publisher)
        count_from = time.perf_counter() + warm_up_seconds
        first: tuple[float, int] | None = None
        while True:
            room = outstanding - (published - arrived - 1)
            if room >= (outstanding + 1) // 2:
                publisher.publish(
                    [renumbered(payloads[i % len(payloads)], i) for i in range(published, published + room)]
                )
                published += room
            ready = selector.select(_STALL_SECONDS)
            if not ready:
                raise BenchmarkFailed(f"nothing arrived for {_STALL_SECONDS:.0f} s")
            for key, _ in ready:
                for number, subscriptions in key.data.arrivals():
                    arrived = max(arrived, number)
                    notifications += subscriptions
            now = time.perf_counter()
            if first is None and now >= count_from:
                first = now, notifications
            elif first is not None and now >= first[0] + seconds:
                return (notifications - first[1]) / (now - first[0])
