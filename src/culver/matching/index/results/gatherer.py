"""Hot: gathers the matches of many events by registration during the search, without a list by event.

A search finds leaves of 64 boxes and, for each, a mask of the boxes that the event lies in. The gather writes mask
and row to a page of that leaf. A full page has 64 of both. Transposed (rows against boxes), it has a mask of the
page's rows for each box, from which 64 rows are written at once:

    page of leaf 3          row   mask of boxes        turned     box 0: rows 10010...  -> 0, 9
                               0   1010...                         box 1: rows 00110...  -> 4, 9
                               4   0110...
                               9   1100...

Registrations that are found without boxes have pages too: a leaf is then 64 registrations in order.
"""

from typing import NamedTuple

import numpy as np

from culver.jit import Integers, Masks, Ranks, Shorts, compiled
from culver.matching.filter import Groups, Rows
from culver.matching.index.intrinsics.vectors import LANES, MOVED, emit, move, ones, transpose
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.layout.segment_arrays import SegmentArrays
from culver.matching.index.search.box_search import TILE, no_findings, search_tile, widest_group
from culver.matching.index.search.bucket_search import EventKeys
from culver.matching.index.search.buffer_pool import result_buffer
from culver.matching.index.search.columnar_matcher import ColumnarView
from culver.matching.index.segments.segment_file import FOREVER

_PAGE = LANES
# The pages that stay in memory between calls.
_MOST_KEPT = 1 << 17
_NEVER_ENDED: Integers = np.empty(0, np.int64)


class Pages(NamedTuple):
    """Places 64p up to 64p + 63 of `masks` and `rows` are page p, which belongs to leaf leaves[p]. `heads` has the
    next place of each leaf, a multiple of 64 where that is on a new page."""

    masks: Masks
    rows: Ranks
    leaves: Shorts
    heads: Integers


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
        events = EventKeys(columns.rows, keys, there, held.start, held.needs)
        filled, used, bits = gather_rows(segment.arrays, events, row_of, pages)
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


@compiled
def _larger(pages: Pages, used: int, wanted: int) -> Pages:
    masks, rows = np.empty(_PAGE * wanted, np.uint64), np.empty(_PAGE * wanted, np.uint16)
    leaves = np.empty(wanted, np.int32)
    masks[: _PAGE * used], rows[: _PAGE * used] = pages.masks[: _PAGE * used], pages.rows[: _PAGE * used]
    leaves[:used] = pages.leaves[:used]
    return Pages(masks, rows, leaves, pages.heads)


@compiled
def gather_rows(
    segment: SegmentArrays, events: EventKeys, row_of: Ranks, pages: Pages
) -> tuple[Pages, int, int]:
    """Write what the events of a batch find to pages. Event i is row row_of[i], and rows ascend. `heads` is zero,
    with an entry for each leaf of boxes and then for each of registrations. Returns the pages, more where they did
    not suffice, the number of those in use, and the number of bits in their masks."""
    rows = events.rows
    boxes = len(segment.slot_registration) // LANES
    one = np.uint64(1)
    used = bits = 0
    memory, widest = no_findings(segment), widest_group(segment)
    heads = pages.heads
    for tile in range(0, rows, TILE):
        end = min(rows, tile + TILE)
        memory, listed = search_tile(segment, widest, tile, end, events, memory)
        found, runs, work, ordered = memory.found, memory.runs, memory.work, memory.ordered
        begins, ends, slots, masks = memory.begins, memory.ends, memory.slots, memory.masks
        most = runs[end - tile] + (ends[ordered[listed - 1]] if listed else 0)
        if used + most > len(pages.leaves):
            pages = _larger(pages, used, 2 * used + most)
        page_masks, page_rows, page_leaves = pages.masks, pages.rows, pages.leaves
        for i in range(listed):
            item = ordered[i]
            row = row_of[work[3 * item]]
            for hit in range(begins[item], ends[item]):
                leaf = slots[np.uintp(hit)] // LANES
                at = heads[np.uintp(leaf)]
                if at % _PAGE == 0:
                    at = used * _PAGE
                    page_leaves[used] = leaf
                    used += 1
                page_masks[np.uintp(at)] = masks[np.uintp(hit)]
                page_rows[np.uintp(at)] = row
                heads[np.uintp(leaf)] = at + 1
                bits += ones(masks[np.uintp(hit)])
        for i in range(end - tile):
            row = row_of[tile + i]
            for place in range(runs[i], runs[i + 1]):
                registration = np.int64(found[np.uintp(place)])
                leaf = boxes + registration // LANES
                bit = one << np.uint64(registration % LANES)
                at = heads[np.uintp(leaf)]
                if at > 0 and page_rows[np.uintp(at - 1)] == row:
                    bits += (page_masks[np.uintp(at - 1)] & bit) == 0
                    page_masks[np.uintp(at - 1)] |= bit
                    continue
                if at % _PAGE == 0:
                    at = used * _PAGE
                    page_leaves[used] = leaf
                    used += 1
                page_masks[np.uintp(at)] = bit
                page_rows[np.uintp(at)] = row
                heads[np.uintp(leaf)] = at + 1
                bits += 1
    return pages, used, bits


