"""WebSocket connections of the gateway's server, on the sans-I/O protocol of `websockets`.

uvicorn hands a connection over with the head of its handshake (the setting `ws` of `uvicorn.Config`). The connection
speaks ASGI with the application and is also a `MessageSocket`, which the application finds in its scope.

No client can make it hold memory or a socket for ever:

- A client that never reads: `STALL_SECONDS` after the write buffer is full, its connection is cut; its pings get no
  answers before that.
- Messages that the application does not take: from `MAX_WAITING_BYTES` on, no more are read.
- A message in endlessly many empty fragments: `MAX_FRAGMENTS`; one that is too long: the setting `ws_max_size`.
- A close that the client does not answer: `LINGER_SECONDS`, then twice as long to take what was written.

A client that breaks the protocol learns why: closing a socket with unread data on it would take the close frame away
from the peer, so the connection reads on for `LINGER_SECONDS`. Nothing that a client sends, before, during or after
a close, raises in a callback or puts a traceback into the log.

Most connections are idle most of the time, so an idle one holds little: `websockets` takes part in the handshake and
in frames that `FrameSplitter` does not read, and its objects go afterwards; queues and events exist while something
waits in them.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import uvicorn
from starlette.types import Message, Scope
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from culver.gateway.connection_limits import ADMISSION
from culver.gateway.server.frame_splitter import FrameSplitter, Unread
from culver.gateway.server.http_protocol import STALL_SECONDS, CallTimer
from culver.gateway.websocket.message_sockets import MESSAGE_SOCKET, Disconnected

MAX_FRAGMENTS = 4_096
MAX_WAITING_BYTES = 64 * 1024
MAX_POSTED_BYTES = 64 * 1024
LINGER_SECONDS = 1.0

# Every message counts for so many bytes besides its content, which bounds the number of small ones.
_MESSAGE_BYTES = 1024

_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

_logger = logging.getLogger(__name__)


class WebSocketProtocol(asyncio.Protocol):
    """One connection, from its handshake to its end. It offers no compression; the application chooses
    among the subprotocols that the client offers."""

    stall_seconds: ClassVar[float] = STALL_SECONDS

    def __init__(self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._app_state = app_state
        self._connections: set[Any] = server_state.connections
        self._tasks = server_state.tasks
        # Of `websockets`; there is none while the connection is open and between two messages.
        self._protocol: ServerProtocol | None = self._new_protocol(State.CONNECTING)
        self._response: Response | None = None
        self._splitter = FrameSplitter(config.ws_max_size)
        self._fragments: list[bytes] = []
        self._is_text = False
        self._has_head = False
        self._answered = False
        self._denial: Message = {}
        self._closing = False
        # Messages that wait for `receive`, and the function that `receive` left while it waits for one.
        self._waiting: deque[str | bytes] | None = None
        self._waiting_bytes = 0
        self._arrival: asyncio.Future[None] | None = None
        self._take: Callable[[str | bytes], bool] | None = None
        self._reading = True
        # Headers and messages that go out in one write.
        self._posted: list[bytes] = []
        self._posted_bytes = 0
        # Set once the client reads again; None while it reads.
        self._drained: asyncio.Event | None = None
        self._stall_timer = CallTimer()
        self._close_timer = CallTimer()
        self._ping_timer = CallTimer()
        self._ping_data = b""

    # --- asyncio.Protocol and uvicorn -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if (admission := self._app_state.get(ADMISSION)) is not None:
            admission.release()
        self._stall_timer.stop()
        self._close_timer.stop()
        self._end_messages()
        self._drain()

    def data_received(self, data: bytes) -> None:
        if not self._has_head:
            self._begin_handshake(data)
            return
        for piece in self._splitter.split(data):
            if isinstance(piece, Unread):
                self._parse(piece.data)
            else:
                self._deliver(piece)

    def pause_writing(self) -> None:
        self._drained = self._drained or asyncio.Event()
        self._stall_timer.start(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stall_timer.stop()
        self._drain()

    def shutdown(self) -> None:
        if not self._answered:
            self._deny(500)
        elif not self._closing:
            self._close(CloseCode.SERVICE_RESTART, "")
        self._hang_up()

    # --- handshake --------------------------------------------------------------------------------------

    def _begin_handshake(self, head: bytes) -> None:
        self._has_head = True
        protocol = self._awake()
        protocol.receive_data(head)
        events = protocol.events_received()
        if not events or not isinstance(events[0], Request):
            self._answered = True
            self.transport.write(_BAD_REQUEST)
            self._hang_up()
            return
        self._response = protocol.accept(events[0])
        if self._response.status_code != 101:
            self._answered = True
            protocol.send_response(self._response)
            self._flush()
            self._hang_up()
            return
        # Frames must not arrive before the application has answered.
        self._read(False)
        task = self._loop.create_task(self._run(self._scope(events[0])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _scope(self, request: Request) -> Scope:
        path, _, query = request.path.partition("?")
        is_tls = self.transport.get_extra_info("sslcontext") is not None
        headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
        return {
            "type": "websocket",
            "asgi": {"version": self._config.asgi_version, "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "wss" if is_tls else "ws",
            "server": _address(self.transport.get_extra_info("sockname")),
            "client": _address(self.transport.get_extra_info("peername")),
            "root_path": self._config.root_path,
            "path": self._config.root_path + unquote(path),
            "raw_path": (self._config.root_path + path).encode("ascii"),
            "query_string": query.encode("ascii"),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            "subprotocols": _subprotocols(request),
            "state": self._app_state.copy(),
            "extensions": {"websocket.http.response": {}, MESSAGE_SOCKET: self},
        }

    async def _run(self, scope: Scope) -> None:
        try:
            await self._config.loaded_app(scope, self._receive_message, self._send_message)
        except Disconnected:
            pass
        except Exception:
            _logger.exception("the application failed on a WebSocket")
        finally:
            if not self._answered:
                self._deny(500)
            if not self._closing:
                self._hang_up()

    def _accept(self, subprotocol: str | None) -> None:
        assert self._response is not None
        self._answered = True
        if subprotocol:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        self._awake().send_response(self._response)
        self._flush()
        self._protocol = self._response = None
        self._read(True)
        self._await_next_ping()

    def _deny(self, status: int, headers: list[tuple[bytes, bytes]] | None = None, body: bytes = b"") -> None:
        self._answered = True
        protocol = self._awake()
        response = protocol.reject(status, body.decode())
        for name, value in headers or []:
            response.headers.pop(name.decode("latin-1"), None)
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        protocol.send_response(response)
        self._flush()
        self._hang_up()

    # --- ASGI -------------------------------------------------------------------------------------------

    async def _receive_message(self) -> Message:
        if not self._answered:
            return {"type": "websocket.connect"}
        try:
            message = await self.receive(lambda message: False)
        except Disconnected:
            return {"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE}
        return {"type": "websocket.receive", "text" if isinstance(message, str) else "bytes": message}

    async def _send_message(self, message: Message) -> None:
        match message["type"]:
            case "websocket.http.response.start" | "websocket.http.response.body" if self._closing:
                return
            case _ if self._closing:
                raise Disconnected
            case "websocket.accept":
                self._accept(message.get("subprotocol"))
            case "websocket.http.response.start":
                self._denial = message
            case "websocket.http.response.body":
                self._deny(self._denial["status"], self._denial["headers"], message["body"])
            case "websocket.close" if not self._answered:
                self._deny(403)
            case "websocket.close":
                await self.close(message.get("code", CloseCode.NORMAL_CLOSURE), message.get("reason") or "")
            case "websocket.send":
                text: str | None = message.get("text")
                if text is None:
                    await self.send(message["bytes"], is_binary=True)
                else:
                    await self.send(text.encode())
            case other:
                raise RuntimeError(f"unexpected ASGI message {other!r}")

    # --- MessageSocket ----------------------------------------------------------------------------------

    def post(self, message: bytes, *, is_binary: bool = False) -> bool:
        if self._drained is not None:
            return False
        if self._closing or self.transport.is_closing():
            raise Disconnected
        # The header by hand takes 2.5 µs less than `ServerProtocol.send_text`, and one write for all the messages of
        # a turn of the loop 3 µs less for each of 32. RFC 6455, section 5.2, draws the header.
        kind = 0x82 if is_binary else 0x81
        length = len(message)
        if length < 126:
            head = bytes((kind, length))
        elif length < 1 << 16:
            head = bytes((kind, 0x7E)) + length.to_bytes(2, "big")
        else:
            head = bytes((kind, 0x7F)) + length.to_bytes(8, "big")
        if not self._posted:
            self._loop.call_soon(self._write_posted)
        self._posted += (head, message)
        self._posted_bytes += length
        if self._posted_bytes >= MAX_POSTED_BYTES:
            self._write_posted()
        return True

    async def send(self, message: bytes, *, is_binary: bool = False) -> None:
        while not self.post(message, is_binary=is_binary):
            if self._drained is not None:
                await self._drained.wait()

    async def receive(self, take: Callable[[str | bytes], bool]) -> str | bytes:
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                self._waiting_bytes -= len(message) + _MESSAGE_BYTES
                if self._waiting_bytes < MAX_WAITING_BYTES:
                    self._read(True)
                if not take(message):
                    return message
            self._waiting = None
            if self._closing:
                raise Disconnected
            self._take = take
            self._arrival = self._loop.create_future()
            try:
                await self._arrival
            finally:
                self._take = self._arrival = None

    async def close(self, code: int, reason: str) -> None:
        if self._closing:
            raise Disconnected
        self._close(code, reason)

    # --- messages in ------------------------------------------------------------------------------------

    def _deliver(self, message: str | bytes) -> None:
        if self._closing:
            return
        if self._take is not None and not self._waiting and self._take(message):
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(message)
        self._waiting_bytes += len(message) + _MESSAGE_BYTES
        self._wake()
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self._read(False)

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _new_protocol(self, state: State) -> ServerProtocol:
        return ServerProtocol(state=state, max_size=self._config.ws_max_size, logger=_logger)

    def _awake(self) -> ServerProtocol:
        if self._protocol is None:
            self._protocol = self._new_protocol(State.OPEN)
        return self._protocol

    def _parse(self, data: bytes) -> None:
        protocol = self._awake()
        protocol.receive_data(data)
        self._flush()
        is_pong = False
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._handle(event)
                is_pong = event.opcode is Opcode.PONG
        if self._closing:
            return
        if protocol.close_expected():
            self._linger()
        elif is_pong and self._splitter.is_between_messages:
            # Every client sends pongs. A new protocol takes 8 µs, which a long message need not wait for.
            self._protocol = None

    def _handle(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._hang_up()
        elif self._closing:
            return
        elif frame.opcode is Opcode.PONG and frame.data == self._ping_data:
            self._ping_timer.stop()
            self._await_next_ping()
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._fragments.append(bytes(frame.data))
            if len(self._fragments) > MAX_FRAGMENTS:
                self._fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")
            elif frame.fin:
                data, self._fragments = b"".join(self._fragments), []
                try:
                    self._deliver(data.decode() if self._is_text else data)
                except UnicodeDecodeError as exc:
                    self._fail(CloseCode.INVALID_DATA, f"not UTF-8, see byte {exc.start}")

    def _read(self, reading: bool) -> None:
        if reading != self._reading and not self.transport.is_closing():
            self._reading = reading
            (self.transport.resume_reading if reading else self.transport.pause_reading)()

    # --- bytes out, and the end -------------------------------------------------------------------------

    def _write_posted(self) -> None:
        if self._posted and not self.transport.is_closing():
            self.transport.writelines(self._posted)
        self._posted = []
        self._posted_bytes = 0

    def _flush(self) -> None:
        """Write the output of `websockets`. A client that does not read gets no answers to its pings."""
        self._write_posted()
        if self._protocol is None:
            return
        data = b"".join(self._protocol.data_to_send())
        is_wanted = self._drained is None or self._protocol.close_expected()
        if data and is_wanted and not self.transport.is_closing():
            self.transport.write(data)

    def _await_next_ping(self) -> None:
        if self._config.ws_ping_interval:
            self._ping_timer.start(self._config.ws_ping_interval, self._ping)

    def _ping(self) -> None:
        self._ping_timer.stop()
        self._ping_data = os.urandom(4)
        self._write_posted()
        if self._drained is None and not self.transport.is_closing():
            self.transport.write(b"\x89\x04" + self._ping_data)
        if self._config.ws_ping_timeout:
            give_up = partial(self._fail, CloseCode.INTERNAL_ERROR, "keepalive ping timeout")
            self._ping_timer.start(self._config.ws_ping_timeout, give_up)

    def _fail(self, code: int, reason: str) -> None:
        if not self._closing:
            self._fragments = []
            self._awake().fail(code, reason)
            self._flush()
            self._linger()

    def _close(self, code: int, reason: str) -> None:
        self._awake().send_close(code, reason)
        self._flush()
        self._linger()

    def _linger(self) -> None:
        """Wait a moment for the client's close frame, after ours."""
        self._end_messages()
        self._read(True)
        self._close_timer.start(LINGER_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """Close the connection once the client has taken everything, or soon in any case."""
        self._write_posted()
        self._end_messages()
        self._close_timer.stop()
        self.transport.close()
        self._close_timer.start(2 * LINGER_SECONDS, self.transport.abort)

    def _end_messages(self) -> None:
        self._closing = True
        self._ping_timer.stop()
        self._wake()

    def _drain(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None


def _subprotocols(request: Request) -> list[str]:
    """The subprotocols that a client offers, in its order; `websockets` has refused what is no list of tokens."""
    offers = ",".join(request.headers.get_all("Sec-WebSocket-Protocol")).split(",")
    return [offer for each in offers if (offer := each.strip())]


def _address(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None
