"""Chunks of standard input, as they come and within bounds, for an event loop."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator
from typing import IO

_CHUNK_BYTES = 64 * 1024
_CHUNKS_AHEAD = 4


async def read_chunks(source: IO[bytes]) -> AsyncIterator[bytes]:
    """What the source has, whenever it has something, and at most a few chunks ahead of the reader.

    A daemon thread does the reading: it may be stuck in a read when the program ends, and must not hold it.
    It reads the descriptor itself where there is one, since a buffered reader's lock would.
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
