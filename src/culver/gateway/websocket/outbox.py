"""Backpressure of a WebSocket connection: messages on their way out, and requests in progress."""

import asyncio

from culver.gateway.websocket.text_sockets import TextSocket


class Outbox:
    """Sends one message at a time, in the order of the calls.

    A client that reads slowly makes `send` wait, and producers call `wait_for_space` before they fetch more, so that
    the outbox holds about `max_bytes` whatever the number of producers. Sending raises Disconnected."""

    def __init__(self, socket: TextSocket, max_bytes: int = 1024 * 1024) -> None:
        self._socket = socket
        self._max_bytes = max_bytes
        self.held_bytes = 0
        self._has_space = asyncio.Event()
        self._has_space.set()
        self._turn = asyncio.Lock()

    async def wait_for_space(self) -> None:
        """Returns once less than `max_bytes` wait to be sent."""
        await self._has_space.wait()

    def post(self, message: bytes) -> bool:
        """Send a message now. Returns False, and sends nothing, where the message would have to wait."""
        return not self.held_bytes and self._socket.post(message)

    async def send(self, message: bytes) -> None:
        if self.post(message):
            return
        self.held_bytes += len(message)
        if self.held_bytes >= self._max_bytes:
            self._has_space.clear()
        try:
            async with self._turn:
                await self._socket.send(message)
        finally:
            self.held_bytes -= len(message)
            if self.held_bytes < self._max_bytes:
                self._has_space.set()


class Window:
    """Limits how many requests, and how many bytes of them, are in progress at once. A request that is larger than
    the window enters when it is alone."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._count = 0
        self._bytes = 0
        self._left = asyncio.Event()

    async def enter(self, size: int) -> None:
        """Waits until the request fits; only one task may wait at a time."""
        while not self.try_enter(size):
            self._left.clear()
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
        self._left.set()