@compiled
def turn_over(pages: Pages, used: int, rows: Ranks, slot_begin: Integers) -> None:
    """Write the rows of each slot, one slot after the other. Those of slot s begin at slot_begin[s], and end where
    those of the next begin. `rows` needs 64 places more than there are bits."""
    masks, page_rows, page_leaves, heads = pages
    first = np.zeros(len(heads) + 1, np.int64)
    for page in range(used):
        first[page_leaves[page] + 1] += 1
    for leaf in range(len(heads)):
        first[leaf + 1] += first[leaf]
    ordered = np.empty(used, np.int64)
    for page in range(used):
        leaf = page_leaves[page]
        ordered[first[leaf]] = page
        first[leaf] += 1
    count = begin = 0
    for leaf in range(len(heads)):
        end = first[leaf]
        for i in range(begin, end):
            at = _PAGE * ordered[i]
            if i == end - 1 and heads[leaf] % _PAGE != 0:
                masks[heads[leaf] : at + _PAGE] = 0
            transpose(masks, at)
        for within in range(LANES):
            slot_begin[LANES * leaf + within] = count
            for i in range(begin, end):
                at = _PAGE * ordered[i]
                count = emit(masks[np.uintp(at + within)], page_rows, at, rows, count)
        begin = end
    slot_begin[LANES * len(heads)] = count


@compiled
def by_registration(
    segment: SegmentArrays,
    slots_start: Shorts,
    slots_of: Shorts,
    slot_begin: Integers,
    slot_rows: Ranks,
    until: Integers,
    windowed: bool,
    first_position: int,
    numbers: Integers,
    bounds: Integers,
    rows: Ranks,
) -> tuple[int, int]:
    """Put the rows of each registration's slots together, in order of numbers, without those at positions at which it
    is not in effect. Returns how many registrations have rows, and how many rows there are in all.

    `rows` and `slot_rows` need 32 places more than there are rows. The boxes of registration r are
    slots_of[slots_start[r] : slots_start[r + 1]]."""
    boxes = len(segment.slot_registration)
    own, since = segment.numbers, segment.since
    direct = len(slot_begin) - 1 > boxes
    groups = total = 0
    for registration in range(len(own)):
        start = total
        lists = 0
        last = slots_start[registration + 1] + direct
        for i in range(slots_start[registration], last):
            slot = slots_of[i] if i < last - direct else boxes + registration
            begin, end = slot_begin[np.uintp(slot)], slot_begin[np.uintp(slot + 1)]
            if begin == end:
                continue
            if windowed:
                while begin < end and first_position + slot_rows[begin] < since[registration]:
                    begin += 1
                while begin < end and first_position + slot_rows[end - 1] >= until[registration]:
                    end -= 1
            for at in range(0, end - begin, MOVED):
                # Writes some nonsense behind the end, too, which the next rows replace.
                move(slot_rows, begin + at, rows, total + at)
            total += end - begin
            lists += end > begin
        if lists > 1:
            rows[start:total].sort()
            total = _distinct(rows, start, total)
        numbers[groups] = own[registration]
        bounds[groups] = start
        groups += total > start
    bounds[groups] = total
    return groups, total


@compiled
def _distinct(rows: Ranks, start: int, end: int) -> int:
    """Leave out the second of two equal rows, which are sorted. Returns the new end."""
    kept = start
    for at in range(start, end):
        if at == start or rows[at] != rows[at - 1]:
            rows[kept] = rows[at]
            kept += 1
    return kept
