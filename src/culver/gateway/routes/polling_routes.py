"""Long polling and acknowledgement of durable subscriptions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from culver.delivery import Delivery, Gap
from culver.gateway.api.delivery_encoding import Item, ReceiveLimit, encode, item_members
from culver.gateway.api.request_fields import Fields, Query, offset_within, parse_json
from culver.gateway.gateway_context import Gateway, gateway_of
from culver.gateway.routes.request_bodies import read_body, require_json
from culver.gateway.routes.subscription_routes import durable_registration
from culver.registry import Registration
from culver.roles import Session

_DEFAULT_ITEMS = 100
_MAX_ITEMS = 1_000
_DEFAULT_WAIT_SECONDS = 30.0
_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_ACK_BODY_BYTES = 4_096


async def poll(request: Request) -> Response:
    """What is waiting, or what comes first within the time; empty when the time is up."""
    gateway = gateway_of(request)
    query = Query(request.query_params, ("limit", "wait", "after"))
    limit = query.integer("limit", _DEFAULT_ITEMS, 1, _MAX_ITEMS)
    wait = query.seconds("wait", _DEFAULT_WAIT_SECONDS, gateway.settings.gateway.poll_seconds)
    registration = await durable_registration(request)
    after = query.text("after")
    offset = None if after is None else offset_within(registration.id, after, "after")
    async with gateway.long_request("poll") as interruption:
        watcher = asyncio.create_task(interruption.watch(request.receive))
        try:
            async with _session(gateway, registration, offset) as session:
                items = await _receive(session, limit, wait)
        finally:
            watcher.cancel()
    for item in items:
        if isinstance(item, Gap):
            gateway.metrics.gaps.labels(item.reason).inc()
    gateway.metrics.deliveries.labels("poll").inc(sum(isinstance(item, Delivery) for item in items))
    return Response(encode({"items": [item_members(item) for item in items]}), media_type="application/json")


async def acknowledge(request: Request) -> Response:
    gateway = gateway_of(request)
    Query(request.query_params, ())
    require_json(request.headers)
    fields = Fields(parse_json(await read_body(request, _ACK_BODY_BYTES)))
    text = fields.text("delivery_id")
    fields.close()
    registration = await durable_registration(request)
    offset = offset_within(registration.id, text, "delivery_id")
    async with _session(gateway, registration, None) as session:
        await session.acknowledge(offset)
    return Response(encode({"acknowledged": offset}), media_type="application/json")


async def _receive(session: Session, limit: int, wait: float) -> list[Item]:
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


def _size(items: list[Item]) -> int:
    return sum(len(item.payload) for item in items if isinstance(item, Delivery))


@asynccontextmanager
async def _session(gateway: Gateway, registration: Registration, after: int | None) -> AsyncIterator[Session]:
    session = await gateway.site.sessions.open(registration, after)
    try:
        yield session
    finally:
        await session.close()
