"""`POST /v1/events`: one event, a batch, or a stream of lines."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import UNSET
from starlette.requests import ClientDisconnect, Request

from culver.errors import CulverError, InvalidRequest, TooLarge, Unavailable
from culver.gateway.api.operations import JSON, Operations
from culver.gateway.api.publication_numbers import check_number, publication_numbers, repeated_events
from culver.gateway.api.request_reader import check_encoding, media_type, read_body
from culver.gateway.gateway_context import Gateway, Interrupted, client_of, compute, gateway_of
from culver.messages import EVENT_EXAMPLE, AcceptedEvents, PublishQuery, Receipt
from culver.model import Event
from culver.model.formats import NDJSON, LineSplitter, decode_body, decode_lines, unsupported

operations = Operations("events", "Publishing")

_BINARY_MARK = "ce-specversion"
_CHUNK_EVENTS = 1_000
_CHUNK_BYTES = 1024 * 1024
_MOST_RANGES = 10_000

_EVENT = {"$ref": "#/components/schemas/Event"}
_CLOUDEVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "/exchange",
    "type": "quote",
    "data": {"symbol": "ACME", "price": 21.5},
}
_CONTENTS = {
    JSON: {
        "schema": {"oneOf": [_EVENT, {"type": "array", "items": _EVENT, "minItems": 1}]},
        "examples": {
            "one": {"summary": "One event", "value": EVENT_EXAMPLE},
            "batch": {"summary": "A batch", "value": [EVENT_EXAMPLE, {"symbol": "EMCA", "price": 5}]},
        },
    },
    NDJSON: {
        "schema": {"type": "string", "description": "One event a line, published while it arrives"},
        "example": '{"symbol": "ACME", "price": 21.5}\n{"symbol": "ACME", "price": 22}\n',
    },
    "application/cloudevents+json": {"schema": _EVENT, "example": _CLOUDEVENT},
    "application/cloudevents-batch+json": {
        "schema": {"type": "array", "items": _EVENT, "minItems": 1},
        "example": [_CLOUDEVENT],
    },
}


@operations.add("POST /v1/events", contents=_CONTENTS, problems=(507,))
async def publish_events(request: Request, query: PublishQuery) -> AcceptedEvents:
    """Publish one event, a batch or a stream.

    With a `ce-specversion` header the body is the data of a CloudEvent in binary mode. In a stream of lines an
    error's problem has `line` and `accepted`, the number of events acknowledged before it. With `publisher` and
    `sequence`, events that were stored before under the same numbers are not stored again: the answer is that of the
    first time.
    """
    gateway = gateway_of(request)
    if media_type(request.headers) == NDJSON and _BINARY_MARK not in request.headers:
        return await _publish_stream(request, gateway, query)
    if "content-type" not in request.headers and _BINARY_MARK not in request.headers:
        raise unsupported("name the body's format, such as application/json")
    limits = gateway.settings.gateway
    body = await read_body(request, limits.max_body_bytes, limits.body_bytes_per_second)
    headers = dict(request.headers)
    events = await compute(
        len(body), decode_body, headers.get("content-type"), headers, body, gateway.settings.events
    )
    if not events:
        raise InvalidRequest("the body holds no event", field="body")
    await gateway.events.wait(client_of(request), len(events), longest_seconds=0)
    publisher = RequestPublisher(gateway, query)
    await publisher.publish(events)
    return publisher.accepted_events()


async def _publish_stream(request: Request, gateway: Gateway, query: PublishQuery) -> AcceptedEvents:
    """Publish lines while more of them arrive. An error ends the stream; what came before it is published,
    and the problem says how much of that was acknowledged."""
    check_encoding(request.headers)
    publisher = RequestPublisher(gateway, query)
    chunks = _Chunks(publisher)
    failure: CulverError | ClientDisconnect | None = None
    try:
        async with gateway.long_request("stream") as interruption, asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(chunks.publish(interruption.interrupt))
            try:
                await _feed(request, gateway, chunks)
            except (CulverError, ClientDisconnect) as exc:
                failure = exc
            chunks.end()
            await publishing
    except Interrupted:
        failure = chunks.error
    except Unavailable as exc:
        failure = exc
    failure = chunks.error or failure
    if isinstance(failure, CulverError):
        failure.details["accepted"] = publisher.accepted
    if failure is not None:
        raise failure
    if publisher.first_offset is None:
        raise InvalidRequest("the stream holds no event", field="body", accepted=0)
    return publisher.accepted_events()


async def _feed(request: Request, gateway: Gateway, chunks: "_Chunks") -> None:
    """Decode lines as they come into the chunks; raises at the first line that is wrong, with its number."""
    client, longest = client_of(request), gateway.settings.gateway.max_message_bytes
    splitter = LineSplitter(longest)

    async def take(lines: list[tuple[int, bytes | None]]) -> None:
        for begin in range(0, len(lines), _CHUNK_EVENTS):
            part = lines[begin : begin + _CHUNK_EVENTS]
            fitting = [(number, line) for number, line in part if line is not None]
            size = sum(len(line) for _, line in fitting)
            oversized = next((at for at, (_, line) in enumerate(part) if line is None), None)
            events, error = await compute(size, decode_lines, fitting[:oversized], gateway.settings.events)
            if events:
                await gateway.events.wait(client, len(events))
                await chunks.put(events)
            if error is None and oversized is not None:
                error = TooLarge(
                    f"a line is longer than {longest} bytes; send smaller events, or raise gateway.max_message_bytes",
                    field="line",
                    limit=longest,
                    line=part[oversized][0],
                )
            if error is not None:
                raise error

    async for chunk in request.stream():
        await take(splitter.feed(chunk))
    await take(splitter.end())


class RequestPublisher:
    """Publishes the events of one request, in one piece or several, and keeps the offsets that they got: ranges, with
    events of other publishers between them. Raises InvalidRequest for a query whose number is wrong."""

    def __init__(self, gateway: Gateway, query: PublishQuery, most_ranges: int = _MOST_RANGES) -> None:
        check_number(query.publisher, query.sequence)
        self._gateway = gateway
        self._query = query
        self._repeated = 0
        self.accepted = 0
        self.first_offset: int | None = None
        self._next_offset = 0
        self._most_ranges = most_ranges
        # None once there are too many.
        self._ranges: list[Receipt] | None = []

    async def publish(self, events: Sequence[Event]) -> None:
        """Hand decoded events to the site, and note their places when they are acknowledged."""
        publisher, sequence = self._query.publisher, self._query.sequence
        if sequence is not None:
            sequence += self.accepted
        numbers = publication_numbers(publisher, sequence, len(events))
        answer = await self._gateway.publish(events, numbers)
        if numbers is None:
            self._add(*answer)
            return
        for first, following, _ in answer:
            self._add(first, following)
        self._repeated += repeated_events(answer)

    def _add(self, first: int, following: int) -> None:
        self.accepted += following - first
        if self._ranges is not None:
            if self._ranges and first == self._next_offset:
                first = self._ranges.pop().first_offset
            self._ranges.append(Receipt(first, following))
            if len(self._ranges) > self._most_ranges:
                self._ranges = None
        if self.first_offset is None:
            self.first_offset = first
        self._next_offset = following

    def accepted_events(self) -> AcceptedEvents:
        assert self.first_offset is not None
        is_one = self._ranges is not None and len(self._ranges) == 1
        return AcceptedEvents(
            self.first_offset,
            self._next_offset,
            accepted=self.accepted,
            ranges=UNSET if is_one else self._ranges,
            repeated=UNSET if self._query.publisher is None else self._repeated,
        )


class _Chunks:
    """Decoded events on their way to the site: what arrives while one chunk is being stored is the next
    chunk. Holds a bounded amount; one task puts and one publishes."""

    def __init__(self, publisher: RequestPublisher) -> None:
        self._publisher = publisher
        self._waiting: list[Event] = []
        self._waiting_bytes = 0
        self._ended = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self.error: CulverError | None = None

    async def put(self, events: list[Event]) -> None:
        """Add events; waits while a full chunk is waiting."""
        while len(self._waiting) >= _CHUNK_EVENTS or self._waiting_bytes >= _CHUNK_BYTES:
            self._room.clear()
            await self._room.wait()
        self._waiting += events
        self._waiting_bytes += sum(len(event.payload) for event in events)
        self._filled.set()

    def end(self) -> None:
        self._ended = True
        self._filled.set()

    async def publish(self, failed: Callable[[], None]) -> None:
        """Publish chunk after chunk until the end; calls `failed` where the site refuses one."""
        while True:
            await self._filled.wait()
            chunk, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._room.set()
            if not self._ended:
                self._filled.clear()
            elif not chunk:
                return
            try:
                await self._publisher.publish(chunk)
            except CulverError as exc:
                self.error = exc
                failed()
                return
