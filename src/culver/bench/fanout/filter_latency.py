"""Measures latency with many filters at a steady rate, in an open loop.

Event i is due at `start + i / rate`, whatever happened before, and its latency counts from then until a subscriber
has decoded it and knows that it matches. It counts once for each filter that it matches. Events that a stall has
made due go out in one piece.
"""

import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.fanout.bare_connections import BareConnection, NumberedPayload
from culver.bench.fanout.saturation import no_garbage_collection

_DRAIN_SECONDS = 30.0
_MAX_BATCH = 100  # events in one piece


@dataclass(frozen=True, slots=True)
class FilterLatency:
    """`bytes_per_event` is what all receivers together got for an event; `late_p99_ms` is how far behind
    schedule this process sent events, a part of their latency that the server does not cause."""

    p50_ms: float
    p99_ms: float
    bytes_per_event: float
    deliveries: int
    late_p99_ms: float


def measure_filter_latency(
    publisher: BareConnection,
    receivers: Sequence[BareConnection],
    payloads: Sequence[NumberedPayload],
    expected: int,
    *,
    rate: int,
    warm_up_events: int,
) -> FilterLatency:
    """Publish the payloads, which are numbered from 0, and wait until they have arrived for `expected` filters
    altogether. The first `warm_up_events` do not count."""
    count = len(payloads)
    sent_at = np.zeros(count)
    numbers: list[int] = []
    times: list[float] = []
    weights: list[int] = []
    received, sent, bytes_before = 0, 0, 0
    # The usual selector waits for whole milliseconds, rounded up; `select` does not.
    with selectors.SelectSelector() as selector, no_garbage_collection():
        for receiver in receivers:
            selector.register(receiver, selectors.EVENT_READ, receiver)
        selector.register(publisher, selectors.EVENT_READ, None)
        start = time.perf_counter() + 0.05
        while sent < count or received < expected:
            now = time.perf_counter()
            due = min(count, sent + _MAX_BATCH, int((now - start) * rate) + 1) if now >= start else 0
            if due > sent:
                if sent < warm_up_events <= due:
                    bytes_before = sum(each.received_bytes for each in receivers)
                publisher.publish(payloads[sent:due], by_symbol=True)
                sent_at[sent:due] = now
                sent = due
            wait = start + sent / rate - time.perf_counter() if sent < count else _DRAIN_SECONDS
            ready = selector.select(max(0.0, wait))
            if not ready and sent == count:
                raise BenchmarkFailed(f"{expected - received:,} of {expected:,} deliveries did not arrive")
            for key, _ in ready:
                if key.data is None:
                    publisher.read()
                    continue
                arrivals = key.data.arrivals()
                now = time.perf_counter()
                for number, subscriptions in arrivals:
                    numbers.append(number)
                    times.append(now)
                    weights.append(subscriptions)
                    received += subscriptions
    if received != expected:
        raise BenchmarkFailed(f"{received:,} deliveries arrived, and {expected:,} were due")
    arrived_bytes = sum(each.received_bytes for each in receivers) - bytes_before
    which = np.array(numbers)
    due_at = start + np.arange(count) / rate
    latency = np.repeat((np.array(times) - due_at[which]) * 1e3, weights)
    counted = latency[np.repeat(which, weights) >= warm_up_events]
    p50, p99 = np.percentile(counted, [50, 99])
    late = float(np.percentile(sent_at - due_at, 99)) * 1e3
    return FilterLatency(float(p50), float(p99), arrived_bytes / (count - warm_up_events), len(counted), late)
