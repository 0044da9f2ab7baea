"""Sockets to a site that publish encoded events and count or decode what arrives, and little else.

A connection asks for version 2 of the protocol and takes what the handshake's answer says:

    culver.v2.msgpack, culver.v2.json   an event comes once, with all its subscriptions in `to` and `groups`
    none, or culver.v1.json             an event comes once for each subscription: the site knows no version 2
"""

import base64
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.fanout.bare_connections import BareConnection, EventArrival, MarkerCount, NumberedPayload

V1 = "culver.v1.json"
_OFFERED = {"msgpack": "culver.v2.msgpack, culver.v2.json", "json": "culver.v2.json"}
_PATH = "/v1/ws"

# RFC 6455, section 5.2: a first byte that says that the frame is the whole message, and of what kind.
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x81, 0x82, 0x88, 0x89, 0x8A


class Refused(BenchmarkFailed):
    """The site answered a request with an error."""


class _Event(msgspec.Struct):
    bench_sequence: int = -1


class _Single(msgspec.Struct):
    """A delivery of version 1."""

    offset: int
    event: _Event


class _Shared(msgspec.Struct):
    """An event of version 2 in JSON."""

    offset: int
    event: _Event
    to: list[str] = []
    groups: dict[str, list[str]] = {}


class _SharedBinary(msgspec.Struct):
    """An event of version 2 in MessagePack."""

    offset: int
    event: bytes
    to: list[str] = []
    groups: dict[str | int, list[str]] = {}


class SiteAnswer(msgspec.Struct):
    """Any message from the site; members that a message does not have keep their defaults."""

    op: str
    ref: int | str | None = None
    subscription: str = ""
    deliveries: list[_Single] = []
    group: int = -1
    count: int = 0
    offset: int = -1
    next_offset: int = -1
    code: str = ""
    detail: str = ""
    title: str = ""


class _JsonMessage(SiteAnswer):
    events: list[_Shared] = []


class _BinaryMessage(SiteAnswer):
    events: list[_SharedBinary] = []


_json = msgspec.json.Decoder(_JsonMessage)
_binary = msgspec.msgpack.Decoder(_BinaryMessage)
_event = msgspec.json.Decoder(_Event)
_encode_json = msgspec.json.Encoder().encode
_encode_binary = msgspec.msgpack.Encoder().encode


