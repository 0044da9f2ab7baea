"""uvicorn's protocols, with bounds where a hostile client could make them hold memory or a socket for ever.

- A request's head, a chunk extension or a trailer that never ends: at most `MAX_HEAD_BYTES` arrive without
  progress.
- A head that never comes: `HEAD_SECONDS`.
- A client that never reads: `STALL_SECONDS` after the write buffer is full, its connection is cut.
- A WebSocket message in endlessly many empty fragments, and pings whose answers are not read.
- WebSocket messages that the application does not take: from `MAX_WAITING_BYTES` on, no more are read.
- A request sent before the one ahead of it is answered: the first still learns when its client is gone, and a
  WebSocket is not opened before.

Where a WebSocket client breaks the protocol, it learns why: the close frame is not lost to a reset. Nothing that a
client sends, before, during or after a close, raises in a callback or puts a traceback into the log.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, cast

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, WebSocketReceiveEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

try:
    from websockets.speedups import apply_mask
except ImportError:
    from websockets.utils import apply_mask

MAX_HEAD_BYTES = 64 * 1024
MAX_FRAGMENTS = 4_096
MAX_WAITING_BYTES = 64 * 1024
MAX_LEAVING_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
STALL_SECONDS = 60.0
LINGER_SECONDS = 1.0

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
# The extension of a WebSocket's scope with which the application sends and takes text without the layers between:
# "write" takes a message and returns False where the client does not read, "drained" waits until it does; "listen"
# takes a function that is then called with each text as it comes, and returns False where `receive` is to have it.
DIRECT = "culver.direct"

_MESSAGE_BYTES = 1024  # that a message counts for besides its text, so that small ones are bounded too
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class _StallTimer:
    """Cuts a connection whose peer does not read for too long."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.Transport, seconds: float) -> None:
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, transport.abort)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class BoundedHttpProtocol(HttpToolsProtocol):
    stall_seconds: ClassVar[float] = STALL_SECONDS
    head_seconds: ClassVar[float] = HEAD_SECONDS
    connection_limit: ClassVar[int] = 2**31

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stall = _StallTimer()
        self._head = _StallTimer()
        self._bytes_without_progress = 0
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        super().connection_made(stream)
        self._head.start(stream, self.head_seconds)
        if len(self.connections) > self.connection_limit:
            # Far beyond what is answered with a 503: the operating system's handles must last.
            stream.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall.stop()
        self._head.stop()
        if self._running is not None and not self._running.response_complete:
            # uvicorn tells the last request that arrived, which may still wait for this one's answer.
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._bytes_without_progress += len(data)
        super().data_received(data)
        if self._bytes_without_progress > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head.start(self.transport, self.head_seconds)

    def on_headers_complete(self) -> None:
        self._bytes_without_progress = 0
        self._head.stop()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes_without_progress = 0
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._stall.stop()
        if self.cycle is not None and not self.cycle.response_complete:
            self.send_400_response("Wait for the answer before asking for a WebSocket.")
        else:
            super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(self.transport, self.stall_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.stop()


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    stall_seconds: ClassVar[float] = STALL_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stall = _StallTimer()
        self._waiting_bytes = 0  # of messages that the application has not received yet
        # What the application sends in one turn of the loop goes out in one write.
        self._leaving: list[bytes] = []
        self._leaving_bytes = 0
        self._listener: Callable[[str], bool] = _hear_nothing
        self._parser_begins = False  # it is known to wait for a message's first byte, until it is given any

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._leave()  # it may be a close, after which nothing is sent
        if self._listener is not _hear_nothing and not self.close_sent and self._is_between_messages():
            data = self._hear(data)
            if not data:
                return
        self._parser_begins = False
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            # uvicorn would leave such a connection open and silent.
            self.transport.write(_BAD_REQUEST)
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][DIRECT] = {
                "write": self._write,
                "drained": self.writable.wait,
                "listen": self._listen,
            }
            # Frames that come before the handshake is answered would be taken for those of a connection that
            # is not open. `receive` reads on when the application is about to accept.
            self.read_paused = True
            self.transport.pause_reading()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:
            self._fail(1009, "too many fragments")
        else:
            super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """uvicorn would stop reading for each message, and log a traceback for one that is not UTF-8."""
        data, self.frames = b"".join(self.frames), []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            try:
                text = data.decode()
            except UnicodeDecodeError as exc:
                self._fail(1007, f"not UTF-8, see byte {exc.start}")
                return
            self._pass_on({"type": "websocket.receive", "text": text})
        else:
            self._pass_on({"type": "websocket.receive", "bytes": data})

    def _pass_on(self, message: WebSocketReceiveEvent) -> None:
        self.queue.put_nowait(message)
        self._waiting_bytes += _bytes_of(message)
        if self._waiting_bytes >= MAX_WAITING_BYTES and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _listen(self, listener: Callable[[str], bool]) -> None:
        self._listener = listener

    def _is_between_messages(self) -> bool:
        """Whether the next byte begins a message: none is there in part, and the parser, a chain of generators, waits
        for anything to come at all."""
        if not self._parser_begins:
            waits_for: Any = self.conn.parser
            while (inner := getattr(waits_for, "gi_yieldfrom", None)) is not None:
                waits_for = inner
            begins = getattr(waits_for, "__name__", "") == "at_eof" and self.conn.current_size is None
            self._parser_begins = begins
        return self._parser_begins and self.conn.state is State.OPEN

    def _hear(self, data: bytes) -> bytes:
        """Take the texts at the beginning that are whole, each in one frame, which nearly all are. Returns the rest,
        which is for the parser."""
        at, end = 0, len(data)
        while at < end and (frame := whole_text(data, at, self.config.ws_max_size)) is not None:
            text, at = frame
            # What `receive` has not fetched yet comes first.
            if not self.queue.empty() or not self._listener(text):
                self._pass_on({"type": "websocket.receive", "text": text})
        return data[at:] if at else data

    def handle_parser_exception(self) -> None:
        """Say why and stop listening, but go on reading for a moment: closing a socket with unread data on
        it would take the close frame away from the peer."""
        if self.close_sent or self.conn.close_sent is None:
            return
        verdict = self.conn.close_sent
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": verdict.code, "reason": verdict.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if message["type"] == "websocket.receive":
            self._waiting_bytes -= _bytes_of(message)
        if self.read_paused and self._waiting_bytes < MAX_WAITING_BYTES:
            self.read_paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()
        return message

    def _write(self, message: bytes) -> bool:
        if not self.writable.is_set():
            return False
        if self.disconnected or self.conn.state is not State.OPEN or self.transport.is_closing():
            raise ClientDisconnected
        if not self._leaving:
            self.loop.call_soon(self._leave)
        self._leaving += (text_header(len(message)), message)
        self._leaving_bytes += len(message)
        if self._leaving_bytes >= MAX_LEAVING_BYTES:
            self._leave()
        return True

    def _leave(self) -> None:
        """Write what the application has sent; nothing may follow a close frame."""
        if not self._leaving:
            return
        leaving, self._leaving, self._leaving_bytes = self._leaving, [], 0
        if self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.writelines(leaving)

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent and self.conn.state is not State.OPEN:
            # The client has closed and is being answered; uvicorn would close a second time, which raises.
            self.stop_keepalive()
            self.transport.close()
        else:
            self._leave()
            super().shutdown()

    async def send(self, message: ASGISendEvent) -> None:
        self._leave()
        try:
            await super().send(message)
        except RuntimeError:
            if self.close_sent:  # meanwhile, by the protocol
                raise ClientDisconnected from None
            raise
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # by a refusal; uvicorn would log that it was never completed

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # the answer: a peer that does not read gets none

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(self.transport, self.stall_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall.stop()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        # A close waits until everything is written, which is for ever where the peer does not read.
        self._stall.stop()
        if self in self.connections:
            self._stall.start(self.transport, 2 * LINGER_SECONDS)

    def _fail(self, code: int, reason: str) -> None:
        if not self.close_sent:
            self.frames = []
            self._leave()
            self.conn.fail(code, reason)
            self.handle_parser_exception()


def _bytes_of(message: WebSocketReceiveEvent) -> int:
    return _MESSAGE_BYTES + len(message.get("text") or message.get("bytes") or "")


def _hear_nothing(text: str) -> bool:
    return False


def whole_text(data: bytes, at: int, longest: int) -> tuple[str, int] | None:
    """The text of an unfragmented message from a client that begins at `at` and is there as a whole, and where it
    ends; None for anything else, and for what is wrong. RFC 6455, section 5.2."""
    left = len(data) - at
    if left < 6 or data[at] != 0x81 or data[at + 1] < 0x80:
        return None
    length, begin = data[at + 1] & 0x7F, at + 6
    if length == 126:
        length, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
    elif length == 127:
        length, begin = int.from_bytes(data[at + 2 : at + 10], "big"), at + 14
    end = begin + length
    if end > len(data) or length > longest:
        return None
    try:
        return apply_mask(data[begin:end], data[begin - 4 : begin]).decode(), end
    except UnicodeDecodeError:
        return None


def text_header(length: int) -> bytes:
    """Of a whole text message from the server, RFC 6455, section 5.2."""
    if length < 126:
        return bytes((0x81, length))
    if length < 1 << 16:
        return b"\x81\x7e" + length.to_bytes(2, "big")
    return b"\x81\x7f" + length.to_bytes(8, "big")
