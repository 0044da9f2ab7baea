"""Measures end-to-end latency at a steady rate, in an open loop.

Event i is due at `start + i / rate`, whatever happened to the events before. Its latency counts from that moment,
not from when it was really sent, until the subscriber has it: a stall of the site, or of this process, shows in
every event that it delayed.
"""

import asyncio
import contextlib
import gc
import os
import selectors
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.bench import wire_client
from culver.bench.bench_frame import BenchmarkFailed

_FLOOR_BYTES = 500  # of an event in the log, about
_ROOM = bytes(1 << 20)
_SHORTEST_WAIT_SECONDS = 0.0005  # between messages: as many as may be due then are in one
_MAX_BATCH = 500  # events in one message, however many a stall has made due


@dataclass(frozen=True, slots=True)
class LatencyPlan:
    """How to measure. `warm_up_seconds` of the same traffic come first and do not count. The run fails if the
    last events take longer than `drain_limit_seconds` to arrive. Every `sampled`-th event matches the subscriber:
    at high rates one subscriber that gets everything would be most of the load. A message goes out once `batch`
    events are due, and the wait for the others counts."""

    rate: int
    seconds: float
    warm_up_seconds: float
    drain_limit_seconds: float = 30.0
    sampled: int = 1
    batch: int = 1

    @property
    def warm_up_events(self) -> int:
        return round(self.rate * self.warm_up_seconds)

    @property
    def events(self) -> int:
        return self.warm_up_events + max(1, round(self.rate * self.seconds))


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of the counted events. `late` is how far behind schedule this process sent them; `delivered`
    includes it."""

    delivered: NDArray[np.float64]
    late: NDArray[np.float64]

    def record(self) -> dict[str, float]:
        p50, p99 = np.percentile(self.delivered, [50, 99])
        return {
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
            "max_ms": round(float(self.delivered.max()), 3),
            "send_late_p99_ms": round(float(np.percentile(self.late, 99)), 3),
        }


def measure_latency(url: str, events: Sequence[dict[str, Any]], plan: LatencyPlan) -> Latency:
    """Publish `plan.events` of the events on one connection and receive the sampled ones on another."""
    # The usual event loops wait for whole milliseconds, rounded up; `select` does not.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(_measure(url, events, plan))


async def _measure(url: str, events: Sequence[dict[str, Any]], plan: LatencyPlan) -> Latency:
    encoded = wire_client.encode_numbered(events[: plan.events], plan.sampled)
    count = len(encoded)
    if count < plan.events:
        raise ValueError(f"{plan.events} events are needed, {count} are there")
    sampled = slice(None, None, plan.sampled)
    received = np.full(count, np.nan)
    received[sampled] = 0.0
    sent = np.zeros(count)
    async with wire_client.open_connection(url) as subscriber, wire_client.open_connection(url) as publisher:
        await subscriber.send(f'{{"op":"subscribe","ref":1,"filter":"{wire_client.SEQUENCE} >= 0"}}')
        while (await subscriber.receive()).op != "subscribed":
            pass
        with _no_garbage_collection():
            start = time.perf_counter() + 0.05
            try:
                async with asyncio.TaskGroup() as tasks:
                    listening = tasks.create_task(_listen(subscriber, received))
                    acknowledging = tasks.create_task(publisher.listen(lambda message: False))
                    await _send_on_schedule(publisher, encoded, sent, start, plan)
                    await asyncio.wait([listening], timeout=plan.drain_limit_seconds)
                    if not listening.done():
                        missing = np.count_nonzero(received == 0.0)
                        raise BenchmarkFailed(
                            f"{missing} of {count} events had not arrived {plan.drain_limit_seconds:.0f} s after the "
                            "last was sent"
                        )
                    acknowledging.cancel()
            except* BenchmarkFailed as failures:
                raise failures.exceptions[0] from None
    due = start + np.arange(count) / plan.rate
    counted = np.flatnonzero(~np.isnan(received))
    counted = counted[counted >= plan.warm_up_events]
    return Latency((received - due)[counted] * 1e3, (sent - due)[counted] * 1e3)


def measure_floor(directory: Path, plan: LatencyPlan) -> NDArray[np.float64]:
    """Measure what the machine itself takes, in milliseconds for each event: the same schedule, with nothing but
    a write to a preallocated file and one `fdatasync` for all events that are due. No durable service can be
    faster on this disk, and the disk's stalls show here as well."""
    count = max(1, round(plan.rate * plan.seconds))
    delivered = np.zeros(count)
    record = b"x" * _FLOOR_BYTES
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file, _no_garbage_collection():
        for _ in range(-(-count * _FLOOR_BYTES // len(_ROOM))):
            file.write(_ROOM)
        os.fsync(file.fileno())
        file.seek(0)
        start = time.perf_counter() + 0.05
        at = 0
        while at < count:
            now = time.perf_counter()
            due = min(count, int((now - start) * plan.rate) + 1) if now >= start else 0
            if due > at:
                file.write(record * (due - at))
                os.fdatasync(file.fileno())
                delivered[at:due] = time.perf_counter()
                at = due
            else:
                time.sleep(max(0.0, start + at / plan.rate - now))
    return (delivered - (start + np.arange(count) / plan.rate)) * 1e3


async def _send_on_schedule(
    publisher: wire_client.WireConnection,
    encoded: list[str],
    sent: NDArray[np.float64],
    start: float,
    plan: LatencyPlan,
) -> None:
    """Send all events that are due in one message."""
    at, count, rate = 0, len(encoded), plan.rate
    while at < count:
        now = time.perf_counter()
        due = min(count, at + _MAX_BATCH, int((now - start) * rate) + 1) if now >= start else 0
        last_of_batch = min(at + plan.batch, count) - 1
        if due > last_of_batch:
            await publisher.send(wire_client.publish_message(at, encoded[at:due]))
            sent[at:due] = now
            at = due
        else:
            await asyncio.sleep(max(_SHORTEST_WAIT_SECONDS, start + last_of_batch / rate - now))


async def _listen(subscriber: wire_client.WireConnection, received: NDArray[np.float64]) -> None:
    """Record when each event arrives for the first time; return once all have."""
    missing = int(np.count_nonzero(received == 0.0))

    def take(message: wire_client.SiteMessage) -> bool:
        nonlocal missing
        now = time.perf_counter()
        for each in message.events:
            number = each.event.bench_sequence
            if received[number] == 0.0:
                received[number] = now
                missing -= 1
        return not missing

    await subscriber.listen(take)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Suspend the garbage collector, whose pauses would count as the site's latency."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
