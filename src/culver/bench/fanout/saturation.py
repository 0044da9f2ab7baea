"""Measures what a server delivers at most: one event to all subscribers, with a bounded number of events under way.

One thread publishes and receives, so the server has the other cores. It sends the next events once half of those
under way have arrived everywhere, and every system gets the same schedule. A delivery that is missing at the end
makes the run fail.
"""

import contextlib
import gc
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.fanout.bare_connections import BareConnection, NumberedPayload

_STALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Saturation:
    """Figures of the counted time: after the warm-up, until the publisher stops. `bytes_per_event` is what all
    receivers together got for an event."""

    deliveries_per_second: float
    server_us_per_delivery: float
    bytes_per_event: float


def measure_saturation(
    publisher: BareConnection,
    receivers: Sequence[BareConnection],
    payloads: Sequence[NumberedPayload],
    *,
    deliveries_per_event: int,
    outstanding: int,
    warm_up_seconds: float,
    seconds: float,
    cpu_seconds: Callable[[], float],
) -> Saturation:
    """Publish the payloads in turn, again and again. Every one arrives `deliveries_per_event` times."""
    published = received = 0

    def sample() -> tuple[float, float, int, int]:
        arrived_bytes = sum(receiver.received_bytes for receiver in receivers)
        return time.perf_counter(), cpu_seconds(), received, arrived_bytes

    with selectors.DefaultSelector() as selector, no_garbage_collection():
        for receiver in receivers:
            selector.register(receiver, selectors.EVENT_READ, receiver)
        selector.register(publisher, selectors.EVENT_READ, None)
        count_from = time.perf_counter() + warm_up_seconds
        first: tuple[float, float, int, int] | None = None
        last: tuple[float, float, int, int] | None = None
        while last is None or received < published * deliveries_per_event:
            room = outstanding - (published - received // deliveries_per_event)
            if last is None and room >= (outstanding + 1) // 2:
                publisher.publish(
                    [payloads[(published + i) % len(payloads)] for i in range(room)], by_symbol=False
                )
                published += room
            ready = selector.select(_STALL_SECONDS)
            if not ready:
                missing = published * deliveries_per_event - received
                raise BenchmarkFailed(f"{missing:,} deliveries did not arrive")
            for key, _ in ready:
                if key.data is None:
                    publisher.read()
                else:
                    received += key.data.count()
            now = time.perf_counter()
            if first is None and now >= count_from:
                first = sample()
            elif first is not None and last is None and now >= first[0] + seconds:
                last = sample()
    assert first is not None
    took, cpu, deliveries, arrived_bytes = (end - begin for begin, end in zip(first, last, strict=True))
    if received > published * deliveries_per_event or not deliveries:
        raise BenchmarkFailed(f"{received:,} deliveries of {published:,} events arrived")
    return Saturation(
        deliveries / took, 1e6 * cpu / deliveries, arrived_bytes * deliveries_per_event / deliveries
    )


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Suspend the garbage collector, whose pauses would count as the server's time."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
