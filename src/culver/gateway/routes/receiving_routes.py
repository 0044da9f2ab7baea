"""What subscribers receive over HTTP: long polling, acknowledgement, and Server-Sent Events.

The events of `/v1/stream`, for a live subscription, and `/v1/subscriptions/{id}/stream`, for a durable one:

    event: subscribed      data: {"subscription", "since"}
    event: event           id: DELIVERY_ID, data: ITEM
    event: gap             data: ITEM
    event: ended           data: {"subscription"}: it was removed or has expired; the stream ends
    : heartbeat            every 15 seconds without anything else
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from culver.delivery import Delivery, DeliveryGap, MergedItem
from culver.errors import CulverError, NotFound
from culver.gateway.api.delivery_encoding import Received, ReceiveLimit, batches, encode, item_of, size_of
from culver.gateway.api.operations import Operations
from culver.gateway.api.request_reader import check_delivery_id, offset_within
from culver.gateway.gateway_context import Gateway, Interrupted, gateway_of
from culver.gateway.problems import encode_problem, problem_document
from culver.gateway.routes.subscription_routes import (
    durable_registration,
    live_spec,
    open_live,
    warnings_of,
)
from culver.messages import (
    Acknowledged,
    Acknowledgement,
    Items,
    PollQuery,
    StreamEnd,
    StreamQuery,
    StreamStart,
    Warnings,
)
from culver.model import DELIVERY_ID
from culver.registry import Registration
from culver.roles import Session

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
LAST_ID = "last-event-id"
RETRY = b"retry: 2000\n"
HEARTBEAT = b": heartbeat\n\n"
_FAREWELL_SECONDS = 0.5

Item = TypeVar("Item", bound=Received | MergedItem)

_logger = logging.getLogger(__name__)

operations = Operations("receiving", "Long polling and Server-Sent Events")
_MESSAGES = "`subscribed`, `event` (with the delivery id), `gap`, `ended` and `error`; a comment as heartbeat"
_STREAM: dict[str, Any] = {
    "result": "A stream",
    "answer": {"text/event-stream": {"schema": {"type": "string", "description": _MESSAGES}}},
    "parameters": (
        {
            "name": "Last-Event-ID",
            "in": "header",
            "schema": {"type": "string", "pattern": DELIVERY_ID},
            "description": "The last delivery id seen before a reconnection",
        },
    ),
}


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
                items = await receive_up_to(session.receive, query.limit, wait)
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


@operations.add("GET /v1/stream", problems=(403,), **_STREAM)
async def stream_filter(request: Request, query: StreamQuery) -> Response:
    """Stream a live subscription as Server-Sent Events.

    The subscription lives as long as the connection.
    """
    gateway = gateway_of(request)
    last = request.headers.get(LAST_ID)
    after = check_delivery_id(last, LAST_ID)[1] if last else None
    spec = await live_spec(gateway, gateway.site.sessions.new_live_id(), query.filter, query.scheme)
    return EventStream(gateway, await open_live(gateway.site, spec, after), warnings_of(spec.predicate))


@operations.add("GET /v1/subscriptions/{id}/stream", problems=(307, 409), **_STREAM)
async def stream_subscription(request: Request) -> Response:
    """Stream a durable subscription as Server-Sent Events.

    `Last-Event-ID` acknowledges, and the stream goes on after it.
    """
    gateway = gateway_of(request)
    registration = await durable_registration(request)
    last = request.headers.get(LAST_ID)
    after = offset_within(registration.id, last, LAST_ID) if last else None
    session = await gateway.site.sessions.open(registration, after)
    try:
        if after is not None:
            await session.acknowledge(after)
    except BaseException:
        await session.close()
        raise
    return EventStream(gateway, session)


async def receive_up_to(
    receive: Callable[[int, float | None], Awaitable[list[Item]]], limit: int, wait: float
) -> list[Item]:
    """Waits for the first items only, then takes what else is there, up to the limits in count and bytes."""
    chunk = ReceiveLimit()
    items = await receive(min(limit, chunk.value), wait)
    chunk.observe(items)
    size = size_of(items)
    while items and len(items) < limit and size < _MAX_ANSWER_BYTES:
        more = await receive(min(limit - len(items), chunk.value), 0)
        if not more:
            break
        chunk.observe(more)
        size += size_of(more)
        items += more
    return items


@asynccontextmanager
async def _session(gateway: Gateway, registration: Registration, after: int | None) -> AsyncIterator[Session]:
    session = await gateway.site.sessions.open(registration, after)
    try:
        yield session
    finally:
        await session.close()


class SentEvents(Response, ABC):
    """Sends Server-Sent Events until the client is gone, `pump` ends or the site stops."""

    media_type = "text/event-stream"

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self.gateway = gateway

    @abstractmethod
    async def pump(self, send: Send) -> None:
        """Send messages until there are no more."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of what the messages come from."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, farewell = False, b""
        try:
            async with self.gateway.long_request("sse") as interruption:
                watcher = asyncio.create_task(interruption.watch(receive))
                try:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    await self.pump(send)
                finally:
                    watcher.cancel()
        except Interrupted:
            return
        except CulverError as exc:
            if not started:
                raise
            _logger.info("an event stream ends: %s", exc.message)
            farewell = sent_event("error", encode_problem(problem_document(exc)))
        except Exception:
            _logger.exception("an event stream failed")
        finally:
            await self.close()
        # End the stream, unless the client does not even read that.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await send({"type": "http.response.body", "body": farewell, "more_body": False})


class EventStream(SentEvents):
    """Sends what a session receives, until the subscription ends. Owns the session. A client that reads slowly makes
    it receive slowly: one batch is in memory at a time."""

    def __init__(self, gateway: Gateway, session: Session, warnings: Warnings | UnsetType = UNSET) -> None:
        super().__init__(gateway)
        self._session = session
        self._warnings = warnings

    async def close(self) -> None:
        await self._session.close()

    async def pump(self, send: Send) -> None:
        registration = self._session.registration
        start = StreamStart(registration.id, registration.since, self._warnings)
        await send_part(send, RETRY + sent_event("subscribed", encode(start)))
        limit, metrics = ReceiveLimit(), self.gateway.metrics
        while True:
            try:
                items = await self._session.receive(limit.value, self.gateway.heartbeat_seconds)
            except NotFound:
                await send_part(send, sent_event("ended", encode(StreamEnd(registration.id))))
                return
            if not items:
                await send_part(send, HEARTBEAT)
                continue
            limit.observe(items)
            for batch in batches(items):
                if isinstance(batch, list):
                    await send_part(send, b"".join(map(_delivery_message, batch)))
                    metrics.deliveries.labels("sse").inc(len(batch))
                else:
                    await send_part(send, sent_event("gap", encode(item_of(batch))))
                    metrics.gaps.labels(batch.reason).inc()


def _delivery_message(delivery: Delivery) -> bytes:
    return event_message(delivery.id, encode(item_of(delivery)))


def event_message(id_: str, data: bytes) -> bytes:
    if b"\n" in data or b"\r" in data:
        # Line ends between JSON tokens mean nothing to JSON and everything to this format.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return b"id: %b\n%b" % (id_.encode(), sent_event("event", data))


def sent_event(event: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


async def send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
