"""The history of a site: events that the log still has, read by offset and without a subscription.

A page is bounded in events and bytes, so a reader asks again at `next`. Nothing is pinned between two pages: the log
may be trimmed meanwhile, and whoever asks for what is gone hears where the log begins.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.errors import Gone, NotFound, StorageCorrupt, StorageError
from culver.log import ReadableLog
from culver.model.columns import PAYLOAD, concat
from culver.model.language import Predicate

_PAGE_BYTES = 8 * 1024 * 1024
# A filter that nothing matches must not keep a request busy for ever.
_SCANNED_EVENTS = 200_000
_CHUNK_EVENTS = 10_000
# Reading on through so many events that nobody asked for is cheaper than looking for the next one.
_NEAR_EVENTS = 2_000

Offsets = NDArray[np.int64]


class LogBounds(NamedTuple):
    """The log has the events of `[first_offset, next_offset)`."""

    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some events, ascending, in columns as `model.columns` has them. `next` is where to read on; of the events in
    between, those of `lost`, from the first up to the second, cannot be read any more."""

    offsets: Offsets
    events: pa.RecordBatch
    next: int
    lost: tuple[int, int] | None = None


class LogHistory:
    """Implements the role `history` over a log. Reads in threads."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log

    async def bounds(self) -> LogBounds:
        next_offset = self._log.next_offset
        return LogBounds(await asyncio.to_thread(lambda: self._log.first_offset), next_offset)

    async def offset_at(self, received_us: int) -> int:
        return await asyncio.to_thread(self._log.offset_at, received_us)

    async def read(self, start: int, end: int, limit: int, predicate: Predicate | None = None) -> HistoryPage:
        return await asyncio.to_thread(self._read, start, min(end, self._log.next_offset), limit, predicate)

    async def pick(self, offsets: Sequence[int]) -> HistoryPage:
        if offsets and offsets[-1] >= self._log.next_offset:
            raise StorageError(f"the log ends before the event at offset {offsets[-1]}")
        return await asyncio.to_thread(self._pick, np.array(offsets, np.int64))

    def _read(self, start: int, end: int, limit: int, predicate: Predicate | None) -> HistoryPage:
        page = _Page(start, max(start, end))
        select = None if predicate is None else _selection(predicate)
        while page.next < page.end and len(page) < limit and not page.is_full:
            most = limit - len(page) if select is None else _CHUNK_EVENTS
            chunk = _Page(page.next, min(page.end, page.next + most))
            try:
                for first, batch in self._events(chunk.next, chunk.end):
                    chunk.add(first, batch, first + batch.num_rows)
                    if chunk.is_full:
                        break
            except Gone:
                if chunk.next == start:
                    raise
                page.end = chunk.next  # trimmed a moment ago; the next request meets it
            except StorageCorrupt as exc:
                chunk.lose(chunk.next, min(exc.details.get("end", page.end), page.end))
            page.extend(chunk, select, limit)
            if page.lost is not None:
                break
        return page.made()

    def _pick(self, offsets: Offsets) -> HistoryPage:
        if not len(offsets):
            return _Page(0, 0).made()
        page, at = _Page(int(offsets[0]), int(offsets[-1]) + 1), 0
        while at < len(offsets) and not page.is_full:
            far = np.flatnonzero(np.diff(offsets[at:]) > _NEAR_EVENTS)
            last = int(offsets[at + int(far[0])] if len(far) else offsets[-1])
            try:
                for first, batch in self._events(int(offsets[at]), last + 1):
                    stop = int(offsets.searchsorted(first + batch.num_rows))
                    rows, at = offsets[at:stop] - first, stop
                    following = int(offsets[at]) if at < len(offsets) else page.end
                    page.add(first, batch.take(pa.array(rows)), following, rows)
                    if page.is_full:
                        break
            except (Gone, StorageCorrupt) as exc:
                end = exc.details.get("first_offset", exc.details.get("end", page.end))
                if int(offsets[at]) < end:  # else nobody asked for what is missing
                    page.lose(int(offsets[at]), min(end, page.end))
                    break
        return page.made()

    def _events(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        try:
            yield from self._log.read(start, end)
        except NotFound as exc:
            first = self._log.first_offset
            if first <= start:
                raise
            raise Gone(
                f"the log begins at offset {first}; the events from {start} up to there are no longer kept",
                field="from",
                first_offset=first,
            ) from exc


class _Page:
    def __init__(self, start: int, end: int) -> None:
        self.next = start
        self.end = end
        self.lost: tuple[int, int] | None = None
        self._offsets: list[Offsets] = []
        self._batches: list[pa.RecordBatch] = []
        self._events = self._bytes = self._scanned = 0

    def __len__(self) -> int:
        return self._events

    @property
    def is_full(self) -> bool:
        return self._bytes >= _PAGE_BYTES or self._scanned >= _SCANNED_EVENTS

    def add(self, first: int, batch: pa.RecordBatch, following: int, rows: Offsets | None = None) -> None:
        """Take the events at `first`, or at `rows` behind it; what comes next begins at `following`."""
        self._offsets.append(first + (np.arange(batch.num_rows) if rows is None else rows))
        self._batches.append(batch)
        self._events += batch.num_rows
        self._bytes += batch.column(PAYLOAD).nbytes
        self.next = following

    def lose(self, start: int, end: int) -> None:
        self.lost = start, end
        self.next = end

    def extend(self, chunk: "_Page", select: Callable[[pa.RecordBatch], Offsets] | None, limit: int) -> None:
        """Take what a filter selects of a chunk, up to `limit` events."""
        self._scanned += len(chunk)
        following = chunk.next
        if chunk:
            made = chunk.made()
            events, offsets = made.events, made.offsets
            if select is not None:
                rows = select(events)
                if len(rows) > limit - len(self):
                    rows = rows[: limit - len(self)]
                    following = int(offsets[rows[-1]]) + 1
                    chunk.lost = None
                events, offsets = events.take(pa.array(rows)), offsets[rows]
            self._offsets.append(offsets)
            self._batches.append(events)
            self._events += len(offsets)
            self._bytes += events.column(PAYLOAD).nbytes
        self.next, self.lost = following, chunk.lost

    def made(self) -> HistoryPage:
        offsets = np.concatenate([np.empty(0, np.int64), *self._offsets])
        return HistoryPage(offsets, concat(self._batches), self.next, self.lost)


def _selection(predicate: Predicate) -> Callable[[pa.RecordBatch], Offsets]:
    from culver.matching import ColumnarFilter

    chosen = ColumnarFilter()
    chosen.add([(0, predicate)])
    return lambda batch: np.flatnonzero(np.diff(chosen.match(batch).offsets))
