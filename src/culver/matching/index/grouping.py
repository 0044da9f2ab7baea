"""Hot: matches that are listed event by event, grouped by registration. For few pairs; many are gathered as they are
found (`gatherer`)."""

import numpy as np
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.groups import MOST_EVENTS, Groups, Rows
from culver.matching.index.arrays import compiled
from culver.matching.index.vectors import lowest

_NARROW = 1 << 20  # numbers among which a few are found by marks


class Grouping:
    """Keeps its working memory from one call to the next. Not thread-safe."""

    def __init__(self) -> None:
        # Both for each number, from the lowest on, and zero between calls.
        self._counts = np.zeros(0, np.int32)
        self._marks = np.zeros(0, np.uint64)

    def group(self, matches: Matches, low: int, high: int, first_row: int = 0) -> Groups:
        """Group the matches of events that are rows from `first_row` on, below MOST_EVENTS. All numbers are in
        `low..high`."""
        if first_row + len(matches.offsets) - 1 > MOST_EVENTS:
            raise ValueError(f"{first_row + len(matches.offsets) - 1} events do not fit into one grouping")
        narrow = high - low < _NARROW
        groups = self._spread(matches, low, high - low + 1) if narrow else _sorted(matches)
        if first_row:
            groups.rows[:] += np.uint16(first_row)
        return groups

    def _spread(self, tile: Matches, low: int, width: int) -> Groups:
        """Numbers are marked, and their marks found in order."""
        if len(self._counts) < width:
            self._counts = np.zeros(width, np.int32)
            self._marks = np.zeros((width + 63) // 64, np.uint64)
        pairs = len(tile.numbers)
        numbers, bounds, rows = (
            np.empty(pairs, np.int64),
            np.empty(pairs + 1, np.int64),
            np.empty(pairs, np.uint16),
        )
        count = spread(tile.offsets, tile.numbers, low, self._counts, self._marks, numbers, bounds, rows)
        return Groups(numbers[:count], bounds[: count + 1], rows)


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
        return self._grouping.group(self._matches, *self._numbers, self._first_row)


def load() -> None:
    """Load the kernel, or compile it where it never was, before events wait for it."""
    Grouping().group(Matches(np.zeros(1, np.int64), np.zeros(0, np.int64)), 0, 0)


def _sorted(matches: Matches) -> Groups:
    """The same for numbers that lie far apart."""
    rows = np.repeat(np.arange(len(matches.offsets) - 1).astype(np.uint16), np.diff(matches.offsets))
    order = np.argsort(matches.numbers, kind="stable")
    ordered = matches.numbers[order]
    first_of = np.flatnonzero(np.diff(ordered, prepend=-1))
    return Groups(ordered[first_of], np.append(first_of, len(rows)), rows[order])


@compiled
def spread(
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64],
    low: int,
    counts: NDArray[np.int32],
    marks: NDArray[np.uint64],
    distinct: NDArray[np.int64],
    bounds: NDArray[np.int64],
    rows: Rows,
) -> int:
    """Group a tile's pairs; returns how many groups there are. `counts` and `marks` are zero, and zero again
    afterwards."""
    one = np.uint64(1)
    for number in numbers:
        place = np.uintp(number - low)
        counts[place] += 1
        marks[place >> np.uintp(6)] |= one << np.uint64(place & np.uintp(63))
    count = total = 0
    for word in range(len(marks)):
        left = marks[word]
        marks[word] = 0
        while left != 0:
            own = 64 * word + lowest(left)
            left &= left - one
            distinct[count] = low + own
            bounds[count] = total
            length = counts[own]
            counts[own] = total
            total += length
            count += 1
    bounds[count] = total
    for event in range(len(offsets) - 1):
        for at in range(offsets[event], offsets[event + 1]):
            place = np.uintp(numbers[at] - low)
            rows[counts[place]] = event
            counts[place] += 1
    for i in range(count):
        counts[distinct[i] - low] = 0
    return count
