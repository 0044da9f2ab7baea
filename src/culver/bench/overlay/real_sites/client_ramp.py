"""The clients of a run on real brokers: live subscribers that count, and publishers at a growing or constant rate.

Message i is due at a time that follows from the rate, whatever happened to those before it (an open loop). Messages
go out one by one, as those of the paper's clients do, and a client that falls behind sends several at once. All
clients live in this process and share its machine with the brokers.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from culver.bench import wire_client
from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.overlay.client_workload import WorkloadDraw
from culver.bench.overlay.real_sites.real_brokers import RealBrokers

_WAIT_SECONDS = 0.001
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ramp:
    """Messages a second of all clients: `first` at the beginning and `last` at the end, linear in between."""

    first: float
    last: float
    seconds: float

    @property
    def count(self) -> int:
        return max(1, round((self.first + self.last) / 2 * self.seconds))

    def times(self) -> NDArray[np.float64]:
        """When each message is due, ascending."""
        numbers = np.arange(self.count)
        growth = (self.last - self.first) / self.seconds
        if abs(growth) < 1e-9:
            return numbers / self.first
        # The rate's integral, first * t + growth * t^2 / 2, reaches the message's number.
        times: NDArray[np.float64] = (np.sqrt(self.first**2 + 2 * growth * numbers) - self.first) / growth
        return times


@dataclass(slots=True)
class RampResult:
    """Counts by second, for the time of the ramp and one second more; `delivered` is by the second of arrival.
    `link_use` is that of the busiest link, as bytes in each second."""

    published: list[int]
    due: list[int]
    delivered: list[int]
    behind_seconds: float
    cpu_seconds: list[float] = field(default_factory=list)
    link_use: list[float] = field(default_factory=list)
    events_per_packet: float = 0.0

    @property
    def total_due(self) -> int:
        return sum(self.due)

    @property
    def undelivered_percent(self) -> float:
        """Deliveries that had not come one second after the ramp."""
        return 100 * max(0, self.total_due - sum(self.delivered)) / max(1, self.total_due)


def run_ramp(brokers: RealBrokers, draw: WorkloadDraw, ramp: Ramp) -> RampResult:
    """Raises BenchmarkFailed if messages are lost: all must come in the end."""
    return asyncio.run(_run(brokers, draw, ramp))


async def _run(brokers: RealBrokers, draw: WorkloadDraw, ramp: Ramp) -> RampResult:
    count = len(brokers.sites)
    payloads = [payload.decode() for payload in draw.payloads]
    seconds = int(np.ceil(ramp.seconds)) + 1
    delivered = np.zeros(seconds + 1, np.int64)
    start = float("inf")

    def take(message: wire_client.SiteMessage) -> bool:
        if message.deliveries:
            second = max(0, int(time.perf_counter() - start))
            delivered[min(second, seconds)] += message.deliveries
        return False

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        listening = []
        for client, text in enumerate(draw.texts):
            url = brokers.sites[client % count].websocket_url
            connection = await stack.enter_async_context(wire_client.open_connection(url))
            await connection.send(_subscribe_message(text))
            while (await connection.receive()).op != "subscribed":
                pass
            listening.append(tasks.create_task(connection.listen(take)))
        publishers = []
        for site in brokers.sites:
            publisher = await stack.enter_async_context(wire_client.open_connection(site.websocket_url))
            publishers.append(publisher)
            listening.append(tasks.create_task(publisher.listen(lambda message: False)))
        if count > 1:
            await asyncio.to_thread(brokers.wait_until_in_effect)
        times = ramp.times()
        chosen = np.random.default_rng(1).integers(len(payloads), size=len(times))
        due = draw.spread(count).matched[chosen]
        cpu = brokers.cpu_seconds()
        before = await asyncio.to_thread(brokers.events_and_packets) if count > 1 else (0, 0)
        start = time.perf_counter() + 0.05
        watching = tasks.create_task(_watch_links(brokers, start, seconds)) if count > 1 else None
        sending = [
            tasks.create_task(
                _send(
                    publisher, [payloads[each] for each in chosen[place::count]], times[place::count], start
                )
            )
            for place, publisher in enumerate(publishers)
        ]
        behind = [await each for each in sending]
        await _until(lambda: time.perf_counter() >= start + seconds, seconds + 1)
        link_use = await watching if watching is not None else []
        await _until(lambda: int(delivered.sum()) >= int(due.sum()), _DRAIN_SECONDS)
        missing = int(due.sum()) - int(delivered.sum())
        after = await asyncio.to_thread(brokers.events_and_packets) if count > 1 else (0, 0)
        for each in listening:
            each.cancel()
    if missing > 0:
        raise BenchmarkFailed(f"{missing} of {int(due.sum())} deliveries did not come")
    return RampResult(
        np.bincount(times.astype(int), minlength=seconds).tolist(),
        np.bincount(times.astype(int), due, minlength=seconds).astype(int).tolist(),
        delivered[:seconds].tolist(),
        max(behind),
        [now - then for now, then in zip(brokers.cpu_seconds(), cpu, strict=True)],
        link_use,
        (after[0] - before[0]) / max(1, after[1] - before[1]),
    )


async def _send(
    publisher: wire_client.WireConnection,
    payloads: Sequence[str],
    times: NDArray[np.float64],
    start: float,
) -> float:
    """Send each message when it is due. Returns how far behind the sender was, at most."""
    at, behind = 0, 0.0
    while at < len(payloads):
        now = time.perf_counter() - start
        end = int(np.searchsorted(times, now, "right"))
        for number in range(at, end):
            await publisher.send(wire_client.publish_message(number, payloads[number : number + 1]))
        if end > at:
            behind = max(behind, now - float(times[at]))
            at = end
        await asyncio.sleep(_WAIT_SECONDS)
    return behind


async def _watch_links(brokers: RealBrokers, start: float, seconds: int) -> list[float]:
    """The bytes that the busiest link has sent in each second, one direction of it."""
    use: list[float] = []
    before, then = await asyncio.to_thread(brokers.bytes_on_links), time.perf_counter()
    for second in itertools.count(1):
        await asyncio.sleep(max(0.0, start + second - time.perf_counter()))
        after, now = await asyncio.to_thread(brokers.bytes_on_links), time.perf_counter()
        use.append(max(after[link] - before.get(link, 0) for link in after) / (now - then))
        before, then = after, now
        if second >= seconds:
            break
    return use


async def _until(is_done: Callable[[], bool], limit_seconds: float) -> None:
    deadline = time.perf_counter() + limit_seconds
    while not is_done() and time.perf_counter() < deadline:  # noqa: ASYNC110  (a clock tells nobody)
        await asyncio.sleep(0.01)


def _subscribe_message(text: str) -> str:
    return f'{{"op":"subscribe","ref":1,"filter":"{text}"}}'
