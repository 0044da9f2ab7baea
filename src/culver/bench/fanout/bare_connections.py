"""Sockets to NATS and Valkey that publish encoded events and count or decode what arrives, and little else.

Receivers share the machine with the servers, so their cost is part of every figure. Where only the number of
deliveries matters, a connection counts a marker that each event holds once, and parses nothing.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import hiredis
import msgspec

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.fanout.client_filters import ClientFilters, Quote
from culver.bench.wire_client import SEQUENCE

_MARKER = f'"{SEQUENCE}":'.encode()
_CHUNK_BYTES = 1 << 18
_LIMIT_SECONDS = 30.0

FANOUT_NAME = "fanout"
"""The subject of NATS and the channel of Valkey that have 1,000 subscribers."""


class EventArrival(NamedTuple):
    """An event arrived, for so many subscriptions at once."""

    number: int
    subscriptions: int


class NumberedPayload(NamedTuple):
    """An event as JSON text with its number inside, and the symbol that it is published by."""

    text: bytes
    symbol: str


def numbered_payloads(events: Sequence[dict[str, Any]]) -> list[NumberedPayload]:
    """Encode the events with their numbers, from 0."""
    return [
        NumberedPayload(msgspec.json.encode({SEQUENCE: number, **event}), event["symbol"])
        for number, event in enumerate(events)
    ]


def renumbered(payload: NumberedPayload, number: int) -> NumberedPayload:
    """The same event with another number."""
    return NumberedPayload(
        b"{%b%d%b" % (_MARKER, number, payload.text[payload.text.index(b",") :]), payload.symbol
    )


class BareConnection(ABC):
    """A connection that a selector may watch. Closed by `close` or as a context manager. Every method raises
    BenchmarkFailed if the server ends the connection or sends an error: a figure would then mean nothing."""

    def __init__(self, port: int) -> None:
        self.received_bytes = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_LIMIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Return what has arrived, after waiting for the first byte."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError as exc:
            raise BenchmarkFailed(f"a server did not answer: {exc}") from exc
        if not data:
            raise BenchmarkFailed("a server closed its connection")
        self.received_bytes += len(data)
        return data

    @abstractmethod
    def publish(self, payloads: Sequence[NumberedPayload], *, by_symbol: bool) -> None:
        """Send events in one piece, each as a publication, by its symbol or to everybody."""

    @abstractmethod
    def count(self) -> int:
        """Read what has arrived and return the number of deliveries that ended in it."""

    @abstractmethod
    def arrivals(self) -> list[EventArrival]:
        """Read what has arrived and return the events whose last byte was in it, for the filters that they match."""


class MarkerCount:
    """Counts the marker in a stream of chunks, in each of which it may begin or end."""

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> int:
        whole = self._tail + data
        self._tail = whole[-len(_MARKER) + 1 :]
        return whole.count(_MARKER)


class RivalConnection(BareConnection):
    """A connection whose subscriber filters the events that arrive."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._markers = MarkerCount()
        self._filters: ClientFilters | None = None
        self._decoder = msgspec.json.Decoder(Quote)

    def count(self) -> int:
        return self._markers.add(self.read())

    def arrivals(self) -> list[EventArrival]:
        found = []
        for payload in self.payloads(self.read()):
            quote = self._decoder.decode(payload)
            matched = self._filters.matches(quote) if self._filters else 0
            if matched:
                found.append(EventArrival(quote.bench_sequence, matched))
        return found

    def subscribe_filters(self, filters: ClientFilters) -> None:
        """Subscribe to each symbol that a filter names, or once to all symbols if a filter names none: what an
        application does that receives for all these filters."""
        self._filters = filters
        self.subscribe(
            [f"quotes.{symbol}" for symbol in filters.symbols] if filters.symbols else ["quotes.*"]
        )

    @abstractmethod
    def subscribe(self, names: Sequence[str]) -> None:
        """Subscribe to subjects or channels, once for each name, and wait until that is in effect."""

    @abstractmethod
    def payloads(self, data: bytes) -> Iterator[bytes]:
        """Yield the contents of the messages that the next bytes complete."""


