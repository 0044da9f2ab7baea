"""The filter protocol, and what matching gives: matches by event, as a search lists them, and by registration, as the
exit point hands them on.

    event   0        1     2     3                     registration   2     5     7     9
    numbers 7 2      -     -     2 5 9                 rows           0 3   3     0     3

StreamHub calls the protocol `libfilter` (section 3.2.2): it stores and removes subscriptions by identifier, and
returns the identifiers that a publication matches. Ours works on batches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.model.language import Predicate

MOST_EVENTS = 1 << 16
"""One grouping covers at most so many events, so that a row fits into two bytes."""

Rows = NDArray[np.uint16]


class Filter(Protocol):
    """Not thread-safe: one owner changes it and matches with it."""

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        """Store subscriptions. One whose number is there already replaces it."""

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove subscriptions. Unknown numbers are ignored."""

    def match(self, batch: pa.RecordBatch) -> "Matches":
        """Match every event of `batch` (laid out as in `model.columns`) against every subscription."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Matches:
    """The subscriptions that each event of a batch satisfies.

    Event i satisfies `numbers[offsets[i]:offsets[i + 1]]`, distinct, in no particular order. `offsets` has one
    entry more than the batch has events; both arrays are int64.
    """

    offsets: NDArray[np.int64]
    numbers: NDArray[np.int64]


def matches_of(rows: Sequence[Sequence[int]]) -> Matches:
    """Make matches from the numbers of each event, which must be distinct."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return Matches(offsets, np.array([number for row in rows for number in row], np.int64))


def select_rows(matches: Matches, rows: NDArray[np.int64]) -> Matches:
    """Keep the matches of some events."""
    begin, end = matches.offsets[rows], matches.offsets[rows + 1]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(end - begin, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], end - begin)
    return Matches(offsets, matches.numbers[places])


def spread_rows(matches: Matches, rows: NDArray[np.int64], count: int) -> Matches:
    """Make the matches those of the events `rows` (ascending) among `count`; the other events have none."""
    lengths = np.zeros(count, np.int64)
    lengths[rows] = np.diff(matches.offsets)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Matches(offsets, matches.numbers)


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
    """Row `first_row + i` satisfies the registrations `numbers[offsets[i]:offsets[i + 1]]`, in any order."""

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
        """The number of pairs of an event and a registration, or a few more."""

    def part(self) -> Matched:
        """The matches, in memory of their own. May be called once."""
