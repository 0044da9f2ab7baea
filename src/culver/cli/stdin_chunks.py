"""Reads standard input in chunks, for an event loop."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator
from typing import IO

_CHUNK_BYTES = 64 * 1024
_CHUNKS_AHEAD = 4


async def read_chunks(source: IO[bytes]) -> AsyncIterator[bytes]:
    """Yields what the source has as soon as it has something, and reads at most a few chunks ahead.

    A daemon thread reads, because a read may block when the program ends and must not hold it up. It reads the
    descriptor itself if there is one, because the lock of a buffered reader would hold the program up too.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(_CHUNKS_AHEAD)

    def read() -> bytes:
        try:
            descriptor = source.fileno()
        except (io.UnsupportedOperation, AttributeError):
            return source.read(_CHUNK_BYTES)
        return os.read(descriptor, _CHUNK_BYTES)

    def work() -> None:
        chunk = b"?"
        while chunk:
            item: bytes | OSError
            try:
                item = chunk = read()
            except OSError as exc:
                item, chunk = exc, b""
            putting = chunks.put(item)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, asyncio.CancelledError):
                putting.close()
                return

    threading.Thread(target=work, name="culver-stdin", daemon=True).start()
    while True:
        item = await chunks.get()
        if isinstance(item, OSError):
            raise item
        if not item:
            return
        yield item