class NatsConnection(RivalConnection):
    """A client of NATS's text protocol. It asks for no acknowledgement of what it publishes (`verbose: false`)."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._rest = b""
        self.send(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        self._wait_for_pong()

    def publish(self, payloads: Sequence[NumberedPayload], *, by_symbol: bool) -> None:
        pieces = []
        for text, symbol in payloads:
            subject = f"quotes.{symbol}" if by_symbol else FANOUT_NAME
            pieces += [b"PUB %b %d\r\n" % (subject.encode(), len(text)), text, b"\r\n"]
        self.send(b"".join(pieces))

    def subscribe(self, names: Sequence[str]) -> None:
        self.send("".join(f"SUB {name} {number}\r\n" for number, name in enumerate(names, 1)).encode())
        self._wait_for_pong()

    def payloads(self, data: bytes) -> Iterator[bytes]:
        data = self._rest + data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            if line.startswith(b"MSG "):
                size = int(line[line.rindex(b" ") :])
                if len(data) < end + 4 + size:
                    break
                yield data[end + 2 : end + 2 + size]
                at = end + 4 + size
                continue
            at = end + 2
            if line == b"PING":
                self.send(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise BenchmarkFailed(f"NATS refused a message: {line.decode()}")
        self._rest = data[at:]

    def _wait_for_pong(self) -> None:
        self.send(b"PING\r\n")
        data = b""
        while b"PONG\r\n" not in data:
            data += self.read()
            if b"-ERR" in data:
                raise BenchmarkFailed(f"NATS refused a message: {data.decode(errors='replace')}")


class ValkeyConnection(RivalConnection):
    """A client of Valkey's protocol. A name with a `*` or `[` is a pattern."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._reader = hiredis.Reader()

    def publish(self, payloads: Sequence[NumberedPayload], *, by_symbol: bool) -> None:
        pieces = []
        for text, symbol in payloads:
            channel = f"quotes.{symbol}" if by_symbol else FANOUT_NAME
            pieces.append(_command(b"PUBLISH", channel.encode(), text))
        self.send(b"".join(pieces))

    def subscribe(self, names: Sequence[str]) -> None:
        for command, chosen in (
            (b"PSUBSCRIBE", [name for name in names if "*" in name or "[" in name]),
            (b"SUBSCRIBE", [name for name in names if "*" not in name and "[" not in name]),
        ):
            if chosen:
                self.send(_command(command, *(name.encode() for name in chosen)))
        confirmed = 0
        while confirmed < len(names):
            self._reader.feed(self.read())
            confirmed += sum(1 for _ in self._replies())

    def payloads(self, data: bytes) -> Iterator[bytes]:
        self._reader.feed(data)
        for reply in self._replies():
            if isinstance(reply, list):
                yield reply[-1]

    def _replies(self) -> Iterator[object]:
        # `False` is what a reader gives while no reply is complete.
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise BenchmarkFailed(f"Valkey refused a message: {reply}")
            yield reply


def _command(*words: bytes) -> bytes:
    """A command in Valkey's protocol: an array of texts, each with its length."""
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


def fanout_names(system: str, count: int) -> list[str]:
    """What one connection subscribes to, to get an event `count` times. NATS delivers for each subscription to one
    subject. Valkey delivers a channel once to a connection, and once more for each of its patterns: these patterns
    are all different and all match."""
    if system == "nats":
        return [FANOUT_NAME] * count
    return [f"[{FANOUT_NAME[0]}{number:03}]{FANOUT_NAME[1:]}" for number in range(count)]


RIVAL_CONNECTIONS: dict[str, type[RivalConnection]] = {"nats": NatsConnection, "valkey": ValkeyConnection}
