"""Tombstones list the registrations of a segment that have ended, and the positions of their ends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.segments.segment_view import FOREVER

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Places in the segment, ascending and distinct, and the log position at which each ended. Immutable."""

    places: Integers
    until: Integers

    def __len__(self) -> int:
        return len(self.places)

    def joined(self, places: Integers, until: Integers) -> "Tombstones":
        """Add more. Of two for one place the earlier end holds."""
        if not len(places):
            return self
        every = np.concatenate([self.places, places])
        distinct, inverse = np.unique(every, return_inverse=True)
        earliest = np.full(len(distinct), FOREVER)
        np.minimum.at(earliest, inverse, np.concatenate([self.until, until]))
        return Tombstones(distinct, earliest)

    def dead(self, horizon: int) -> int:
        """How many ended at or below `horizon`."""
        return int(np.count_nonzero(self.until <= horizon))

    def spread(self, count: int) -> Integers | None:
        """The end of each of `count` registrations, as a `SegmentView` has it; None where none has ended."""
        if not len(self.places):
            return None
        until = np.full(count, FOREVER)
        until[self.places] = self.until
        return until

    @classmethod
    def gathered(cls, until: Integers | None) -> "Tombstones":
        """The opposite of `spread`."""
        if until is None:
            return NO_TOMBSTONES
        places = np.flatnonzero(until != FOREVER)
        return cls(places, until[places])


NO_TOMBSTONES = Tombstones(np.empty(0, np.int64), np.empty(0, np.int64))


def columns_of_ends(
    ended: Sequence[tuple[int, int]], together: Sequence[tuple[Integers, int]] = ()
) -> tuple[Integers, Integers]:
    """Turn (number, position) pairs, and (numbers, position) pairs, into two columns."""
    pairs = np.array(ended, np.int64).reshape(-1, 2)
    numbers = [pairs[:, 0], *(numbers for numbers, _ in together)]
    until = [pairs[:, 1], *(np.full(len(numbers), position, np.int64) for numbers, position in together)]
    return np.concatenate(numbers), np.concatenate(until)
