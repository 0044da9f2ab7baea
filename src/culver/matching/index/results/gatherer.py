"""Gathers the matches of a batch by registration, segment after segment, in memory that is used again."""

import numpy as np

from culver.jit import Integers, Ranks
from culver.matching.groups import Groups, Rows
from culver.matching.index.intrinsics.vectors import LANES
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.results.gather_kernels import Pages, by_registration, gather_rows, turn_over
from culver.matching.index.search.buffer_pool import result_buffer
from culver.matching.index.search.columnar_matcher import ColumnarView
from culver.matching.index.segments.segment_view import FOREVER

# How many pages stay in memory between calls.
_MOST_KEPT = 1 << 17
_NEVER_ENDED = np.empty(0, np.int64)


class Gatherer:
    """Not thread-safe. The caller takes the part of what `find` has found before the next call."""

    def __init__(self) -> None:
        self._pages = _pages(0, 0)
        self._slot_rows: Ranks = np.empty(0, np.uint16)

    def find(self, part: ColumnarView, columns: BatchColumns, row_of: Rows, start: int) -> "Gathered":
        """Find the matches of a batch in one segment. Event i is row `row_of[i]` (ascending), and row r is at log
        position `start + r`."""
        segment = part.segment
        keys, there = columns.fill(segment.programs, segment.literals)
        held = segment.needs.evaluate(columns)
        leaves = segment.leaves
        if len(self._pages.heads) < leaves:
            self._pages = self._pages._replace(heads=np.empty(leaves, np.int64))
        pages = self._pages._replace(heads=self._pages.heads[:leaves])
        pages.heads[:] = 0
        filled, used, bits = gather_rows(
            segment.arrays, columns.rows, keys, there, held.start, held.needs, row_of, pages
        )
        self._pages = filled._replace(heads=self._pages.heads)
        segment.matches_per_row = bits / columns.rows
        return Gathered(self, part, filled, used, bits, start)

    def room(self, bits: int) -> Ranks:
        if len(self._slot_rows) < bits + LANES:
            self._slot_rows = np.empty(bits + bits // 8 + LANES, np.uint16)
        return self._slot_rows

    def let_go(self) -> None:
        """Let go of the memory if it is more than most batches need."""
        if len(self._pages.leaves) > _MOST_KEPT:
            self._pages = _pages(0, len(self._pages.heads))
            self._slot_rows = np.empty(0, np.uint16)


class Gathered:
    """Implements `Found`."""

    def __init__(
        self, memory: Gatherer, part: ColumnarView, pages: Pages, used: int, bits: int, start: int
    ) -> None:
        self.pairs = bits
        self._memory = memory
        self._part = part
        self._pages = pages
        self._used = used
        self._start = start

    def part(self) -> Groups:
        part, segment = self._part, self._part.segment
        windowed = part.until is not None or segment.latest > self._start
        until = part.until
        if until is None:
            until = np.full(len(segment), FOREVER) if windowed else _NEVER_ENDED
        slot_rows = self._memory.room(self.pairs)
        slot_begin = np.empty(LANES * segment.leaves + 1, np.int64)
        turn_over(self._pages, self._used, slot_rows, slot_begin)
        most = min(len(segment), self.pairs)
        numbers, bounds = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
        rows = result_buffer(self.pairs // 4 + LANES).view(np.uint16)
        count, total = by_registration(
            segment.arrays, *segment.slots_of(), slot_begin, slot_rows, until, windowed, self._start, numbers, bounds,
            rows,
        )  # fmt: skip
        self._memory.let_go()
        return Groups(numbers[:count], bounds[: count + 1], rows[:total])


def _pages(count: int, leaves: int) -> Pages:
    size = LANES * count
    heads: Integers = np.empty(leaves, np.int64)
    return Pages(np.empty(size, np.uint64), np.empty(size, np.uint16), np.empty(count, np.int32), heads)
