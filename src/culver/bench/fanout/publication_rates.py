"""Measures single publications that are on disk when they are acknowledged, with many calls in flight.

Culver's go through its Python client. Those to NATS's JetStream go through a client that knows nothing else: it has a
future for each publication, as any client of asyncio has, and it neither reconnects nor checks anything.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

import culver
from culver.bench.bench_frame import BenchmarkFailed

_STREAM = "bench"
_SUBJECT = "publications"
_INBOX = "_INBOX.bench"


async def culver_publications(
    url: str, events: Sequence[dict[str, Any]], in_flight: int, seconds: float
) -> float:
    """Publications a second through `culver.connect`."""
    async with culver.connect(url, max_in_flight=in_flight) as client:
        return await _rate(client.publish, events, in_flight, seconds)


async def jetstream_publications(
    port: int, events: Sequence[dict[str, Any]], in_flight: int, seconds: float
) -> float:
    """Publications a second into a stream on disk, each acknowledged by the server."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(_JetStreamClient, "127.0.0.1", port)
    try:
        stream = {"name": _STREAM, "subjects": [_SUBJECT], "storage": "file"}
        await client.request(f"$JS.API.STREAM.CREATE.{_STREAM}", msgspec.json.encode(stream))

        async def publish(event: dict[str, Any]) -> None:
            await client.request(_SUBJECT, msgspec.json.encode(event))

        return await _rate(publish, events, in_flight, seconds)
    finally:
        client.close()


async def _rate(
    publish: Callable[[dict[str, Any]], Awaitable[object]],
    events: Sequence[dict[str, Any]],
    in_flight: int,
    seconds: float,
) -> float:
    """Publications a second of `in_flight` tasks that publish one event after another."""
    await publish(events[0])
    done = 0
    began = time.perf_counter()
    remaining = itertools.cycle(events)

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            await publish(next(remaining))
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(work())
    return done / (time.perf_counter() - began)


class _JetStreamClient(asyncio.Protocol):
    """Requests to NATS, each answered on a subject of its own."""

    def __init__(self) -> None:
        self._rest = b""
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._numbers = itertools.count()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(
            f'CONNECT {{"verbose":false,"pedantic":false}}\r\nSUB {_INBOX}.* 1\r\n'.encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BenchmarkFailed("NATS closed the connection"))

    def request(self, subject: str, payload: bytes) -> asyncio.Future[None]:
        """Complete once the server has answered; raises BenchmarkFailed if it answers with an error."""
        inbox = f"{_INBOX}.{next(self._numbers)}".encode()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[inbox] = future
        self._transport.write(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox, len(payload), payload))
        return future

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            if line.startswith(b"MSG "):
                _, inbox, _, size = line.split(b" ")
                after = end + 4 + int(size)
                if len(data) < after:
                    break
                self._answer(inbox, data[end + 2 : after - 2])
                at = after
                continue
            at = end + 2
            if line == b"PING":
                self._transport.write(b"PONG\r\n")
        self._rest = data[at:]

    def _answer(self, inbox: bytes, payload: bytes) -> None:
        future = self._waiting.pop(inbox)
        if b'"error"' in payload:
            future.set_exception(BenchmarkFailed(f"JetStream refused a request: {payload.decode()}"))
        else:
            future.set_result(None)
