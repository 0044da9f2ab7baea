"""Measures throughput from end to end: publishes events as fast as they are acknowledged, until all are delivered."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from culver.bench import wire_client
from culver.bench.bench_frame import BenchmarkFailed

BATCH = 500
IN_FLIGHT = 8
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Throughput:
    """`publish_seconds` lasts until the last acknowledgement, `deliver_seconds` until every event is in all its
    mailboxes; both start with the first byte sent."""

    events: int
    publish_seconds: float
    deliver_seconds: float

    def record(self) -> dict[str, float]:
        return {
            "events_per_second": round(self.events / self.deliver_seconds, 1),
            "publish_events_per_second": round(self.events / self.publish_seconds, 1),
        }


async def measure_throughput(
    site_url: str,
    websocket_url: str,
    events: Sequence[dict[str, Any]],
    *,
    deliver_limit_seconds: float = 600.0,
) -> Throughput:
    """Publish in batches of 500, eight of them in flight, and wait until the site has delivered everything.

    The run fails after `deliver_limit_seconds` without progress."""
    encoded = wire_client.encode(events)
    messages = [
        wire_client.publish_message(at // BATCH, encoded[at : at + BATCH])
        for at in range(0, len(encoded), BATCH)
    ]
    async with (
        httpx.AsyncClient(base_url=site_url, trust_env=False, timeout=30.0) as http,
        wire_client.open_connection(websocket_url) as publisher,
    ):
        started = time.perf_counter()
        end = await _publish(publisher, messages)
        published = time.perf_counter()
        await _wait_until_delivered(http, end, deliver_limit_seconds)
        delivered = time.perf_counter()
    return Throughput(len(events), published - started, delivered - started)


async def _publish(publisher: wire_client.WireConnection, messages: Sequence[str]) -> int:
    """Publish all messages; returns the log position behind the last event."""
    end, in_flight = 0, 0
    for message in messages:
        if in_flight == IN_FLIGHT:
            end = max(end, (await _acknowledgement(publisher)).next_offset)
            in_flight -= 1
        await publisher.send(message)
        in_flight += 1
    for _ in range(in_flight):
        end = max(end, (await _acknowledgement(publisher)).next_offset)
    return end


async def _acknowledgement(publisher: wire_client.WireConnection) -> wire_client.SiteMessage:
    while (message := await publisher.receive()).op != "published":
        pass
    return message


async def _wait_until_delivered(http: httpx.AsyncClient, end: int, limit_seconds: float) -> None:
    delivered, progress_at = -1, time.perf_counter()
    while delivered < end:
        status = (await http.get("/readyz")).json()
        now = time.perf_counter()
        if status["delivered_offset"] > delivered:
            delivered, progress_at = status["delivered_offset"], now
        elif now - progress_at > limit_seconds:
            raise BenchmarkFailed(f"the site stopped delivering at {delivered} of {end}")
        if delivered < end:
            await asyncio.sleep(_POLL_SECONDS)
