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

from culver.jit import Bytes, Integers, Masks, Ranks, Shorts, compiled
from culver.matching.index.intrinsics.vectors import LANES, MOVED, emit, move, ones, transpose
from culver.matching.index.layout.segment_arrays import SegmentArrays
from culver.matching.index.search.box_search import TILE, no_findings, search_tile, widest_group

_PAGE = LANES


class Pages(NamedTuple):
    """Places 64p up to 64p + 63 of `masks` and `rows` are page p, which belongs to leaf leaves[p]. `heads` has the
    next place of each leaf, a multiple of 64 where that is on a new page."""

    masks: Masks
    rows: Ranks
    leaves: Shorts
    heads: Integers


@compiled
def _larger(pages: Pages, used: int, wanted: int) -> Pages:
    masks, rows = np.empty(_PAGE * wanted, np.uint64), np.empty(_PAGE * wanted, np.uint16)
    leaves = np.empty(wanted, np.int32)
    masks[: _PAGE * used], rows[: _PAGE * used] = pages.masks[: _PAGE * used], pages.rows[: _PAGE * used]
    leaves[:used] = pages.leaves[:used]
    return Pages(masks, rows, leaves, pages.heads)


@compiled
def gather_rows(
    segment: SegmentArrays,
    rows: int,
    values: Integers,
    there: Bytes,
    held_start: Integers,
    held_needs: Shorts,
    row_of: Ranks,
    pages: Pages,
) -> tuple[Pages, int, int]:
    """Write what the events of a batch find to pages. Event i is row row_of[i], and rows ascend. `search_tile` has
    the other arguments. `heads` is zero, with an entry for each leaf of boxes and then for each of registrations.
    Returns the pages, more where they did not suffice, how many are used, and how many bits their masks have."""
    boxes = len(segment.slot_registration) // LANES
    one = np.uint64(1)
    used = bits = 0
    memory, widest = no_findings(segment), widest_group(segment)
    heads = pages.heads
    for tile in range(0, rows, TILE):
        end = min(rows, tile + TILE)
        memory, listed = search_tile(
            segment, widest, tile, end, rows, values, there, held_start, held_needs, memory
        )
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
