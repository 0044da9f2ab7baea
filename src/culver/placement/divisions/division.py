"""One dimension, divided among slices: in ranges, or in buckets of hashes.

    ranges     cuts          10        25        60          segment = how many cuts are at or below the key
               segment   0   |    1    |    2    |    3
               owner     2        3         0         1      the slice; it may own several segments, or none
               ticks   . . . .|. . . . .|. . . . .|. . .     quantiles of the load, wherever the cuts are

    buckets    hash of the value -> one of 1024 buckets -> its owner, by a table
               symbol = 'ABC' --------> 1 slice;   symbol LIKE 'A%' --> not narrow

Ranges keep what lies together in one slice. Buckets serve equalities: the values that are known are dealt out
evenly, however unevenly they are asked for, and values that come later are spread by chance (growing numbers would
all fall behind the last cut).

What is narrow does not depend on how many slices there are, so it stays narrow when a slice comes or goes. Divisions
are values: what changes one makes another.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from culver.jit import Integers, Shorts
from culver.matching import BatchColumns, Dimension
from culver.placement.divisions.division_kernels import Held
from culver.placement.divisions.term_spans import Spans
from culver.placement.placement import State


class Division(Protocol):
    kind: ClassVar[str]

    @property
    def dimension(self) -> Dimension: ...

    @property
    def owners(self) -> Integers:
        """The slice of each segment or bucket."""

    @property
    def limit(self) -> int:
        """A registration that covers more than this is not narrow."""

    def mark(self, spans: Spans, base: int, held: Held, terms: Shorts, covered: Shorts) -> None:
        """Mark the owners of what each registration reaches, in columns from `base` on, and add up its terms and how
        much they cover."""

    def owners_of_events(self, columns: BatchColumns, place: int, choice: Integers) -> None:
        """Put the owner of each event's value into a column; -1 where it has no value in the dimension."""

    def turned(self, by: int, slices: int) -> Self:
        """With every owner that many slices further on."""

    def split(self, loaded: int, new: int) -> Self:
        """With half of what one slice owns, by load, given to another; with none where it cannot be halved."""

    def without(self, gone: int, slices: int) -> Self:
        """With what a slice owns given to its neighbours, and slices behind it renumbered."""

    def part(self, own: int) -> Sequence[Any]:
        """What a slice owns, to be compared."""

    def to_state(self) -> State:
        """As JSON."""

    def describe(self, slices: int) -> list[dict[str, Any]]:
        """For each segment, or slice, what people want to know, as JSON."""


def nearest_to_half(weights: Sequence[int], total: int) -> int:
    """The place of the weight that is nearest to half of the total; the first of several."""
    away = np.abs(2 * np.array(weights, np.int64) - total)
    return int(np.argmin(away))
