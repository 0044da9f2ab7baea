"""Long polling and acknowledgement of durable subscriptions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from culver.delivery import Delivery, DeliveryGap
from culver.gateway.api.delivery_encoding import Received, ReceiveLimit, item_of
from culver.gateway.api.operations import Operations
from culver.gateway.api.request_reader import offset_within
from culver.gateway.gateway_context import Gateway, gateway_of
from culver.gateway.routes.subscription_routes import durable_registration
from culver.messages import Acknowledged, Acknowledgement, Items, PollQuery
from culver.registry import Registration
from culver.roles import Session

_MAX_ANSWER_BYTES = 4 * 1024 * 1024

operations = Operations("receiving", "Long polling and Server-Sent Events")


@operations.add("GET /v1/subscriptions/{id}/events", problems=(307, 409))
async def poll_subscription(request: Request, query: PollQuery) -> Items:
    """Wait for what a durable subscription gets.

    The site caps `wait` at its setting `gateway.poll_seconds`.
    """
    gateway = gateway_of(request)
    registration = await durable_registration(request)
    offset = None if query.after is None else offset_within(registration.id, query.after, "after")
    wait = min(query.wait, gateway.settings.gateway.poll_seconds)
    async with gateway.long_request("poll") as interruption:
        watcher = asyncio.create_task(interruption.watch(request.receive))
        try:
            async with _session(gateway, registration, offset) as session:
                items = await _receive(session, query.limit, wait)
        finally:
            watcher.cancel()
    for item in items:
        if isinstance(item, DeliveryGap):
            gateway.metrics.gaps.labels(item.reason).inc()
    gateway.metrics.deliveries.labels("poll").inc(sum(isinstance(item, Delivery) for item in items))
    return Items(items=[item_of(item) for item in items])


@operations.add("POST /v1/subscriptions/{id}/ack", problems=(307, 409), max_body_bytes=4_096)
async def acknowledge(request: Request, body: Acknowledgement) -> Acknowledged:
    """Be done with everything up to a delivery."""
    registration = await durable_registration(request)
    offset = offset_within(registration.id, body.delivery_id, "delivery_id")
    async with _session(gateway_of(request), registration, None) as session:
        await session.acknowledge(offset)
    return Acknowledged(acknowledged=offset)


async def _receive(session: Session, limit: int, wait: float) -> list[Received]:
    """Waits for the first items only, then takes what else is there, up to the limits in count and bytes."""
    chunk = ReceiveLimit()
    items = await session.receive(min(limit, chunk.value), wait)
    chunk.observe(items)
    size = _size(items)
    while items and len(items) < limit and size < _MAX_ANSWER_BYTES:
        more = await session.receive(min(limit - len(items), chunk.value), 0)
        if not more:
            break
        chunk.observe(more)
        size += _size(more)
        items += more
    return items


def _size(items: list[Received]) -> int:
    return sum(len(item.payload) for item in items if isinstance(item, Delivery))


@asynccontextmanager
async def _session(gateway: Gateway, registration: Registration, after: int | None) -> AsyncIterator[Session]:
    session = await gateway.site.sessions.open(registration, after)
    try:
        yield session
    finally:
        await session.close()
