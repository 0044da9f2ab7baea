"""A process that consumes groups of subscriptions over one WebSocket, and may be killed at any moment.

It writes down what it got before it acknowledges it, with at most one acknowledgement of each group under way:

    python -m support.group_consumer URL JOURNAL FOLLOWS

    FOLLOWS    what it follows, as a JSON array: [{"set": "quotes"}, {"prefix": "alerts-"}]
    journal    offset    | member | number of the event | place in FOLLOWS      int64 each, one row for each delivery
               CONNECTED | 0      | 0                   | 0                     a new connection
               ANSWERED  | offset | 0                   | place                 an acknowledgement was answered
               GAP       | start  | end                 | place

A member is the number at the end of the subscription's id. The process runs until it is killed, and connects again
for as long as the site is away.
"""

import contextlib
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

CONNECTED, ANSWERED, GAP = -1, -2, -3
COLUMNS = 4
_ROW_BYTES = 8 * COLUMNS
_PAUSE_SECONDS = 0.05
_ACKNOWLEDGE_SECONDS = 0.1
_LAST_DIGITS = re.compile(r"\d+$")

Rows = NDArray[np.int64]


class _Numbered(msgspec.Struct):
    n: int


class _Delivered(msgspec.Struct):
    offset: int
    event: _Numbered
    groups: dict[str, list[str]]


class _Message(msgspec.Struct):
    op: str
    ref: int | None = None
    group: int = -1
    offset: int = -1
    start: int = -1
    end: int = -1
    detail: str = ""
    events: list[_Delivered] = []
    groups: dict[str, list[str]] = {}


_decode = msgspec.json.Decoder(_Message).decode
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Group:
    place: int
    newest: int = -1
    under_way: int = -1
    answered: int = -1


class GroupConsumer:
    def __init__(self, url: str, journal: Path, follows: list[dict[str, Any]]) -> None:
        self._url = url.replace("http", "ws", 1) + "/v1/ws"
        self._follows = follows
        self._members: dict[str, int] = {}
        self._journal = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        # A kill may have torn the last row.
        os.truncate(self._journal, os.fstat(self._journal).st_size // _ROW_BYTES * _ROW_BYTES)

    def run(self) -> None:
        while True:
            try:
                with connect(self._url, compression=None, max_size=None, proxy=None) as socket:
                    self._consume(socket)
            except (OSError, ConnectionClosed, InvalidHandshake):
                time.sleep(_PAUSE_SECONDS)

    def _consume(self, socket: ClientConnection) -> None:
        self._write([(CONNECTED, 0, 0, 0)])
        groups: dict[str, _Group] = {}
        for place, follow in enumerate(self._follows):
            socket.send(_encode({"op": "follow", "ref": place, **follow}).decode())
        due = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                self._handle(_decode(socket.recv(_ACKNOWLEDGE_SECONDS)), groups)
            # Not at once, so that a kill finds something that is not acknowledged.
            if time.monotonic() >= due:
                due = time.monotonic() + _ACKNOWLEDGE_SECONDS
                for key, group in groups.items():
                    if group.under_way < 0 and group.newest > group.answered:
                        group.under_way = group.newest
                        ack = {"op": "ack", "ref": int(key), "group": int(key), "offset": group.newest}
                        socket.send(_encode(ack).decode())

    def _handle(self, message: _Message, groups: dict[str, _Group]) -> None:
        match message.op:
            case "followed":
                assert message.ref is not None
                groups[str(message.group)] = _Group(message.ref)
            case "events":
                self._take(message.events, groups)
            case "acknowledged":
                group = groups[str(message.ref)]
                group.answered, group.under_way = group.under_way, -1
                self._write([(ANSWERED, group.answered, 0, group.place)])
            case "gap":
                self._write([(GAP, message.start, message.end, groups[key].place) for key in message.groups])
            case _:
                raise SystemExit(f"{message.op}: {message.detail}")

    def _take(self, events: list[_Delivered], groups: dict[str, _Group]) -> None:
        rows = []
        for each in events:
            for key, names in each.groups.items():
                group = groups[key]
                group.newest = max(group.newest, each.offset)
                rows += [(each.offset, self._member(name), each.event.n, group.place) for name in names]
        self._write(rows)

    def _member(self, name: str) -> int:
        number = self._members.get(name)
        if number is None:
            digits = _LAST_DIGITS.search(name)
            assert digits is not None, name
            number = self._members[name] = int(digits[0])
        return number

    def _write(self, rows: list[tuple[int, int, int, int]]) -> None:
        data = memoryview(np.array(rows, np.int64).tobytes())
        while data:
            data = data[os.write(self._journal, data) :]


def read_rows(journal: Path) -> Rows:
    data = np.fromfile(journal, np.int64)
    return data[: len(data) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)


if __name__ == "__main__":
    GroupConsumer(sys.argv[1], Path(sys.argv[2]), msgspec.json.decode(sys.argv[3])).run()
