"""Reading by offset: the history of the log, and what waits in a mailbox. Neither moves anybody's cursor.

A page comes as JSON, or as an Arrow stream for a client that asks for it:

    offset   received               event     i:price   r:price   s:symbol
    int64    timestamp[us, UTC]     string    int64     double    string

`event` is the JSON. An attribute has one column for each kind of value that the page has of it, named as in
`model.columns`; a timestamp is in microseconds. The metadata of the schema has `next`.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from culver.delivery import DeliveryGap, HistoryPage, Waiting
from culver.errors import Gone, InvalidRequest, Unavailable
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.operations import JSON, Operations
from culver.gateway.api.request_reader import MAX_OFFSET
from culver.gateway.gateway_context import Gateway, gateway_of
from culver.gateway.routes.set_routes import ARROW_STREAM
from culver.gateway.routes.subscription_routes import durable_registration, parse_filter
from culver.messages import (
    GapItem,
    LogPageQuery,
    LogQuery,
    LogRange,
    MailboxPageQuery,
    MailboxPart,
    MailboxQuery,
    StoredEvent,
    StoredEvents,
)
from culver.model.columns import PAYLOAD, RECEIVED, attribute, attributes, received_times
from culver.model.timestamps import parse_timestamp
from culver.registry import Registration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

operations = Operations("log", "Reading by offset")
_PAGE: dict[str, Any] = {
    "answer": {
        JSON: {"schema": {"$ref": "#/components/schemas/StoredEvents"}},
        ARROW_STREAM: {
            "schema": {
                "type": "string",
                "description": "An Arrow IPC stream with the columns offset, received ...",
            }
        },
    },
    "messages": (StoredEvents,),
    "result": "Events in the order of the log",
}


@operations.add("GET /v1/log")
async def show_log(request: Request, query: LogQuery) -> LogRange:
    """Tell which events the log has, and where those of a time begin."""
    history = gateway_of(request).site.history
    bounds = await history.bounds()
    if query.time is None:
        return LogRange(first_offset=bounds.first_offset, next_offset=bounds.next_offset)
    try:
        moment = parse_timestamp(query.time)
    except ValueError as exc:
        raise InvalidRequest(str(exc), field="time") from exc
    offset = await history.offset_at(moment.microseconds)
    return LogRange(
        first_offset=bounds.first_offset, next_offset=max(bounds.next_offset, offset), offset=offset
    )


@operations.add("GET /v1/log/events", problems=(410,), **_PAGE)
async def read_log(request: Request, query: LogPageQuery) -> Response:
    """Read events of the log, whoever they are for.

    With a filter, only those that match it. The log keeps what some mailbox still needs.
    """
    gateway = gateway_of(request)
    predicate = None if query.filter is None else await parse_filter(gateway, query.filter)
    _check_order(query.start, query.end)
    end = MAX_OFFSET if query.end is None else query.end
    page = await gateway.site.history.read(query.start, end, query.limit, predicate)
    return await _page(request, query, page)


@operations.add("GET /v1/subscriptions/{id}/mailbox", problems=(307, 409, 410))
async def show_mailbox(request: Request, query: MailboxQuery) -> MailboxPart:
    """Tell what waits in a mailbox, without its events.

    Without `from`, from the first unacknowledged delivery on. Without `to`, up to and including the last delivery.
    The site caps `wait` at its setting `gateway.poll_seconds`.
    """
    gateway = gateway_of(request)
    registration = await durable_registration(request)
    part = _part(gateway, registration, query)
    wait = min(query.wait, gateway.settings.gateway.poll_seconds)
    if wait > 0 and query.end is None and part.end == part.start:
        async with gateway.long_request("poll") as interruption:
            watcher = asyncio.create_task(interruption.watch(request.receive))
            session = await gateway.site.sessions.open(registration, part.start - 1)
            try:
                await session.receive(1, wait)
            finally:
                watcher.cancel()
                await session.close()
        part = _part(gateway, registration, query)
    return part


@operations.add("GET /v1/subscriptions/{id}/mailbox/events", problems=(307, 409, 410), **_PAGE)
async def read_mailbox(request: Request, query: MailboxPageQuery) -> Response:
    """Read a range of a mailbox, as often as necessary until it is acknowledged."""
    gateway = gateway_of(request)
    registration = await durable_registration(request)
    waiting = _waiting(gateway, registration, query.start, query.end, query.limit)
    page = await gateway.site.history.pick(waiting.offsets)
    if not waiting.offsets or page.next > waiting.offsets[-1]:
        end = waiting.end if query.end is None else min(waiting.end, query.end)
        page = replace(page, next=max(end, query.start))
    return await _page(request, query, page, waiting.gaps)


def _part(gateway: Gateway, registration: Registration, query: MailboxQuery) -> MailboxPart:
    cursor = gateway.site.sessions.waiting(registration, 0, 1).cursor
    start = cursor + 1 if query.start is None else query.start
    waiting = _waiting(gateway, registration, start, query.end, query.limit)
    offsets = waiting.offsets
    if query.end is None:
        end = max([start, *(each + 1 for each in offsets[-1:]), *(each.end for each in waiting.gaps)])
    else:
        end = min(waiting.end, query.end)
    return MailboxPart(
        start=start,
        end=end,
        count=len(offsets),
        bounds=[start, *offsets[query.part :: query.part], end],
        acknowledged=cursor + 1,
        complete=waiting.frontier,
        gaps=[_gap(each) for each in waiting.gaps],
    )


def _waiting(
    gateway: Gateway, registration: Registration, start: int, end: int | None, limit: int
) -> Waiting:
    """What waits in `[start, end)`. Raises Gone where some of it is acknowledged, and Unavailable where some of it is
    not matched: a site that was killed has to match its latest events again, and would seem to have fewer."""
    _check_order(start, end)
    waiting = gateway.site.sessions.waiting(registration, start, limit)
    if start <= waiting.cursor:
        raise Gone(
            f"everything up to offset {waiting.cursor} is acknowledged and no longer in the mailbox of "
            f"{registration.id!r}",
            field="from",
            first_offset=waiting.cursor + 1,
        )
    if end is None:
        return waiting
    if end > waiting.end == max(start, waiting.frontier):
        raise Unavailable(f"events are matched up to offset {waiting.frontier} at the moment; ask again")
    return replace(
        waiting,
        offsets=waiting.offsets[: bisect_left(waiting.offsets, end)],
        gaps=[each for each in waiting.gaps if each.start < end],
    )


def _check_order(start: int, end: int | None) -> None:
    if end is not None and end < start:
        raise InvalidRequest(f"to ({end}) lies before from ({start})", field="to")


async def _page(
    request: Request, query: MailboxPageQuery, page: HistoryPage, gaps: Sequence[DeliveryGap] = ()
) -> Response:
    found = list(gaps)
    if page.lost is not None:
        found.append(DeliveryGap("", *page.lost, None, "unavailable"))
    items = [_gap(each) for each in found]
    if ARROW_STREAM in request.headers.get("accept", ""):
        return Response(await asyncio.to_thread(_arrow, query, page, items), media_type=ARROW_STREAM)
    if query.attribute or query.include != "event":
        raise InvalidRequest(
            f"attributes come as columns of an Arrow stream only: send Accept: {ARROW_STREAM}",
            field="attribute",
        )
    return Response(await asyncio.to_thread(_json, page, items), media_type=JSON)


def _gap(gap: DeliveryGap) -> GapItem:
    return GapItem(gap.start, gap.end, gap.dropped, gap.reason)


def _json(page: HistoryPage, gaps: Sequence[GapItem]) -> bytes:
    rows = zip(
        page.offsets.tolist(),
        received_times(page.events).tolist(),
        page.events.column(PAYLOAD).to_pylist(),
        strict=True,
    )
    events = [
        StoredEvent(offset, _EPOCH + timedelta(microseconds=received), msgspec.Raw(payload))
        for offset, received, payload in rows
    ]
    return encode(StoredEvents(events=events, next=page.next, gaps=list(gaps)))


def _arrow(query: MailboxPageQuery, page: HistoryPage, gaps: Sequence[GapItem]) -> bytes:
    events = page.events
    columns: dict[str, pa.Array] = {
        "offset": pa.array(page.offsets),
        "received": events.column(RECEIVED).cast(pa.timestamp("us", "UTC")),
    }
    if query.include != "attributes":
        columns["event"] = events.column(PAYLOAD).cast(pa.string())
    if query.include != "event":
        known = attributes(tuple(events.schema.names))
        for name in query.attribute:
            for kind, values in attribute(events, name, known).items():
                columns[f"{kind}:{name}"] = values
    schema = pa.schema(
        [(name, values.type) for name, values in columns.items()],
        metadata={"next": str(page.next), "gaps": encode(gaps)},
    )
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
