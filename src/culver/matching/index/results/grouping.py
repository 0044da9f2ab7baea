"""Hot: matches that are listed event by event, grouped by registration. For few pairs; many are gathered as they are
found (`gatherer`)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.jit import compiled
from culver.matching.filter import Matches
from culver.matching.groups import Groups, Rows, Runs
from culver.matching.index.intrinsics.vectors import lowest

_NARROW = 1 << 20  # numbers among which a few are found by marks
_WORTH = 64  # numbers to every pair, among which many are
_FEW_ROWS = 64  # that are put in order one by one


class Grouping:
    """Keeps its working memory from one call to the next. Not thread-safe."""

    def __init__(self) -> None:
        # Both for each number, from the lowest on, and zero between calls.
        self._counts = np.zeros(0, np.int32)
        self._marks = np.zeros(0, np.uint64)

    def group(self, lists: Sequence[Runs], grouped: Sequence[Groups] = ()) -> Groups:
        """Group the matches of several lists, and of what is grouped already, all over the same events. No pair is
        there twice. Quicker than to join the groups of each where a registration has few rows in each of them."""
        lists = [each for each in lists if len(each.numbers)]
        grouped = [each for each in grouped if len(each.numbers)]
        pairs = sum(len(each.numbers) for each in lists) + sum(len(each.rows) for each in grouped)
        low = min([each.low for each in lists] + [int(each.numbers[0]) for each in grouped], default=0)
        high = max([each.high for each in lists] + [int(each.numbers[-1]) for each in grouped], default=0)
        width = high - low + 1
        if width > max(_NARROW, _WORTH * pairs):
            return _sorted(lists, grouped)
        return self._spread(lists, low, width, pairs, grouped)

    def group_matches(self, matches: Matches, numbers: tuple[int, int], first_row: int) -> Groups:
        """The same of one list as it was found, over events that are rows from a first one on. `numbers`: the lowest
        and the highest there may be."""
        low, width, pairs = numbers[0], numbers[1] - numbers[0] + 1, len(matches.numbers)
        if width > max(_NARROW, _WORTH * pairs):
            rows = np.arange(first_row, first_row + len(matches.offsets) - 1).astype(np.uint16)
            return sorted_groups(matches.numbers, np.repeat(rows, np.diff(matches.offsets)))
        counts, marks = self._working_memory(width)
        most = min(pairs, width)
        distinct, bounds = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        placed = np.empty(pairs, np.uint16)
        groups = spread_matches(
            matches.offsets, matches.numbers, first_row, low, width, counts, marks, distinct, bounds, placed
        )
        return Groups(distinct[:groups], bounds[: groups + 1], placed)

    def _working_memory(self, width: int) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
        if len(self._counts) < width:
            self._counts = np.zeros(width, np.int32)
            self._marks = np.zeros((width + 63) // 64, np.uint64)
        return self._counts, self._marks

    def _spread(
        self, lists: Sequence[Runs], low: int, width: int, pairs: int, grouped: Sequence[Groups]
    ) -> Groups:
        """Numbers are counted and marked, and their marks found in order."""
        counts, marks = self._working_memory(width)
        most = min(pairs, width)
        numbers, bounds = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        rows = np.empty(pairs, np.uint16)
        for runs in lists:
            count_pairs(runs.numbers, runs.low - low, counts, marks)
        for each in grouped:
            count_groups(each.numbers, each.bounds, low, counts, marks)
        groups = lay_out(low, counts, marks[: (width + 63) // 64], numbers, bounds)
        for runs in lists:
            place_pairs(runs.rows, runs.lengths, runs.numbers, runs.low - low, counts, rows)
        for each in grouped:
            place_groups(each.numbers, each.bounds, each.rows, low, counts, rows)
        finish(numbers[:groups], bounds, low, len(lists) + len(grouped) > 1, counts, rows)
        return Groups(numbers[:groups], bounds[: groups + 1], rows)


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    one = np.zeros(1, np.uint16)
    run = Runs(0, 0, one, np.ones(1, np.uint32), np.zeros(1, np.uint32))
    Grouping().group_matches(Matches(np.zeros(1, np.int64), np.zeros(0, np.int64)), (0, 0), 0)
    Grouping().group([run], [Groups(np.ones(1, np.int64), np.arange(2, dtype=np.int64), one)])


def sorted_groups(numbers: NDArray[np.int64], rows: Rows) -> Groups:
    """Of pairs of a registration and a row, in any order, that are few, or whose numbers lie far apart."""
    order = np.lexsort((rows, numbers))
    ordered = numbers[order]
    first_of = np.flatnonzero(np.diff(ordered, prepend=-1))
    return Groups(ordered[first_of], np.append(first_of, len(rows)), rows[order])


def _sorted(lists: Sequence[Runs], grouped: Sequence[Groups]) -> Groups:
    rows = [np.repeat(each.rows, each.lengths) for each in lists] + [each.rows for each in grouped]
    numbers = [each.low + each.numbers.astype(np.int64) for each in lists]
    numbers += [np.repeat(each.numbers, np.diff(each.bounds)) for each in grouped]
    return sorted_groups(np.concatenate(numbers), np.concatenate(rows))


@compiled
def count_pairs(
    numbers: NDArray[np.uint32] | NDArray[np.int64],
    shift: int,
    counts: NDArray[np.int32],
    marks: NDArray[np.uint64],
) -> None:
    one = np.uint64(1)
    for number in numbers:
        place = np.uintp(number + shift)
        counts[place] += 1
        marks[place >> np.uintp(6)] |= one << np.uint64(place & np.uintp(63))


@compiled
def count_groups(
    numbers: NDArray[np.int64],
    bounds: NDArray[np.int64],
    low: int,
    counts: NDArray[np.int32],
    marks: NDArray[np.uint64],
) -> None:
    one = np.uint64(1)
    for group in range(len(numbers)):
        place = np.uintp(numbers[group] - low)
        counts[place] += bounds[group + 1] - bounds[group]
        marks[place >> np.uintp(6)] |= one << np.uint64(place & np.uintp(63))


@compiled
def lay_out(
    low: int,
    counts: NDArray[np.int32],
    marks: NDArray[np.uint64],
    distinct: NDArray[np.int64],
    bounds: NDArray[np.int64],
) -> int:
    """From how many pairs each number has to where its rows begin; `marks` is zero again. Returns how many numbers
    there are."""
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
def place_pairs(
    run_rows: Rows,
    lengths: NDArray[np.uint32],
    numbers: NDArray[np.uint32],
    shift: int,
    counts: NDArray[np.int32],
    rows: Rows,
) -> None:
    begin = np.int64(0)
    for run in range(len(run_rows)):
        row, end = run_rows[run], begin + np.int64(lengths[run])
        for at in range(begin, end):
            place = np.uintp(numbers[at] + shift)
            rows[counts[place]] = row
            counts[place] += 1
        begin = end


@compiled
def place_groups(
    numbers: NDArray[np.int64],
    bounds: NDArray[np.int64],
    given: Rows,
    low: int,
    counts: NDArray[np.int32],
    rows: Rows,
) -> None:
    for group in range(len(numbers)):
        place = np.uintp(numbers[group] - low)
        into = counts[place]
        for at in range(bounds[group], bounds[group + 1]):
            rows[into] = given[at]
            into += 1
        counts[place] = into


@compiled
def finish(
    distinct: NDArray[np.int64],
    bounds: NDArray[np.int64],
    low: int,
    mixed: bool,
    counts: NDArray[np.int32],
    rows: Rows,
) -> None:
    """`counts` is zero again, and the rows of each number ascend where they are `mixed` from several lists."""
    for group in range(len(distinct)):
        counts[distinct[group] - low] = 0
        if mixed and bounds[group + 1] - bounds[group] <= _FEW_ROWS:
            put_in_order(rows, bounds[group], bounds[group + 1])
        elif mixed:
            rows[bounds[group] : bounds[group + 1]].sort()


@compiled
def put_in_order(rows: Rows, begin: int, end: int) -> None:
    """A few rows, or such as are mostly in order already."""
    for place in range(begin + 1, end):
        value, hole = rows[np.uintp(place)], place
        while hole > begin and rows[np.uintp(hole - 1)] > value:
            rows[np.uintp(hole)] = rows[np.uintp(hole - 1)]
            hole -= 1
        rows[np.uintp(hole)] = value


@compiled
def spread_matches(
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64],
    first_row: int,
    low: int,
    width: int,
    counts: NDArray[np.int32],
    marks: NDArray[np.uint64],
    distinct: NDArray[np.int64],
    bounds: NDArray[np.int64],
    rows: Rows,
) -> int:
    """All steps for one list as it was found, in one call, which for few events takes as long as what it does; the
    last three arrays are filled. Returns how many numbers there are."""
    count_pairs(numbers, -low, counts, marks)
    groups = lay_out(low, counts, marks[: (width + 63) // 64], distinct, bounds)
    for event in range(len(offsets) - 1):
        row = np.uint16(first_row + event)
        for at in range(offsets[event], offsets[event + 1]):
            place = np.uintp(numbers[at] - low)
            rows[counts[place]] = row
            counts[place] += 1
    finish(distinct[:groups], bounds, low, False, counts, rows)
    return groups
