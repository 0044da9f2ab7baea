"""A minimal WebSocket client for benchmarks.

Publisher and subscriber share the machine with the site that they measure. They therefore encode messages ahead of
time, decode only the members that matter, and put as little as possible between themselves and the socket: this
client takes a third of the processor time of a general one.
"""

import asyncio
import base64
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.websocket_frames import CLOSE, PING, PONG, TEXT, client_frame, whole_frame

SEQUENCE = "bench_sequence"
"""The attribute that numbers a benchmark's events."""


class NumberedEvent(msgspec.Struct):
    bench_sequence: int = -1


class SentEvent(msgspec.Struct):
    event: NumberedEvent
    to: list[str] = []


class SiteMessage(msgspec.Struct):
    """Any message from the site; members that a message does not have keep their defaults."""

    op: str
    ref: int | str | None = None
    next_offset: int = -1
    events: list[SentEvent] = []
    code: str = ""
    detail: str = ""

    @property
    def deliveries(self) -> int:
        return sum(len(each.to) for each in self.events)


_decoder = msgspec.json.Decoder(SiteMessage)


class WireConnection(asyncio.Protocol):
    """A WebSocket connection with whole messages and no compression, made by `open_connection`. Its methods raise
    BenchmarkFailed after an error, a gap or the end of the connection, because a figure would then mean nothing."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._data = b""  # that is not a whole message yet
        self._messages: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._take: Callable[[SiteMessage], bool] | None = None
        self._taken: asyncio.Future[None] = loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._end: str | None = None

    async def send(self, message: str) -> None:
        await self._writable.wait()
        if self._transport is None or self._end is not None:
            raise self._failure()
        self._transport.write(client_frame(TEXT, message.encode()))

    async def receive(self) -> SiteMessage:
        """Wait for the next message."""
        while not self._messages:
            if self._end is not None:
                raise self._failure()
            self._arrived.clear()
            await self._arrived.wait()
        return _decoded(self._messages.popleft())

    async def listen(self, take: Callable[[SiteMessage], bool]) -> None:
        """Pass each message to `take` the moment it arrives, without waking a task, until `take` returns True.
        May be called once for a connection."""
        self._take = take
        while self._messages:
            self._hand_over(self._messages.popleft())
        if self._end is not None and not self._taken.done():
            raise self._failure()
        await self._taken

    def handshake(self, host: str, path: str) -> None:
        """Ask for a WebSocket; `opened` completes with the answer."""
        assert self._transport is not None
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.write(client_frame(CLOSE, (1000).to_bytes(2, "big")))
            self._transport.close()

    # --- asyncio.Protocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no common class

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(f"the connection was lost: {exc}" if exc else "the connection was closed")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        at = 0
        if not self.opened.done():
            head, end, rest = data.partition(b"\r\n\r\n")
            if end and b" 101 " in head.splitlines()[0]:
                self.opened.set_result(None)
            elif end:
                self._finish(f"the site answered {head.splitlines()[0].decode(errors='replace')}")
            data = rest if end else data
        while self.opened.done() and (frame := whole_frame(data, at)) is not None:
            kind, begin, at = frame
            self._deal_with(kind, data[begin:at])
        self._data = data[at:]

    def _deal_with(self, kind: int, payload: bytes) -> None:
        if kind == TEXT and self._take is not None:
            self._hand_over(payload)
        elif kind == TEXT:
            self._messages.append(payload)
            self._arrived.set()
        elif kind == PING and self._transport is not None:
            self._transport.write(client_frame(PONG, payload))
        elif kind == CLOSE:
            code = int.from_bytes(payload[:2], "big")
            self._finish(f"{code} {payload[2:].decode(errors='replace')}".strip())

    def _hand_over(self, payload: bytes) -> None:
        if self._taken.done() or self._take is None:
            return
        try:
            if self._take(_decoded(payload)):
                self._taken.set_result(None)
        except BenchmarkFailed as exc:
            self._taken.set_exception(exc)

    def _finish(self, why: str) -> None:
        self._end = self._end or why
        self._arrived.set()
        self._writable.set()
        if self._take is not None and not self._taken.done():
            self._taken.set_exception(self._failure())
        if not self.opened.done():
            self.opened.set_exception(self._failure())

    def _failure(self) -> BenchmarkFailed:
        return BenchmarkFailed(f"the site closed the connection: {self._end}")


def _decoded(payload: bytes) -> SiteMessage:
    message = _decoder.decode(payload)
    if message.op == "error":
        raise BenchmarkFailed(f"the site refused a message: {message.code}: {message.detail}")
    if message.op == "gap":
        raise BenchmarkFailed("the site announced a gap: the subscriber did not receive every event")
    return message


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[WireConnection]:
    """Connect to a site. Raises BenchmarkFailed if there is none or it refuses."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(WireConnection, parts.hostname or "", parts.port or 80)
    except OSError as exc:
        raise BenchmarkFailed(f"no connection to {url}: {exc}") from exc
    try:
        connection.handshake(parts.netloc, parts.path)
        await connection.opened
        yield connection
    finally:
        connection.close()


def encode(events: Sequence[dict[str, Any]]) -> list[str]:
    return [msgspec.json.encode(event).decode() for event in events]


def encode_numbered(events: Sequence[dict[str, Any]], every: int = 1) -> list[str]:
    """Encode each event as JSON; every `every`-th event gets its place in the sequence as one more attribute."""
    return encode([{SEQUENCE: at, **event} if at % every == 0 else event for at, event in enumerate(events)])


def publish_message(ref: int, events: Sequence[str]) -> str:
    return f'{{"op":"publish","ref":{ref},"events":[{",".join(events)}]}}'
