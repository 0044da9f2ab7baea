"""Hot: matches that are listed event by event, grouped by registration. For few pairs; many are gathered as they are
found (`gatherer`)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.groups import MOST_EVENTS, Groups, Rows
from culver.matching.index.arrays import compiled
from culver.matching.index.vectors import lowest

_NARROW = 1 << 20  # numbers among which a few are found by marks
_WORTH = 64  # numbers to every pair, among which many are


class Grouping:
    """Keeps its working memory from one call to the next. Not thread-safe."""

    def __init__(self) -> None:
        # Both for each number, from the lowest on, and zero between calls.
        self._counts = np.zeros(0, np.int32)
        self._marks = np.zeros(0, np.uint64)

    def group(
        self, lists: Sequence[tuple[Matches, int]], low: int, high: int, grouped: Sequence[Groups] = ()
    ) -> Groups:
        """Group the matches of several lists, each of events that are rows from a first one on, below MOST_EVENTS,
        and of what is grouped already. All numbers are in `low..high`. No pair is there twice."""
        pairs = sum(len(each.rows) for each in grouped)
        for matches, first_row in lists:
            if first_row + len(matches.offsets) - 1 > MOST_EVENTS:
                raise ValueError(
                    f"{first_row + len(matches.offsets) - 1} events do not fit into one grouping"
                )
            pairs += len(matches.numbers)
        width = high - low + 1
        if width > max(_NARROW, _WORTH * pairs):
            return _sorted(lists, grouped)
        return self._spread(lists, low, width, pairs, grouped)

    def _spread(
        self,
        lists: Sequence[tuple[Matches, int]],
        low: int,
        width: int,
        pairs: int,
        grouped: Sequence[Groups],
    ) -> Groups:
        """Numbers are counted and marked, and their marks found in order."""
        if len(self._counts) < width:
            self._counts = np.zeros(width, np.int32)
            self._marks = np.zeros((width + 63) // 64, np.uint64)
        most = min(pairs, width)
        numbers, bounds = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        rows = np.empty(pairs, np.uint16)
        for matches, _ in lists:
            count_pairs(matches.numbers, low, self._counts, self._marks)
        for each in grouped:
            count_groups(each.numbers, each.bounds, low, self._counts, self._marks)
        groups = lay_out(low, self._counts, self._marks, numbers, bounds)
        for matches, first_row in lists:
            place_pairs(matches.offsets, matches.numbers, low, first_row, self._counts, rows)
        for each in grouped:
            place_groups(each.numbers, each.bounds, each.rows, low, self._counts, rows)
        finish(numbers[:groups], bounds, low, len(lists) + len(grouped) > 1, self._counts, rows)
        return Groups(numbers[:groups], bounds[: groups + 1], rows)


class Listed:
    """Matches event by event, as `Found`."""

    def __init__(
        self, matches: Matches, numbers: tuple[int, int], first_row: int, grouping: Grouping
    ) -> None:
        """`numbers`: the lowest and the highest there may be."""
        self._matches = matches
        self._numbers = numbers
        self._first_row = first_row
        self._grouping = grouping

    @property
    def pairs(self) -> int:
        return len(self._matches.numbers)

    def groups(self) -> Groups:
        return together([self])


def together(listed: Sequence[Listed], grouped: Sequence[Groups] = ()) -> Groups:
    """The groups of several over the same events, and of what is grouped already: quicker than to join the groups of
    each where a registration has few rows in each of them."""
    ends = [each._numbers for each in listed]
    ends += [(int(each.numbers[0]), int(each.numbers[-1])) for each in grouped if len(each.numbers)]
    grouping = listed[0]._grouping if listed else Grouping()
    low, high = min((low for low, _ in ends), default=0), max((high for _, high in ends), default=0)
    return grouping.group([(each._matches, each._first_row) for each in listed], low, high, grouped)


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    nothing = Groups(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint16))
    Grouping().group([(Matches(np.zeros(1, np.int64), np.zeros(0, np.int64)), 0)], 0, 0, [nothing])


def _sorted(lists: Sequence[tuple[Matches, int]], grouped: Sequence[Groups]) -> Groups:
    """The same for few numbers that lie far apart."""
    parts = [
        np.repeat(np.arange(first, first + len(matches.offsets) - 1), np.diff(matches.offsets))
        for matches, first in lists
    ]
    rows = np.concatenate([*parts, *(each.rows for each in grouped)]).astype(np.uint16)
    parts = [matches.numbers for matches, _ in lists]
    parts += [np.repeat(each.numbers, np.diff(each.bounds)) for each in grouped]
    numbers = np.concatenate(parts)
    order = np.lexsort((rows, numbers))
    ordered = numbers[order]
    first_of = np.flatnonzero(np.diff(ordered, prepend=-1))
    return Groups(ordered[first_of], np.append(first_of, len(rows)), rows[order])


@compiled
def count_pairs(
    numbers: NDArray[np.int64], low: int, counts: NDArray[np.int32], marks: NDArray[np.uint64]
) -> None:
    one = np.uint64(1)
    for number in numbers:
        place = np.uintp(number - low)
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
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64],
    low: int,
    first_row: int,
    counts: NDArray[np.int32],
    rows: Rows,
) -> None:
    for event in range(len(offsets) - 1):
        for at in range(offsets[event], offsets[event + 1]):
            place = np.uintp(numbers[at] - low)
            rows[counts[place]] = first_row + event
            counts[place] += 1


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
        if mixed:
            put_in_order(rows, bounds[group], bounds[group + 1])


@compiled
def put_in_order(rows: Rows, begin: int, end: int) -> None:
    """A few rows, or such as are mostly in order already."""
    for place in range(begin + 1, end):
        value, hole = rows[np.uintp(place)], place
        while hole > begin and rows[np.uintp(hole - 1)] > value:
            rows[np.uintp(hole)] = rows[np.uintp(hole - 1)]
            hole -= 1
        rows[np.uintp(hole)] = value
