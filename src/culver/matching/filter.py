"""The filter protocol: subscriptions in and out by number, batches of events in, matches out.

StreamHub calls this `libfilter` (section 3.2.2): it stores and removes subscriptions by identifier, and returns the
identifiers that a publication matches. Ours works on batches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.model.language import Predicate


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


class Filter(Protocol):
    """Not thread-safe: one owner changes it and matches with it."""

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        """Store subscriptions. One whose number is there already replaces it."""

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove subscriptions. Unknown numbers are ignored."""

    def match(self, batch: pa.RecordBatch) -> Matches:
        """Match every event of `batch` (laid out as in `model.columns`) against every subscription."""

    def __len__(self) -> int: ...
