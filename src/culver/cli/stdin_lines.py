"""Lines of standard input, as they come and within bounds, for an event loop."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator
from typing import IO

_CHUNK_BYTES = 64 * 1024
_CHUNKS_AHEAD = 4


class LineSplitter:
    """Cuts chunks into numbered lines. A line longer than `max_bytes` comes as None, without its text."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._skipping = False
        self._number = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes | None]]:
        lines: list[tuple[int, bytes | None]] = []
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._take(part)
            lines.append(self._finish())
        self._take(rest)
        return lines

    def end(self) -> list[tuple[int, bytes | None]]:
        """The last line, where it has no line feed."""
        return [self._finish()] if self._rest or self._skipping else []

    def _take(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._max_bytes:
            self._skipping = True
            self._rest.clear()
        elif not self._skipping:
            self._rest += part

    def _finish(self) -> tuple[int, bytes | None]:
        self._number += 1
        line = None if self._skipping else bytes(self._rest)
        self._rest.clear()
        self._skipping = False
        return self._number, line


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
