"""Hot: grouping by registration. The gatherer alone does it in another way, while it searches.

A counting sort: count the rows of each number, lay the groups out in order of numbers, put every row in its place.
A bitmap of the numbers finds the few that occur without a look at each counter.

    parts     event 0: 7 2   event 3: 2 5 9        counts   2: 2   5: 2   7: 1   9: 1
              registration 5: 1                    begins   2: 0   5: 2   7: 4   9: 5
                                                   rows     0 3    3 1    0      3     then each group in order

Numbers that lie far apart are first replaced by their ranks among the distinct ones.
"""

from collections.abc import Callable, Sequence

import numpy as np

from culver.jit import Integers, Masks, Shorts, compiled, read_only
from culver.matching.groups import MOST_EVENTS, Groups, Matched, MatchList, Rows
from culver.matching.index.intrinsics.vectors import lowest
from culver.matching.index.search.buffer_pool import result_buffer

# Numbers are counted as they are up to this span, or up to so many for each pair.
_NARROW = 1 << 20
_NUMBERS_PER_PAIR = 64


def pooled_rows(count: int) -> Rows:
    """Memory for so many rows, from the buffer pool."""
    return result_buffer(-(-count // 4)).view(np.uint16)[:count]


class Grouping:
    """Keeps its working memory from one call to the next. Not thread-safe."""

    def __init__(self) -> None:
        # A counter and a bit for each number, from the lowest on. All are zero between calls.
        self._counts: Shorts = np.zeros(0, np.int32)
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
        with anything in it is returned as it is where that is grouped already."""
        shifts = [0] * len(parts) if first_rows is None else first_rows
        shifted = [(part, shift) for part, shift in zip(parts, shifts, strict=True) if part.pairs]
        if len(shifted) == 1 and isinstance(part := shifted[0][0], Groups) and shifted[0][1] == 0:
            return part
        spans = [part.span for part, _ in shifted]
        pairs = sum([part.pairs for part, _ in shifted])
        low, high = min([span[0] for span in spans], default=0), max([span[1] for span in spans], default=-1)
        in_order = first_rows is not None or len(shifted) == 1
        if high - low < max(_NARROW, _NUMBERS_PER_PAIR * pairs):
            return self._counted(shifted, low, high + 1 - low, new_rows(pairs), in_order)
        distinct = np.unique(np.concatenate([part.numbers for part, _ in shifted]))
        ranked: list[tuple[Matched, int]] = [
            (part._replace(numbers=distinct.searchsorted(part.numbers)), shift) for part, shift in shifted
        ]
        groups = self._counted(ranked, 0, len(distinct), new_rows(pairs), in_order)
        return groups._replace(numbers=distinct[groups.numbers])

    def _counted(
        self, parts: Sequence[tuple[Matched, int]], low: int, width: int, rows: Rows, in_order: bool
    ) -> Groups:
        """The same for numbers from `low` up to `low + width`; fills `rows`. With `in_order`, the rows of a
        registration ascend from part to part."""
        if len(self._counts) < width:
            self._counts = np.zeros(width, np.int32)
            self._marks = np.zeros((width + 63) // 64, np.uint64)
        most = min(len(rows), width)
        numbers, bounds = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        counts, marks = self._counts, self._marks[: (width + 63) // 64]
        result = numbers, bounds, rows
        if len(parts) == 1 and isinstance(part := parts[0][0], MatchList):
            first_row = part.first_row + parts[0][1]
            count = group_list(part.offsets, part.numbers, first_row, low, counts, marks, *result)
            return Groups(numbers[:count], bounds[: count + 1], rows)
        for part, _ in parts:
            if isinstance(part, MatchList):
                count_list(part.numbers, low, counts, marks)
            else:
                count_groups(read_only(part.numbers), read_only(part.bounds), low, counts, marks)
        count = lay_out(low, counts, marks, numbers, bounds)
        for part, shift in parts:
            if isinstance(part, MatchList):
                place_list(part.offsets, part.numbers, part.first_row + shift, low, counts, rows)
            else:
                arrays = read_only(part.numbers), read_only(part.bounds), read_only(part.rows)
                place_groups(*arrays, shift, low, counts, rows)
        clear(numbers[:count], low, counts)
        if not in_order:
            order_rows(bounds[: count + 1], rows)
        return Groups(numbers[:count], bounds[: count + 1], rows)


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    one = np.zeros(1, np.int64)
    listed = MatchList(0, (0, 0), np.arange(2, dtype=np.int64), one)
    grouped = Groups(one, np.arange(2, dtype=np.int64), np.ones(1, np.uint16))
    Grouping().group([listed])
    Grouping().group([listed, grouped])


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
    count = lay_out(low, counts, marks, distinct, bounds)
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
def lay_out(low: int, counts: Shorts, marks: Masks, distinct: Integers, bounds: Integers) -> int:
    """Turn the count of each number into the place of its first row, and clear the marks. Returns how many distinct
    numbers there are."""
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
    numbers: Integers, bounds: Integers, given: Rows, first_row: int, low: int, counts: Shorts, rows: Rows
) -> None:
    first = np.uint16(first_row)
    for group in range(len(numbers)):
        place = np.uintp(numbers[group] - low)
        into = counts[place]
        for at in range(bounds[group], bounds[group + 1]):
            rows[into] = given[at] + first
            into += 1
        counts[place] = into


@compiled
def clear(distinct: Integers, low: int, counts: Shorts) -> None:
    for number in distinct:
        counts[number - low] = 0


@compiled
def order_rows(bounds: Integers, rows: Rows) -> None:
    """Put the rows of each group in order. They consist of one ascending run for each part: merge run after run, from
    the end on, into those before it."""
    aside = np.empty(MOST_EVENTS, np.uint16)
    for group in range(len(bounds) - 1):
        begin, end = bounds[group], bounds[group + 1]
        run = begin + 1
        while run < end:
            if rows[np.uintp(run - 1)] <= rows[np.uintp(run)]:
                run += 1
                continue
            held, into = 1, run + 1
            aside[0] = rows[np.uintp(run)]
            while into < end and rows[np.uintp(into - 1)] <= rows[np.uintp(into)]:
                aside[np.uintp(held)] = rows[np.uintp(into)]
                held += 1
                into += 1
            left, held, run = run - 1, held - 1, into
            # Without a branch: which of two rows is the larger cannot be foretold.
            while left >= begin and held >= 0:
                into -= 1
                one, other = rows[np.uintp(left)], aside[np.uintp(held)]
                larger = one > other
                rows[np.uintp(into)] = one if larger else other
                left -= larger
                held -= not larger
            for at in range(held + 1):
                rows[np.uintp(begin + at)] = aside[np.uintp(at)]
