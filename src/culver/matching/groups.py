"""Matches by event, as a search lists them, and by registration, as the exit point hands them on.

event   0        1     2     3                     registration   2     5     7     9
numbers 7 2      -     -     2 5 9                 rows           0 3   3     0     3
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

MOST_EVENTS = 1 << 16
"""One grouping covers at most so many events, so that a row fits into two bytes."""

Rows = NDArray[np.uint16]


class Groups(NamedTuple):
    """Registration `numbers[i]` (ascending) gets the events `rows[bounds[i]:bounds[i + 1]]` (ascending)."""

    numbers: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: Rows

    @property
    def pairs(self) -> int:
        return len(self.rows)

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest number. There must be one."""
        return int(self.numbers[0]), int(self.numbers[-1])


class MatchList(NamedTuple):
    """The event in row `first_row + i` satisfies the registrations `numbers[offsets[i]:offsets[i + 1]]`, in any
    order."""

    first_row: int
    span: tuple[int, int]
    """No number lies below the first or above the second."""
    offsets: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def pairs(self) -> int:
        return len(self.numbers)

    def part(self) -> "MatchList":
        return self


Matched = Groups | MatchList


class Found(Protocol):
    """What a search has found. It may share memory with the next search, so take its part before that begins."""

    @property
    def pairs(self) -> int:
        """How many pairs of an event and a registration there are, or a few more."""

    def part(self) -> Matched:
        """The matches, in memory of their own. May be called once."""
