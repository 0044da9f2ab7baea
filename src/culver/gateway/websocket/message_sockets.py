"""The messages of one accepted WebSocket, whichever server holds its connection, and their backpressure.

Any ASGI server exchanges messages with the application as dictionaries, through a task for each side. The gateway's
own server offers its connection as an extension of the scope instead, see `server.websocket_protocol`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

MESSAGE_SOCKET = "culver.message_socket"
"""The extension of a WebSocket's scope that holds a MessageSocket."""


class Disconnected(ConnectionError):
    """The client has left, or the connection is closing."""


class MessageSocket(Protocol):
    """Sends and receives whole messages. Used by one event loop; only one task may receive."""

    def post(self, message: bytes, *, is_binary: bool = False) -> bool:
        """Send a message now, UTF-8 text unless it is binary. Returns False, and sends nothing, where `send` would
        wait. What is posted in one turn of the loop is written at once. Raises Disconnected."""

    async def send(self, message: bytes, *, is_binary: bool = False) -> None:
        """Send a message, UTF-8 text unless it is binary; waits while the client does not read. Raises
        Disconnected."""

    async def receive(self, take: Callable[[str | bytes], bool]) -> str | bytes:
        """Offer each message to `take`, in order, and return the first that it refuses. A text is a `str`, a binary
        message is `bytes`.

        `take` must neither wait nor raise; it runs as soon as a message arrives, and once more on a message that it
        refused then. Messages that arrived before the client left still count. Raises Disconnected."""

    async def close(self, code: int, reason: str) -> None:
        """Raises Disconnected."""


async def accept_messages(socket: WebSocket, subprotocol: str | None = None) -> MessageSocket:
    """Accept the handshake, with one of the `subprotocols` of the socket's scope or none. Raises Disconnected."""
    try:
        await socket.accept(subprotocol)
    except _GONE as exc:
        raise Disconnected from exc
    own: MessageSocket | None = (socket.scope.get("extensions") or {}).get(MESSAGE_SOCKET)
    return own or _AsgiMessageSocket(socket)


# Servers raise one or the other once the client has left or the server has closed; some raise nothing.
_GONE = (OSError, RuntimeError, WebSocketDisconnect)


class _AsgiMessageSocket:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    def post(self, message: bytes, *, is_binary: bool = False) -> bool:
        return False

    async def send(self, message: bytes, *, is_binary: bool = False) -> None:
        try:
            if is_binary:
                await self._socket.send_bytes(message)
            else:
                await self._socket.send_text(message.decode())
        except _GONE as exc:
            raise Disconnected from exc

    async def receive(self, take: Callable[[str | bytes], bool]) -> str | bytes:
        while True:
            event = await self._socket.receive()
            if event["type"] == "websocket.disconnect":
                raise Disconnected
            text: str | None = event.get("text")
            message = bytes(event["bytes"]) if text is None else text
            if not take(message):
                return message

    async def close(self, code: int, reason: str) -> None:
        try:
            await self._socket.close(code, reason)
        except _GONE as exc:
            raise Disconnected from exc


class Outbox:
    """Sends one message at a time, in the order of the calls.

    A client that reads slowly makes `send` wait, and producers call `wait_for_space` before they fetch more, so that
    the outbox holds about `max_bytes` whatever the number of producers. Sending raises Disconnected."""

    __slots__ = ("_max_bytes", "_socket", "_space", "_turn", "held_bytes")

    def __init__(self, socket: MessageSocket, max_bytes: int = 1024 * 1024) -> None:
        self._socket = socket
        self._max_bytes = max_bytes
        self.held_bytes = 0
        # Set once there is space again; None while there is.
        self._space: asyncio.Event | None = None
        self._turn = asyncio.Lock()

    async def wait_for_space(self) -> None:
        """Returns once less than `max_bytes` wait to be sent."""
        if self._space is not None:
            await self._space.wait()

    def post(self, message: bytes, *, is_binary: bool = False) -> bool:
        """Send a message now. Returns False, and sends nothing, where the message would have to wait."""
        return not self.held_bytes and self._socket.post(message, is_binary=is_binary)

    async def send(self, message: bytes, *, is_binary: bool = False) -> None:
        if self.post(message, is_binary=is_binary):
            return
        self.held_bytes += len(message)
        if self.held_bytes >= self._max_bytes:
            self._space = self._space or asyncio.Event()
        try:
            async with self._turn:
                await self._socket.send(message, is_binary=is_binary)
        finally:
            self.held_bytes -= len(message)
            if self._space is not None and self.held_bytes < self._max_bytes:
                self._space.set()
                self._space = None


class Window:
    """Limits how many requests, and how many bytes of them, are in progress at once. A request that is larger than
    the window enters when it is alone."""

    __slots__ = ("_bytes", "_count", "_left", "_max_bytes", "_max_count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        # Set when a request has left; None while nobody waits to enter.
        self._left: asyncio.Event | None = None

    async def enter(self, size: int) -> None:
        """Waits until the request fits; only one task may wait at a time."""
        while not self.try_enter(size):
            self._left = asyncio.Event()
            await self._left.wait()

    def try_enter(self, size: int) -> bool:
        """Returns False where the request does not fit now."""
        if self._count and (self._count >= self._max_count or self._bytes + size > self._max_bytes):
            return False
        self._count += 1
        self._bytes += size
        return True

    def leave(self, size: int) -> None:
        self._count -= 1
        self._bytes -= size
        if self._left is not None:
            self._left.set()
            self._left = None
