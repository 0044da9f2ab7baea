"""Hot: grouping by registration. The gatherer alone does it in another way, while it searches.

A counting sort: count the rows of each number, lay the groups out in order of numbers, put every row in its place,
and merge a part's rows of a number with those that are there already. A bitmap finds the few numbers that occur
without a look at every counter.

    parts     event 0: 7 2   event 3: 2 5 9        counts   2: 2   5: 2   7: 1   9: 1
              registration 5: 1                    begins   2: 0   5: 2   7: 4   9: 5
                                                   rows     0 3    1 3    0      3

Ranks among the distinct numbers take the place of numbers that lie far apart.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from culver.jit import Integers, Masks, Shorts, compiled, read_only
from culver.matching.filter import MOST_EVENTS, Groups, Matched, MatchList, Rows
from culver.matching.index.intrinsics.vectors import lowest
from culver.matching.index.search.buffer_pool import result_buffer

# A span of so many numbers is always counted as it is: reading its bitmap takes 5 µs.
_NARROW = 1 << 20
# A wider one is counted up to so many numbers per pair, and to fewer once the counters take more than 128 MiB.
_WIDE = 1 << 24
_NUMBERS_PER_PAIR = 4_096
_NUMBERS_PER_PAIR_IF_WIDE = 64
# Rows from which on the buffer pool is quicker than new memory.
_POOLED = 1 << 19


def pooled_rows(count: int) -> Rows:
    """Memory for so many rows, from the buffer pool where they are many."""
    if count < _POOLED:
        return np.empty(count, np.uint16)
    return result_buffer(-(-count // 4)).view(np.uint16)[:count]


class Grouping:
    """Keeps its working memory from one call to the next. Not thread-safe."""

    def __init__(self) -> None:
        # For each number from the lowest on: a counter, where its rows begin, and a bit that marks it. Counters and
        # marks are zero between calls.
        self._counts: Shorts = np.zeros(0, np.int32)
        self._begins: Shorts = np.zeros(0, np.int32)
        self._marks: Masks = np.zeros(0, np.uint64)

    def group(
        self,
        parts: Sequence[Matched],
        first_rows: Sequence[int] | None = None,
        new_rows: Callable[[int], Rows] = pooled_rows,
    ) -> Groups:
        """Group the matches of all parts. No pair occurs twice.

        The parts cover the same events, unless `first_rows` says where the rows of each part begin: then every part
        covers later events than the one before. `new_rows` makes the memory for the result's rows. The only part
        with anything in it is returned as it is if that is grouped already."""
        shifted = [
            (part, shift)
            for part, shift in zip(parts, first_rows or [0] * len(parts), strict=True)
            if part.pairs
        ]
        if len(shifted) == 1 and isinstance(part := shifted[0][0], Groups) and shifted[0][1] == 0:
            return part
        if len(shifted) > 1 and first_rows is None and (chained := _chained(parts, new_rows)) is not None:
            return chained
        pairs = sum([part.pairs for part, _ in shifted])
        low = min([part.span[0] for part, _ in shifted], default=0)
        width = max([part.span[1] for part, _ in shifted], default=-1) + 1 - low
        per_pair = _NUMBERS_PER_PAIR if width <= _WIDE else _NUMBERS_PER_PAIR_IF_WIDE
        if width <= max(_NARROW, per_pair * pairs):
            return self._counted(shifted, low, width, new_rows(pairs))
        distinct = np.unique(np.concatenate([part.numbers for part, _ in shifted]))
        ranked: list[tuple[Matched, int]] = [
            (part._replace(numbers=distinct.searchsorted(part.numbers)), shift) for part, shift in shifted
        ]
        groups = self._counted(ranked, 0, len(distinct), new_rows(pairs))
        return groups._replace(numbers=distinct[groups.numbers])

    def _counted(self, parts: Sequence[tuple[Matched, int]], low: int, width: int, rows: Rows) -> Groups:
        """The same for numbers from `low` up to `low + width`; fills `rows`."""
        if len(self._counts) < width:
            self._counts, self._begins = np.zeros(width, np.int32), np.zeros(width, np.int32)
            self._marks = np.zeros((width + 63) // 64, np.uint64)
        counts, begins, marks = self._counts, self._begins, self._marks[: (width + 63) // 64]
        most = min(len(rows), width)
        numbers, bounds = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        if len(parts) == 1 and isinstance(part := parts[0][0], MatchList):
            first_row = part.first_row + parts[0][1]
            count = group_list(
                part.offsets, part.numbers, first_row, low, counts, marks, numbers, bounds, rows
            )
            return Groups(numbers[:count], bounds[: count + 1], rows)
        lists = [(part, shift) for part, shift in parts if isinstance(part, MatchList)]
        groups = [
            (Groups(read_only(part.numbers), read_only(part.bounds), read_only(part.rows)), shift)
            for part, shift in parts
            if isinstance(part, Groups)
        ]
        for listed, _ in lists:
            count_list(listed.numbers, low, counts, marks)
        for grouped, _ in groups:
            count_groups(grouped.numbers, grouped.bounds, low, counts, marks)
        count = lay_out(low, counts, begins, marks, numbers, bounds)
        for listed, shift in lists:
            place_list(listed.offsets, listed.numbers, listed.first_row + shift, low, counts, rows)
        if len(lists) > 1:
            order_rows(numbers[:count], low, begins, counts, rows)
        for grouped, shift in groups:
            place_groups(*grouped, shift, low, counts, begins, rows)
        clear(numbers[:count], low, counts)
        return Groups(numbers[:count], bounds[: count + 1], rows)


def _chained(parts: Sequence[Matched], new_rows: Callable[[int], Rows]) -> Groups | None:
    """The groups of parts whose numbers do not overlap, one part after the other; None for any other parts. Segments
    of an index mostly are such parts. For five million rows of a block this takes 4 ms and counting 6, where the
    search takes 27."""
    groups = [part for part in parts if isinstance(part, Groups) and part.pairs]
    if sum(part.pairs for part in parts) != sum(part.pairs for part in groups):
        return None
    groups.sort(key=lambda part: part.span)
    if any(one.span[1] >= other.span[0] for one, other in itertools.pairwise(groups)):
        return None
    numbers = np.concatenate([part.numbers for part in groups])
    bounds = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(np.concatenate([np.diff(part.bounds) for part in groups]), out=bounds[1:])
    rows = new_rows(int(bounds[-1]))
    np.concatenate([part.rows for part in groups], out=rows)
    return Groups(numbers, bounds, rows)


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    one = np.zeros(1, np.int64)
    listed = MatchList(0, (0, 0), np.arange(2, dtype=np.int64), one)
    grouped = Groups(one, np.arange(2, dtype=np.int64), np.ones(1, np.uint16))
    Grouping().group([listed])
    Grouping().group([listed, listed._replace(first_row=2), grouped])


@compiled
def group_list(
    offsets: Integers,
    numbers: Integers,
    first_row: int,
    low: int,
    counts: Shorts,
    marks: Masks,
    distinct: Integers,
    bounds: Integers,
    rows: Rows,
) -> int:
    """All steps for one list. One call instead of four saves a tenth of the time that one event takes in all."""
    count_list(numbers, low, counts, marks)
    count = lay_out(low, counts, counts[:0], marks, distinct, bounds)
    place_list(offsets, numbers, first_row, low, counts, rows)
    clear(distinct[:count], low, counts)
    return count


@compiled
def count_list(numbers: Integers, low: int, counts: Shorts, marks: Masks) -> None:
    one = np.uint64(1)
    for number in numbers:
        place = np.uintp(number - low)
        counts[place] += 1
        marks[place >> np.uintp(6)] |= one << np.uint64(place & np.uintp(63))


@compiled
def count_groups(numbers: Integers, bounds: Integers, low: int, counts: Shorts, marks: Masks) -> None:
    for group in range(len(numbers)):
        place = np.uintp(numbers[group] - low)
        length = bounds[group + 1] - bounds[group]
        counts[place] += length
        marks[place >> np.uintp(6)] |= np.uint64(length > 0) << np.uint64(place & np.uintp(63))


@compiled
def lay_out(
    low: int, counts: Shorts, begins: Shorts, marks: Masks, distinct: Integers, bounds: Integers
) -> int:
    """Turn the count of each number into the place of its first row, which becomes its begin too unless `begins` is
    empty, and clear the marks. Returns how many distinct numbers there are."""
    keep_begins = len(begins) > 0
    count = total = 0
    for word in range(len(marks)):
        left = marks[word]
        marks[word] = 0
        while left != 0:
            own = 64 * word + lowest(left)
            left &= left - np.uint64(1)
            distinct[count] = low + own
            bounds[count] = total
            length = counts[own]
            counts[own] = total
            if keep_begins:
                begins[own] = total
            total += length
            count += 1
    bounds[count] = total
    return count


@compiled
def place_list(
    offsets: Integers, numbers: Integers, first_row: int, low: int, counts: Shorts, rows: Rows
) -> None:
    for event in range(len(offsets) - 1):
        row = np.uint16(first_row + event)
        for at in range(offsets[event], offsets[event + 1]):
            place = np.uintp(numbers[at] - low)
            rows[counts[place]] = row
            counts[place] += 1


@compiled
def place_groups(
    numbers: Integers,
    bounds: Integers,
    given: Rows,
    first_row: int,
    low: int,
    counts: Shorts,
    begins: Shorts,
    rows: Rows,
) -> None:
    """Merge the rows of each group with those that its number has already."""
    first = np.uint16(first_row)
    for group in range(len(numbers)):
        place = np.uintp(numbers[group] - low)
        at, end = bounds[group], bounds[group + 1]
        begin, into = int(begins[place]), int(counts[place])
        counts[place] = into + end - at
        if into > begin and at < end and rows[np.uintp(into - 1)] > given[np.uintp(at)] + first:
            merge_rows(rows, begin, into, given, at, end, first)
            continue
        for each in range(at, end):
            rows[np.uintp(into)] = given[np.uintp(each)] + first
            into += 1


@compiled
def clear(distinct: Integers, low: int, counts: Shorts) -> None:
    for number in distinct:
        counts[number - low] = 0


@compiled
def order_rows(distinct: Integers, low: int, begins: Shorts, counts: Shorts, rows: Rows) -> None:
    """Put the rows of each number in order: merge run after run, one for each list, with those before it."""
    aside = np.empty(MOST_EVENTS, np.uint16)
    none = np.uint16(0)
    for number in distinct:
        begin, end = int(begins[number - low]), int(counts[number - low])
        run = begin + 1
        while run < end:
            if rows[np.uintp(run - 1)] <= rows[np.uintp(run)]:
                run += 1
                continue
            into, held = run, 0
            while into < end and (held == 0 or rows[np.uintp(into - 1)] <= rows[np.uintp(into)]):
                aside[np.uintp(held)] = rows[np.uintp(into)]
                held += 1
                into += 1
            merge_rows(rows, begin, run, aside, 0, held, none)
            run = into


@compiled
def merge_rows(rows: Rows, begin: int, end: int, given: Rows, at: int, last: int, first: np.uint16) -> None:
    """Merge `given[at:last]`, raised by `first`, into `rows[begin:end]`, behind which there is room for them. Begins
    at the end, so that nothing has to be moved out of the way."""
    into = end + last - at
    end, last = end - 1, last - 1
    # Without a branch: which of two rows is the larger cannot be foretold.
    while end >= begin and last >= at:
        into -= 1
        one, other = rows[np.uintp(end)], np.uint16(given[np.uintp(last)] + first)
        larger = one > other
        rows[np.uintp(into)] = one if larger else other
        end -= larger
        last -= not larger
    while last >= at:
        into -= 1
        rows[np.uintp(into)] = given[np.uintp(last)] + first
        last -= 1