class CulverConnection(BareConnection):
    """A WebSocket connection to a site. With `acknowledges`, it acknowledges what it has read: the newest offset of
    each subscription, or of each group, with at most one acknowledgement of it under way."""

    def __init__(self, port: int, wire: str, *, acknowledges: bool = False) -> None:
        super().__init__(port)
        self._rest = b""
        self._markers = MarkerCount()
        self._acknowledges = acknowledges
        self._newest: dict[str | int, int] = {}  # by subscription or group: the last offset that was read
        self._under_way: dict[
            str | int, int
        ] = {}  # the same: the offset whose acknowledgement has no answer yet
        self.last_offset = -1
        """The highest offset of an event that has arrived."""
        self.next_offset = 0
        """The log's position behind this connection's own last acknowledged publication."""
        self.protocol = self._shake_hands(port, _OFFERED[wire])
        self._is_binary = self.protocol.endswith("msgpack")

    def ask(self, messages: Sequence[dict[str, Any]]) -> list[SiteAnswer]:
        """Send requests and return their answers in the same order.

        :raises Refused: the site refused one of them."""
        self.send(b"".join(self._framed({**message, "ref": ref}) for ref, message in enumerate(messages)))
        answers: dict[int | str | None, SiteAnswer] = {}
        while len(answers) < len(messages):
            for answer in self._messages(self.read()):
                if answer.ref is not None:
                    answers[answer.ref] = answer
        return [answers[ref] for ref in range(len(messages))]

    def publish(self, payloads: Sequence[NumberedPayload], *, by_symbol: bool = False) -> None:
        if self._is_binary:
            texts = [payload.text for payload in payloads]
            self.send(self._framed({"op": "publish", "ref": 0, "events": texts}))
        else:
            joined = b",".join([payload.text for payload in payloads])
            self.send(_frame(_TEXT, b'{"op":"publish","ref":0,"events":[%b]}' % joined))

    def count(self) -> int:
        if self.protocol == V1:
            # The frames say where pings are; the deliveries in them need no parsing.
            data = self.read()
            for _ in self._payloads(data):
                pass
            return self._markers.add(data)
        return sum(arrival.subscriptions for arrival in self.arrivals())

    def arrivals(self) -> list[EventArrival]:
        found: list[EventArrival] = []
        for message in self._messages(self.read()):
            if message.op == "events":
                self._take(message, found)
            elif message.op == "acknowledged" and message.ref is not None:
                self._under_way.pop(message.ref, None)
            elif message.op == "published":
                self.next_offset = max(self.next_offset, message.next_offset)
        if self._acknowledges:
            self._acknowledge()
        return found

    def _take(self, message: SiteAnswer, found: list[EventArrival]) -> None:
        if self.protocol == V1:
            for single in message.deliveries:
                found.append(EventArrival(single.event.bench_sequence, 1))
                self.last_offset = max(self.last_offset, single.offset)
            if message.deliveries:
                self._newest[message.subscription] = message.deliveries[-1].offset
            return
        assert isinstance(message, _JsonMessage | _BinaryMessage)
        for shared in message.events:
            event = shared.event if isinstance(shared, _Shared) else _event.decode(shared.event)
            members = len(shared.to)
            for subscription in shared.to if self._acknowledges else ():
                self._newest[subscription] = shared.offset
            for group, ids in shared.groups.items():
                members += len(ids)
                # Nobody catches up in a benchmark, so the offsets of a group ascend.
                self._newest[int(group)] = shared.offset
            found.append(EventArrival(event.bench_sequence, members))
            self.last_offset = max(self.last_offset, shared.offset)

    def _acknowledge(self) -> None:
        due = [key for key in self._newest if key not in self._under_way]
        frames = []
        for key in due:
            offset = self._under_way[key] = self._newest.pop(key)
            receiver = (
                {"group": key, "offset": offset}
                if isinstance(key, int)
                else {"delivery_id": f"{key}:{offset}"}
            )
            frames.append(self._framed({"op": "ack", "ref": key, **receiver}))
        if frames:
            self.send(b"".join(frames))

    def _messages(self, data: bytes) -> Iterator[SiteAnswer]:
        for payload in self._payloads(data):
            message = _binary.decode(payload) if self._is_binary else _json.decode(payload)
            if message.op == "error":
                raise Refused(
                    f"the site refused a message: {message.code}: {message.detail or message.title}"
                )
            if message.op == "gap":
                raise BenchmarkFailed("the site announced a gap: a subscriber did not receive every event")
            yield message

    def _payloads(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that the next bytes complete, and answer pings."""
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= 2:
            length, begin = data[at + 1], at + 2
            if length == 126:
                length, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif length == 127:
                length, begin = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if begin + length > len(data):
                break
            kind, payload = data[at], data[begin : begin + length]
            at = begin + length
            if kind in (_TEXT, _BINARY):
                yield payload
            elif kind == _PING:
                self.send(_frame(_PONG, payload))
            elif kind == _CLOSE:
                raise BenchmarkFailed(f"the site closed a connection: {payload[2:].decode(errors='replace')}")
        self._rest = data[at:]

    def _framed(self, message: dict[str, Any]) -> bytes:
        if self._is_binary:
            return _frame(_BINARY, _encode_binary(message))
        return _frame(_TEXT, _encode_json(message))

    def _shake_hands(self, port: int, offered: str) -> str:
        """Ask for a WebSocket; returns the subprotocol that the site chose."""
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            f"GET {_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {offered}\r\n\r\n".encode()
        )
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.read()
        head, _, self._rest = data.partition(b"\r\n\r\n")
        if b" 101 " not in head.splitlines()[0]:
            raise BenchmarkFailed(f"the site answered {head.splitlines()[0].decode(errors='replace')}")
        chosen = re.search(rb"\r\nsec-websocket-protocol: *([^\r\n]+)", head, re.IGNORECASE)
        return chosen[1].decode().strip() if chosen else V1


def _frame(kind: int, payload: bytes) -> bytes:
    """A client's frame. Its mask is zero, which leaves the payload as it is and costs the client nothing."""
    size = len(payload)
    if size < 126:
        header = bytes((kind, 0x80 | size))
    elif size < 1 << 16:
        header = bytes((kind, 0xFE)) + size.to_bytes(2, "big")
    else:
        header = bytes((kind, 0xFF)) + size.to_bytes(8, "big")
    return b"".join((header, bytes(4), payload))
