"""Server-Sent Events: `/v1/stream` for a live subscription, `/v1/subscriptions/{id}/stream` for a durable one.

event: subscribed      data: {"subscription", "since"}
event: event           id: DELIVERY_ID, data: ITEM
event: gap             data: ITEM
event: ended           data: {"subscription"}: it was removed or has expired; the stream ends
: heartbeat            every 15 seconds without anything else
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from culver.delivery import Delivery
from culver.errors import CulverError, NotFound
from culver.gateway.api.delivery_encoding import Received, ReceiveLimit, batches, encode, item_of
from culver.gateway.api.operations import Operations
from culver.gateway.api.request_reader import check_delivery_id, offset_within
from culver.gateway.gateway_context import Gateway, Interrupted, gateway_of
from culver.gateway.problems import encode_problem, problem_document
from culver.gateway.routes.subscription_routes import durable_registration, live_spec, open_live
from culver.messages import StreamEnd, StreamQuery, StreamStart
from culver.model import DELIVERY_ID
from culver.roles import Session

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_LAST_ID = "last-event-id"
_FAREWELL_SECONDS = 0.5

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


@operations.add("GET /v1/stream", problems=(403,), **_STREAM)
async def stream_filter(request: Request, query: StreamQuery) -> Response:
    """Stream a live subscription as Server-Sent Events.

    The subscription lives as long as the connection.
    """
    gateway = gateway_of(request)
    last = request.headers.get(_LAST_ID)
    after = check_delivery_id(last, _LAST_ID)[1] if last else None
    spec = await live_spec(gateway, gateway.site.sessions.new_live_id(), query.filter, query.scheme)
    return EventStream(gateway, await open_live(gateway.site, spec, after))


@operations.add("GET /v1/subscriptions/{id}/stream", problems=(307, 409), **_STREAM)
async def stream_subscription(request: Request) -> Response:
    """Stream a durable subscription as Server-Sent Events.

    `Last-Event-ID` acknowledges, and the stream goes on after it.
    """
    gateway = gateway_of(request)
    registration = await durable_registration(request)
    last = request.headers.get(_LAST_ID)
    after = offset_within(registration.id, last, _LAST_ID) if last else None
    session = await gateway.site.sessions.open(registration, after)
    try:
        if after is not None:
            await session.acknowledge(after)
    except BaseException:
        await session.close()
        raise
    return EventStream(gateway, session)


class EventStream(Response):
    """Sends what a session receives until the client is gone, the subscription ends or the site stops. Owns
    the session. A client that reads slowly makes it receive slowly: one batch is in memory at a time."""

    media_type = "text/event-stream"

    def __init__(self, gateway: Gateway, session: Session) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._gateway = gateway
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, farewell = False, b""
        try:
            async with self._gateway.long_request("sse") as interruption:
                watcher = asyncio.create_task(interruption.watch(receive))
                try:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    await self._pump(send)
                finally:
                    watcher.cancel()
        except Interrupted:
            return
        except CulverError as exc:
            if not started:
                raise
            _logger.info("an event stream ends: %s", exc.message)
            farewell = _message("error", encode_problem(problem_document(exc)))
        except Exception:
            _logger.exception("an event stream failed")
        finally:
            await self._session.close()
        # End the stream, unless the client does not even read that.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await send({"type": "http.response.body", "body": farewell, "more_body": False})

    async def _pump(self, send: Send) -> None:
        registration = self._session.registration
        start = StreamStart(registration.id, registration.since)
        await _send(send, b"retry: 2000\n" + _message("subscribed", encode(start)))
        limit = ReceiveLimit()
        while True:
            try:
                items = await self._session.receive(limit.value, self._gateway.heartbeat_seconds)
            except NotFound:
                await _send(send, _message("ended", encode(StreamEnd(registration.id))))
                return
            if not items:
                await _send(send, b": heartbeat\n\n")
                continue
            limit.observe(items)
            await self._send_items(send, items)

    async def _send_items(self, send: Send, items: Sequence[Received]) -> None:
        metrics = self._gateway.metrics
        for batch in batches(items):
            if isinstance(batch, list):
                await _send(send, b"".join(map(_delivery_message, batch)))
                metrics.deliveries.labels("sse").inc(len(batch))
            else:
                await _send(send, _message("gap", encode(item_of(batch))))
                metrics.gaps.labels(batch.reason).inc()


def _delivery_message(delivery: Delivery) -> bytes:
    data = encode(item_of(delivery))
    if b"\n" in data or b"\r" in data:
        # Line ends between JSON tokens mean nothing to JSON and everything to this format.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return b"id: %b\n%b" % (delivery.id.encode(), _message("event", data))


def _message(event: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
