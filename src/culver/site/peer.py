"""One end of the socket between a site and a gateway: messages in order, and requests with answers, both ways.

    frame    u64 length (little-endian) | a pickled object

The socket is one half of a pair that the site makes and its child inherits. Nobody else can reach it, so what comes
through it is as trusted as this process; that is what makes pickle fit here, and nowhere near a client.
"""

import asyncio
import itertools
import logging
import pickle
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import Any, cast

from culver.errors import CulverError, Unavailable

logger = logging.getLogger(__name__)

_HEAD_BYTES = 8
_MOST_UNANSWERED_BYTES = 16 * 1024 * 1024  # of requests; more wait at this end
_MOST_UNREAD_BYTES = 64 * 1024 * 1024  # that the other end does not take: it hangs

Methods = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Request:
    reference: int
    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    reference: int
    result: Any
    error: CulverError | None


class Peer(asyncio.Protocol):
    """Lives on the event loop. Requests of the other end are calls of `methods`, begun in the order in which they
    came; an answer is given when the call is done. Any other message goes to `on_message`. When the other end is
    gone, every open request fails with Unavailable, and `lost` is set."""

    def __init__(self, methods: Methods, on_message: Callable[[Any], None]) -> None:
        self._methods = methods
        self._on_message = on_message
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._references = itertools.count()
        self._open: dict[int, tuple[asyncio.Future[Any], int]] = {}  # with the size of each
        self._unanswered_bytes = 0
        self._waiting: deque[bytes] = deque()  # requests that there is no room for yet
        self._work: set[asyncio.Future[Any]] = set()
        self.lost = asyncio.Event()

    async def connect(self, half: socket.socket) -> None:
        """Takes the socket over."""
        half.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=half)

    def close(self) -> None:
        """The sign for the other end to stop. What was sent before still arrives."""
        if self._transport is not None:
            self._transport.close()

    def send(self, message: object) -> None:
        """Never blocks. To an end that is gone, or hangs, nothing is sent; the connection then ends."""
        self._write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def request(self, method: str, *arguments: Any) -> "asyncio.Future[Any]":
        """Have the other end call a method. The answer raises what the method raised, where that is meant for
        people, and Unavailable where the other end is gone. Requests are sent in order, as far as there is room."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.lost.is_set():
            answer.set_exception(_gone())
            return answer
        reference = next(self._references)
        data = pickle.dumps(Request(reference, method, arguments), pickle.HIGHEST_PROTOCOL)
        self._open[reference] = answer, len(data)
        self._waiting.append(data)
        self._send_waiting()
        return answer

    # --- asyncio.Protocol -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= _HEAD_BYTES:
            end = at + _HEAD_BYTES + int.from_bytes(received[at : at + _HEAD_BYTES], "little")
            if len(received) < end:
                break
            with memoryview(received) as view:
                message = pickle.loads(view[at + _HEAD_BYTES : end])
            at = end
            self._take(message)
        del received[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        for answer, _ in self._open.values():
            if not answer.done():
                answer.set_exception(_gone())
        self._open.clear()
        self._waiting.clear()

    # --- inside ---------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            logger.error("the other end takes nothing any more; the connection is given up")
            transport.abort()
            return
        transport.writelines([len(data).to_bytes(_HEAD_BYTES, "little"), data])

    def _send_waiting(self) -> None:
        while self._waiting:
            data = self._waiting[0]
            if self._unanswered_bytes and self._unanswered_bytes + len(data) > _MOST_UNANSWERED_BYTES:
                return
            self._waiting.popleft()
            self._unanswered_bytes += len(data)
            self._write(data)

    def _take(self, message: Any) -> None:
        match message:
            case Request():
                self._serve(message)
            case Answer(reference, result, error):
                answer, size = self._open.pop(reference)
                self._unanswered_bytes -= size
                if not answer.done():
                    answer.set_result(result) if error is None else answer.set_exception(error)
                self._send_waiting()
            case _:
                self._on_message(message)

    def _serve(self, request: Request) -> None:
        try:
            result = self._methods[request.method](*request.arguments)
        except Exception as exc:
            self.send(Answer(request.reference, None, _told(request, exc)))
            return
        if isawaitable(result):
            work = asyncio.ensure_future(result)
            self._work.add(work)
            work.add_done_callback(partial(self._served, request))
        else:
            self.send(Answer(request.reference, result, None))

    def _served(self, request: Request, work: "asyncio.Future[Any]") -> None:
        self._work.discard(work)
        if work.cancelled():
            self.send(Answer(request.reference, None, _gone()))
        elif (error := work.exception()) is not None:
            self.send(Answer(request.reference, None, _told(request, error)))
        else:
            self.send(Answer(request.reference, work.result(), None))


def _told(request: Request, error: BaseException) -> CulverError:
    if isinstance(error, CulverError):
        return error
    logger.error("%s failed", request.method, exc_info=error)
    return Unavailable(f"the site failed ({type(error).__name__}); its log has the reason")


def _gone() -> Unavailable:
    return Unavailable("the site is stopping, or one of its gateways is; try again soon")
