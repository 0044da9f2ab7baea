"""The text messages of one accepted WebSocket, whichever server holds its connection.

Any ASGI server exchanges messages with the application as dictionaries, through a task for each side. The gateway's
own server offers its connection as an extension of the scope instead, see `server.websocket_protocol`.
"""

from collections.abc import Callable
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

TEXT_SOCKET = "culver.text_socket"
"""The extension of a WebSocket's scope that holds a TextSocket."""


class Disconnected(ConnectionError):
    """The client has left, or the connection is closing."""


class TextSocket(Protocol):
    """Sends and receives whole messages. Used by one event loop; only one task may receive."""

    def post(self, message: bytes) -> bool:
        """Send UTF-8 text now. Returns False, and sends nothing, where `send` would wait. Raises Disconnected."""

    async def send(self, message: bytes) -> None:
        """Send UTF-8 text; waits while the client does not read. Raises Disconnected."""

    async def receive(self, take: Callable[[str], bool]) -> str | bytes:
        """Offer each text to `take`, in order, and return the first that it refuses, or the next binary message.

        `take` must neither wait nor raise; it runs as soon as a text arrives. Messages that arrived before the
        client left still count. Raises Disconnected."""

    async def close(self, code: int, reason: str) -> None:
        """Raises Disconnected."""


async def accept_texts(socket: WebSocket) -> TextSocket:
    """Accept the handshake. Raises Disconnected."""
    try:
        await socket.accept()
    except _GONE as exc:
        raise Disconnected from exc
    own: TextSocket | None = (socket.scope.get("extensions") or {}).get(TEXT_SOCKET)
    return own or _AsgiTextSocket(socket)


# Servers raise one or the other once the client has left or the server has closed; some raise nothing.
_GONE = (OSError, RuntimeError, WebSocketDisconnect)


class _AsgiTextSocket:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    def post(self, message: bytes) -> bool:
        return False

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send_text(message.decode())
        except _GONE as exc:
            raise Disconnected from exc

    async def receive(self, take: Callable[[str], bool]) -> str | bytes:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise Disconnected
            text: str | None = message.get("text")
            if text is None:
                return bytes(message["bytes"])
            if not take(text):
                return text

    async def close(self, code: int, reason: str) -> None:
        try:
            await self._socket.close(code, reason)
        except _GONE as exc:
            raise Disconnected from exc
