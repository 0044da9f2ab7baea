"""Measures throughput from end to end: publishes events as fast as they are acknowledged, until all are delivered."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from culver.bench import wire_client
from culver.bench.site_process import SiteProcess, deliveries

BATCH = 500
IN_FLIGHT = 8
_POLL_SECONDS = 0.02
_LIMIT_SECONDS = 600.0


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


def measure_throughput(site: SiteProcess, events: Sequence[dict[str, Any]]) -> Throughput:
    """Publish in batches of 500, eight of them in flight, and wait until the site has delivered everything."""
    encoded = wire_client.encode(events)
    messages = [
        wire_client.publish_message(at // BATCH, encoded[at : at + BATCH])
        for at in range(0, len(encoded), BATCH)
    ]
    started, published, end = asyncio.run(_publish(site.websocket_url, messages))
    with site.client() as http:
        delivered = [now for now, _ in deliveries(http, end, _POLL_SECONDS, _LIMIT_SECONDS)][-1]
    return Throughput(len(events), published - started, delivered - started)


async def _publish(url: str, messages: Sequence[str]) -> tuple[float, float, int]:
    """Publish all messages; returns when this began and ended, and the log position behind the last event."""
    end = 0
    async with wire_client.open_connection(url) as publisher:
        started = time.perf_counter()
        for acknowledged in range(-IN_FLIGHT, len(messages)):
            if acknowledged >= 0:
                while (message := await publisher.receive()).op != "published":
                    pass
                end = max(end, message.next_offset)
            if acknowledged + IN_FLIGHT < len(messages):
                await publisher.send(messages[acknowledged + IN_FLIGHT])
        return started, time.perf_counter(), end
