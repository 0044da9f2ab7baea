"""The WebSocket connections to one gateway.

1   publications, and streams 1 to 1,000
2   streams 1,001 to 2,000
...
"""

import asyncio

from culver.client.site_address import Address
from culver.client.websocket_connection import Connection
from culver.errors import ClientError, ConnectionFailed

MOST_STREAMS = 1_000
"""On one connection. A site takes 10,000, and one of an older version 1,000. A connection more costs little, while a
lost one is made again with all that was on it, and its events come one after the other."""


class ConnectionPool:
    """Opens a connection when it is needed, and again after a loss. `close` is final."""

    def __init__(self, address: Address, timeout_seconds: float) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._connections: list[Connection] = []
        self._lock = asyncio.Lock()
        self._failures = 0
        self._failure: ConnectionFailed | None = None
        self._closed = False

    async def first(self) -> Connection:
        """The connection that is open longest. Raises ConnectionFailed."""
        return await self._find(None)

    async def with_room(self) -> Connection:
        """The first one that takes a further stream, which is to be put on it in the same turn of the loop. Raises
        ConnectionFailed."""
        return await self._find(MOST_STREAMS)

    async def close(self) -> None:
        self._closed = True
        async with self._lock:
            connections, self._connections = self._connections, []
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _find(self, most: int | None) -> Connection:
        failures = self._failures
        async with self._lock:
            if self._closed:
                raise ClientError("the client is closed")
            self._connections = [each for each in self._connections if not each.lost]
            for each in self._connections:
                if most is None or each.load < most:
                    return each
            if self._failures > failures and self._failure is not None:
                # The attempt that this caller has waited for failed: many callers make one attempt, not each its own.
                raise ConnectionFailed(
                    self._failure.message, field=self._failure.field, **self._failure.details
                ) from self._failure
            try:
                connection = await Connection.open(self._address, self._timeout_seconds)
            except ConnectionFailed as exc:
                self._failures += 1
                self._failure = exc
                raise
            self._connections.append(connection)
            return connection
