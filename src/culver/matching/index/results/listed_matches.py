"""Hot: matches that are listed event by event, made small enough to be kept until all of a block are found.

event   0         1     2       3                    rows     0 3
numbers 1007 1002 -     -       1002 1005 1009       lengths  2 3
                                                     numbers  5 0 0 3 7, from 1002 on
"""

import numpy as np
from numpy.typing import NDArray

from culver.jit import compiled
from culver.matching.filter import Matches
from culver.matching.groups import MOST_EVENTS, Groups, Rows, Runs
from culver.matching.index.results.grouping import Grouping

_MOST_NUMBERS = 1 << 32


class Listed:
    """Implements `Found`; the matches are its own."""

    def __init__(self, matches: Matches, numbers: tuple[int, int], first_row: int) -> None:
        """Of events that are rows from a first one on, below MOST_EVENTS. `numbers`: the lowest and the highest there
        may be."""
        if first_row + len(matches.offsets) - 1 > MOST_EVENTS:
            raise ValueError(f"{first_row + len(matches.offsets) - 1} events do not fit into one grouping")
        self._matches = matches
        self._numbers = numbers
        self._first_row = first_row

    @property
    def pairs(self) -> int:
        return len(self._matches.numbers)

    @property
    def is_narrow(self) -> bool:
        """Whether the numbers lie close enough together for four bytes."""
        return self._numbers[1] - self._numbers[0] < _MOST_NUMBERS

    def runs(self) -> Runs:
        """A copy. It must be narrow."""
        low, high = self._numbers
        offsets, numbers = self._matches.offsets, self._matches.numbers
        rows, lengths = np.empty(len(offsets), np.uint16), np.empty(len(offsets), np.uint32)
        small = np.empty(len(numbers), np.uint32)
        count = pack(offsets, numbers, low, self._first_row, rows, lengths, small)
        return Runs(low, high, rows[:count], lengths[:count], small)

    def groups(self, grouping: Grouping | None = None) -> Groups:
        """May be called again. `grouping` has memory to work with."""
        return (grouping or Grouping()).group_matches(self._matches, self._numbers, self._first_row)


def load() -> None:
    """Load the kernel, or compile it where it never was."""
    Listed(Matches(np.zeros(1, np.int64), np.zeros(0, np.int64)), (0, 0), 0).runs()


@compiled
def pack(
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64],
    low: int,
    first_row: int,
    rows: Rows,
    lengths: NDArray[np.uint32],
    small: NDArray[np.uint32],
) -> int:
    """Fills the last three, of which two need room for one event more than there are; returns how many runs there
    are."""
    count = 0
    for event in range(len(offsets) - 1):
        length = offsets[event + 1] - offsets[event]
        rows[count] = first_row + event
        lengths[count] = length
        count += length > 0
    for at in range(len(numbers)):
        small[at] = numbers[at] - low
    return count
