"""Payloads from the publication log, read once for all the sessions that send them.

Sessions ask for the payloads of single offsets. A thread reads the log in blocks of neighbouring offsets, and a cache
keeps the latest blocks. So an event for 130 sessions is decoded once, and all of them send the same bytes object. The
newest block grows: reading goes on where it ended. The cache takes what is published through this process right away,
so that nobody reads it back while it is new.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from culver.errors import NotFound, StorageCorrupt
from culver.log import ReadableLog
from culver.model.columns import PAYLOAD

_BLOCK_EVENTS = 512
_CACHE_BYTES = 64 * 1024 * 1024
_ANSWER_BYTES = 1024 * 1024
# The bytes that Python adds to each payload.
_OBJECT_BYTES = 64

_Payloads = list[bytes | None]


class PayloadReader:
    """Used on the event loop's thread. `cache_bytes` bounds the cache, and `answer_bytes`, roughly, the answer to one
    call, so that a slow subscriber of large events does not hold much memory."""

    def __init__(
        self,
        log: ReadableLog,
        *,
        cache_bytes: int = _CACHE_BYTES,
        answer_bytes: int = _ANSWER_BYTES,
    ) -> None:
        self._log = log
        self._cache_bytes = cache_bytes
        self._answer_bytes = answer_bytes
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._bytes = 0
        self._loading: dict[int, asyncio.Task[_Block]] = {}
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="culver-payloads")

    async def read(self, offsets: Sequence[int]) -> _Payloads:
        """The payloads of ascending offsets; None where the log no longer has one. May answer for fewer offsets than
        asked, but at least for one. Raises StorageError."""
        payloads: _Payloads = []
        kept: _Payloads = []
        total = start = 0
        for offset in offsets:
            if not start <= offset < start + len(kept):
                block = await self._block(offset)
                start, kept = block.start, block.payloads
            payload = kept[offset - start] if offset < start + len(kept) else None
            payloads.append(payload)
            total += len(payload) if payload is not None else 0
            if total >= self._answer_bytes:
                break
        return payloads

    def remember(self, first_offset: int, payloads: Sequence[bytes]) -> None:
        """Take events that have just been appended into the cache, if they continue a block there."""
        offset, rest = first_offset, payloads
        while rest:
            key = offset // _BLOCK_EVENTS
            here = rest[: (key + 1) * _BLOCK_EVENTS - offset]
            block = self._blocks.get(key)
            if block is None and offset % _BLOCK_EVENTS == 0:
                block = _Block(offset)
            if block is not None and block.end == offset and key not in self._loading:
                self._grow(key, block, list(here))
            offset, rest = offset + len(here), rest[len(here) :]

    async def close(self) -> None:
        """Wait for the reads under way. Sessions may not read any more."""
        if self._loading:
            await asyncio.wait(self._loading.values())
        self._executor.shutdown()
        self._blocks.clear()

    async def _block(self, offset: int) -> "_Block":
        """The block of an offset, read at least up to that offset, or to the end of the log."""
        key = offset // _BLOCK_EVENTS
        while True:
            block = self._blocks.get(key)
            if block is not None and offset < block.end:
                self._blocks.move_to_end(key)
                return block
            loading = self._loading.get(key)
            if loading is None:
                loading = asyncio.create_task(self._extend(key))
                self._loading[key] = loading
                loading.add_done_callback(partial(self._finished, key))
            # Others may wait for the same block, so the end of this session must not stop the read.
            block = await asyncio.shield(loading)
            if offset < block.end or offset >= self._log.next_offset:
                return block

    async def _extend(self, key: int) -> "_Block":
        block = self._blocks.get(key) or _Block(key * _BLOCK_EVENTS)
        end = min((key + 1) * _BLOCK_EVENTS, self._log.next_offset)
        loop = asyncio.get_running_loop()
        payloads = await loop.run_in_executor(self._executor, self._read, block.end, end)
        self._grow(key, block, payloads)
        return block

    def _grow(self, key: int, block: "_Block", payloads: _Payloads) -> None:
        if self._blocks.pop(key, None) is not None:
            self._bytes -= block.bytes
        block.extend(payloads)
        self._blocks[key] = block
        self._bytes += block.bytes
        while self._bytes > self._cache_bytes:
            _, oldest = self._blocks.popitem(last=False)
            self._bytes -= oldest.bytes

    def _finished(self, key: int, task: "asyncio.Task[_Block]") -> None:
        del self._loading[key]
        if not task.cancelled():
            # Retrieved, so that asyncio does not report it when all who waited have gone.
            task.exception()

    def _read(self, start: int, end: int) -> _Payloads:
        """One payload per offset, None where it is trimmed or damaged. Runs in a thread."""
        payloads: _Payloads = [None] * max(end - start, 0)
        while (first := max(start, self._log.first_offset)) < end:
            try:
                for offset, batch in self._log.read(first, end):
                    at = offset + len(payloads) - end
                    payloads[at : at + batch.num_rows] = batch.column(PAYLOAD).to_pylist()
                break
            except NotFound:
                # The log may be trimmed at any moment; else the event should be there.
                if self._log.first_offset <= first:
                    raise
            except StorageCorrupt as exc:
                start = exc.details.get("end", end)  # only what is damaged is lost
        return payloads


@dataclass(slots=True, eq=False)
class _Block:
    """The payloads of neighbouring offsets, as far as they have been read."""

    start: int
    bytes: int = 0
    payloads: _Payloads = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.payloads)

    def extend(self, payloads: _Payloads) -> None:
        self.payloads += payloads
        self.bytes += sum(_OBJECT_BYTES + len(payload or b"") for payload in payloads)
