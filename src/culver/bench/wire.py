"""The WebSocket messages that a benchmark exchanges with a site, made and read as cheaply as possible.

Publisher and subscriber share the machine with the site that they measure, so a message is encoded
before its time and only the members that matter are decoded.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from culver.bench.frame import BenchmarkFailed

SEQUENCE = "bench_sequence"
"""The attribute that numbers a benchmark's events."""


class NumberedEvent(msgspec.Struct):
    bench_sequence: int = -1


class DeliveryMessage(msgspec.Struct):
    event: NumberedEvent


class Message(msgspec.Struct):
    """Any message from the site; members that it has not keep their defaults."""

    op: str
    ref: int | str | None = None
    next_offset: int = -1
    deliveries: list[DeliveryMessage] = []
    code: str = ""
    detail: str = ""


_decoder = msgspec.json.Decoder(Message)


def open_connection(url: str) -> connect:
    """A connection without compression, whose pings cannot end it while the site is busy."""
    return connect(url, compression=None, max_size=None, max_queue=1024, ping_interval=None, proxy=None)


async def receive(connection: ClientConnection) -> Message:
    """The next message. Raises BenchmarkFailed for an error, a gap or the end of the connection: a figure
    would then mean nothing."""
    try:
        message = _decoder.decode(await connection.recv(decode=False))
    except ConnectionClosed as exc:
        raise _closed(exc) from exc
    if message.op == "error":
        raise BenchmarkFailed(f"the site refused a message: {message.code}: {message.detail}")
    if message.op == "gap":
        raise BenchmarkFailed("the site announced a gap: the subscriber did not receive every event")
    return message


async def send(connection: ClientConnection, message: str) -> None:
    """Raises BenchmarkFailed where the connection has ended."""
    try:
        await connection.send(message)
    except ConnectionClosed as exc:
        raise _closed(exc) from exc


def encode(events: Sequence[dict[str, Any]]) -> list[str]:
    return [msgspec.json.encode(event).decode() for event in events]


def encode_numbered(events: Sequence[dict[str, Any]], every: int = 1) -> list[str]:
    """Each event as JSON, every so many of them with its place in the sequence as one more attribute."""
    return encode([{SEQUENCE: at, **event} if at % every == 0 else event for at, event in enumerate(events)])


def publish_message(ref: int, events: Sequence[str]) -> str:
    return f'{{"op":"publish","ref":{ref},"events":[{",".join(events)}]}}'


def _closed(exc: ConnectionClosed) -> BenchmarkFailed:
    return BenchmarkFailed(f"the site closed the connection: {exc}")
