"""A TCP proxy before one server that lets a given number of bytes per second out of it.

All connections share one token bucket. The proxy reads from the server no faster than it sends, so what waits stays
in the server's output buffers, as behind a slow network.
"""

import asyncio
import socket
import sys
from contextlib import suppress

_CHUNK_BYTES = 4_096
_BURST_SECONDS = 0.02


class TokenBucket:
    """Hands out bytes in the order of the requests. Time is passed in, in seconds."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def take(self, amount: int, now: float) -> float:
        """Takes bytes, and returns how long the taker has to wait before it sends them."""
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)


class RateProxy:
    def __init__(self, host: str, port: int, rate: float) -> None:
        self._target = host, port
        now = asyncio.get_running_loop().time()
        self._bucket = TokenBucket(rate, max(_CHUNK_BYTES, rate * _BURST_SECONDS), now)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Small buffers, so that the server itself holds what waits.
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * _CHUNK_BYTES)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self._target)
            from_server, to_server = await asyncio.open_connection(sock=sock, limit=_CHUNK_BYTES)
        except OSError:
            sock.close()
            writer.close()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(reader, to_server, None))
            tasks.create_task(_copy(from_server, writer, self._bucket))


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bucket: TokenBucket | None
) -> None:
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            if bucket is not None and (wait := bucket.take(len(data), loop.time())):
                await asyncio.sleep(wait)
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(target: str, rate: float) -> None:
    """Serves until standard input ends, which it does with the parent."""
    host, _, port = target.rpartition(":")
    proxy = RateProxy(host, int(port), rate)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0, limit=_CHUNK_BYTES)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], float(sys.argv[2])))
