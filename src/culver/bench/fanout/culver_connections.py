"""Sockets to a site that publish encoded events and count or decode what arrives, and little else.

An event comes once for each connection, with all its subscriptions: as JSON, or as MessagePack where the connection
asks for that. Everything else is JSON.
"""

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.fanout.bare_connections import BareConnection, EventArrival, NumberedPayload
from culver.bench.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, client_frame, whole_frame

PROTOCOLS = {"msgpack": "culver.v2.msgpack", "json": "culver.v2.json"}
_PATH = "/v1/ws"


class _Event(msgspec.Struct):
    bench_sequence: int = -1


class _Shared(msgspec.Struct):
    """An event in JSON."""

    offset: int
    event: _Event
    to: list[str] = []
    groups: dict[str, list[str]] = {}


class _Packed(msgspec.Struct, array_like=True):
    """An event in MessagePack."""

    offset: int
    to: list[str]
    groups: dict[int, list[str]]
    event: bytes


class SiteAnswer(msgspec.Struct):
    """Any message from the site; members that a message does not have keep their defaults."""

    op: str
    ref: int | str | None = None
    events: list[_Shared] = []
    count: int = 0
    code: str = ""
    detail: str = ""
    title: str = ""


_json = msgspec.json.Decoder(SiteAnswer)
_packed = msgspec.msgpack.Decoder(list[_Packed])
_event = msgspec.json.Decoder(_Event)
_encode = msgspec.json.Encoder().encode


class CulverConnection(BareConnection):
    """A WebSocket connection to a site. With `acknowledges`, it acknowledges what it has read: the newest offset of
    each subscription, or of each group, with at most one acknowledgement of it under way."""

    def __init__(self, port: int, wire: str, *, acknowledges: bool = False) -> None:
        super().__init__(port)
        self._rest = b""
        self._acknowledges = acknowledges
        self._newest: dict[str | int, int] = {}  # by subscription or group: the last offset that was read
        # The same: the offset whose acknowledgement has no answer yet.
        self._under_way: dict[str | int, int] = {}
        self._shake_hands(port, PROTOCOLS[wire])

    def ask(self, messages: Sequence[dict[str, Any]]) -> list[SiteAnswer]:
        """Send requests and return their answers in the same order."""
        self.send(b"".join(self._framed({**message, "ref": ref}) for ref, message in enumerate(messages)))
        answers: dict[int | str | None, SiteAnswer] = {}
        while len(answers) < len(messages):
            for answer in self._messages(self.read()):
                if isinstance(answer, SiteAnswer) and answer.ref is not None:
                    answers[answer.ref] = answer
        return [answers[ref] for ref in range(len(messages))]

    def publish(self, payloads: Sequence[NumberedPayload], *, by_symbol: bool = False) -> None:
        joined = b",".join([payload.text for payload in payloads])
        self.send(client_frame(TEXT, b'{"op":"publish","ref":0,"events":[%b]}' % joined))

    def count(self) -> int:
        return sum(arrival.subscriptions for arrival in self.arrivals())

    def arrivals(self) -> list[EventArrival]:
        found: list[EventArrival] = []
        for message in self._messages(self.read()):
            if isinstance(message, list):
                for packed in message:
                    event = _event.decode(packed.event)
                    found.append(self._take(packed.offset, event, packed.to, packed.groups))
            elif message.op == "acknowledged" and message.ref is not None:
                self._under_way.pop(message.ref, None)
            for each in () if isinstance(message, list) else message.events:
                groups = {int(group): ids for group, ids in each.groups.items()}
                found.append(self._take(each.offset, each.event, each.to, groups))
        if self._acknowledges:
            self._acknowledge()
        return found

    def _take(
        self, offset: int, event: _Event, to: Sequence[str], groups: Mapping[int, Sequence[str]]
    ) -> EventArrival:
        members = len(to)
        for subscription in to if self._acknowledges else ():
            self._newest[subscription] = offset
        for group, ids in groups.items():
            members += len(ids)
            # Nobody catches up in a benchmark, so the offsets of a group ascend.
            self._newest[group] = offset
        return EventArrival(event.bench_sequence, members)

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

    def _messages(self, data: bytes) -> Iterator[SiteAnswer | list[_Packed]]:
        for is_binary, payload in self._payloads(data):
            if is_binary:
                yield _packed.decode(payload)
                continue
            message = _json.decode(payload)
            if message.op == "error":
                why = message.detail or message.title
                raise BenchmarkFailed(f"the site refused a message: {message.code}: {why}")
            if message.op == "gap":
                raise BenchmarkFailed("the site announced a gap: a subscriber did not receive every event")
            yield message

    def _payloads(self, data: bytes) -> Iterator[tuple[bool, bytes]]:
        """Yield the messages that the next bytes complete, and whether they are binary; answer pings."""
        data = self._rest + data if self._rest else data
        at = 0
        while (frame := whole_frame(data, at)) is not None:
            kind, begin, at = frame
            payload = data[begin:at]
            if kind in (TEXT, BINARY):
                yield kind == BINARY, payload
            elif kind == PING:
                self.send(client_frame(PONG, payload))
            elif kind == CLOSE:
                raise BenchmarkFailed(f"the site closed a connection: {payload[2:].decode(errors='replace')}")
        self._rest = data[at:]

    def _framed(self, message: dict[str, Any]) -> bytes:
        return client_frame(TEXT, _encode(message))

    def _shake_hands(self, port: int, protocol: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            f"GET {_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n".encode()
        )
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.read()
        head, _, self._rest = data.partition(b"\r\n\r\n")
        if b" 101 " not in head.splitlines()[0]:
            raise BenchmarkFailed(f"the site answered {head.splitlines()[0].decode(errors='replace')}")
