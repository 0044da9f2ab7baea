"""uvicorn's HTTP protocol with bounds on what a hostile client can make it hold.

- A request head, a chunk extension or a trailer that never ends: at most `MAX_HEAD_BYTES` arrive without progress.
- A head that never comes: `HEAD_SECONDS`.
- A client that never reads: `STALL_SECONDS` after the write buffer is full, its connection is cut.
- A body that drips on after its request was answered: `HEAD_SECONDS`.
- More connections than the limits: they are told so, as far as there are spare ones, and cut.
- Pipelined requests: all of them learn when their client is gone, and a WebSocket opens only after the answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from culver.gateway.connection_limits import ADMISSION, ConnectionLimits
from culver.gateway.problems import encode_problem, problem_document
from culver.gateway.rate_limits import address_key

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
STALL_SECONDS = 60.0
SPARE_SECONDS = 5.0

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
)


class CallTimer:
    __slots__ = ("_handle",)

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float, call: Callable[[], object]) -> None:
        """Does nothing while the timer runs."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class HttpProtocol(HttpToolsProtocol):
    """Overrides public methods only."""

    stall_seconds: ClassVar[float] = STALL_SECONDS
    head_seconds: ClassVar[float] = HEAD_SECONDS
    limits: ClassVar[ConnectionLimits] = ConnectionLimits(2**31, 2**31, 0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stall_timer = CallTimer()
        self._head_timer = CallTimer()
        self._bytes_without_progress = 0
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._body_is_complete = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        super().connection_made(stream)
        self._admission = self.limits.admit(address_key(self.client[0] if self.client else None))
        # Every scope of the connection has it, and the WebSocket that may take the connection over.
        self.app_state = {**self.app_state, ADMISSION: self._admission}
        refusal = self._admission.refusal
        seconds = self.head_seconds if refusal is None else min(self.head_seconds, SPARE_SECONDS)
        self._head_timer.start(seconds, stream.abort)
        if refusal is not None and not self._admission.kept:
            body = encode_problem(problem_document(refusal))
            stream.write(_UNAVAILABLE % (len(body), body))
            stream.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall_timer.stop()
        self._head_timer.stop()
        self._admission.release()
        # uvicorn tells only the request that arrived last.
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes_without_progress += len(data)
        super().data_received(data)
        if self._bytes_without_progress > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_timer.start(self.head_seconds, self.transport.abort)

    def on_headers_complete(self) -> None:
        self._bytes_without_progress = 0
        self._head_timer.stop()
        self._body_is_complete = False
        previous = self.cycle
        super().on_headers_complete()
        if self.cycle is not previous:
            self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes_without_progress = 0
        self._body_is_complete = True
        self._head_timer.stop()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()
        if self._admission.refusal is not None:
            self.transport.close()
        elif not self._unanswered and not self._body_is_complete:
            self._head_timer.start(self.head_seconds, self.transport.abort)

    def handle_websocket_upgrade(self) -> None:
        self._stall_timer.stop()
        if self._unanswered:
            self.send_400_response("Wait for the answer before asking for a WebSocket.")
        else:
            super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer.start(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stall_timer.stop()
