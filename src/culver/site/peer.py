"""One end of the socket between a site and a gateway process: it carries messages, and requests with their answers.

    frame    u64 length (little-endian) | a pickled object

The socket is one half of a pair that the site makes and its child inherits. Nobody else can reach it, so everything
that comes through it is as trusted as this process. That makes pickle safe here, and nowhere near a client.
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
from operator import attrgetter
from typing import Any, cast

from culver.errors import CulverError, Unavailable

logger = logging.getLogger(__name__)

_HEAD_BYTES = 8
# Requests beyond this size wait at this end for the answers of earlier ones.
_MOST_UNANSWERED_BYTES = 16 * 1024 * 1024
# An end that leaves so much unread hangs.
_MOST_UNREAD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """`method` is a dotted path below the object that the other end serves, such as `subscriptions.add`."""

    reference: int
    method: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    reference: int
    result: Any
    error: CulverError | None


class Peer(asyncio.Protocol):
    """Lives on the event loop. A request of the other end calls a method of `served`; calls begin in the order of the
    requests, and each is answered when it is done. Any other message goes to `on_message`. When the other end is
    gone, every open request fails with Unavailable, and `lost` is set."""

    def __init__(self, served: object, on_message: Callable[[Any], None]) -> None:
        self._served = served
        self._on_message = on_message
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._references = itertools.count()
        # The answer to each open request, and the request's size.
        self._open: dict[int, tuple[asyncio.Future[Any], int]] = {}
        self._unanswered_bytes = 0
        self._waiting: deque[bytes] = deque()
        self._work: set[asyncio.Future[Any]] = set()
        self.lost = asyncio.Event()

    async def connect(self, half: socket.socket) -> None:
        half.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=half)

    def close(self) -> None:
        """Tell the other end to stop. Everything sent before still arrives."""
        if self._transport is not None:
            self._transport.close()

    def send(self, message: object) -> None:
        """Never blocks. Drops the message if the other end is gone, and the connection if the other end hangs."""
        self._write(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def request(self, method: str, *arguments: Any, **named: Any) -> "asyncio.Future[Any]":
        """Have the other end call a method. The answer raises the method's CulverError, and Unavailable if the other
        end fails in another way or is gone. Requests are sent in order, as far as there is room."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.lost.is_set():
            answer.set_exception(_gone())
            return answer
        reference = next(self._references)
        request = PeerRequest(reference, method, arguments, named)
        data = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
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

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            logger.error("the other end reads nothing any more; giving the connection up")
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
            case PeerRequest():
                self._serve(message)
            case PeerAnswer(reference, result, error):
                answer, size = self._open.pop(reference)
                self._unanswered_bytes -= size
                if not answer.done():
                    answer.set_result(result) if error is None else answer.set_exception(error)
                self._send_waiting()
            case _:
                self._on_message(message)

    def _serve(self, request: PeerRequest) -> None:
        try:
            result = attrgetter(request.method)(self._served)(*request.arguments, **request.named)
        except Exception as exc:
            self.send(PeerAnswer(request.reference, None, _public_error(request, exc)))
            return
        if isawaitable(result):
            work = asyncio.ensure_future(result)
            self._work.add(work)
            work.add_done_callback(partial(self._answer, request))
        else:
            self.send(PeerAnswer(request.reference, result, None))

    def _answer(self, request: PeerRequest, work: "asyncio.Future[Any]") -> None:
        self._work.discard(work)
        if work.cancelled():
            self.send(PeerAnswer(request.reference, None, _gone()))
        elif (error := work.exception()) is not None:
            self.send(PeerAnswer(request.reference, None, _public_error(request, error)))
        else:
            self.send(PeerAnswer(request.reference, work.result(), None))


def _public_error(request: PeerRequest, error: BaseException) -> CulverError:
    if isinstance(error, CulverError):
        return error
    logger.error("%s failed", request.method, exc_info=error)
    return Unavailable(f"the site failed ({type(error).__name__}); its log has the reason")


def _gone() -> Unavailable:
    return Unavailable("the site is stopping, or one of its gateways is; try again soon")
