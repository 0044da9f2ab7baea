"""A TCP proxy that stands for one link between two sites: each direction takes a given number of bytes per second.

It reads no faster than it sends, so what waits stays in the queues of the sites, as behind a slow network.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.channels.rate_proxy import TokenBucket

_CHUNK_BYTES = 16_384
_BURST_SECONDS = 0.02


class LinkProxy:
    def __init__(self, host: str, port: int, bytes_per_second: float) -> None:
        self._target = host, port
        now = asyncio.get_running_loop().time()
        burst = max(_CHUNK_BYTES, bytes_per_second * _BURST_SECONDS)
        self._forth = TokenBucket(bytes_per_second, burst, now)
        self._back = TokenBucket(bytes_per_second, burst, now)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_site, to_site = await asyncio.open_connection(*self._target, limit=_CHUNK_BYTES)
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(reader, to_site, self._forth))
            tasks.create_task(_copy(from_site, writer, self._back))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bucket: TokenBucket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            if wait := bucket.take(len(data), loop.time()):
                await asyncio.sleep(wait)
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def limited_link(port: int, bytes_per_second: float) -> Iterator[int]:
    """Run a proxy before a local port; yields the port of the proxy."""
    command = [sys.executable, "-m", __name__, str(port), str(bytes_per_second)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BenchmarkFailed("the proxy of a link did not start")
        try:
            yield int(line)
        finally:
            process.stdin.close()


async def main(port: int, bytes_per_second: float) -> None:
    """Serve until standard input ends, which it does with the parent."""
    proxy = LinkProxy("127.0.0.1", port, bytes_per_second)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0, limit=_CHUNK_BYTES)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
