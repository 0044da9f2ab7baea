"""A division: one dimension, divided among slices by ranges or by hash buckets.

    ranges     cuts          10        25        60          segment = how many cuts are at or below the key
               segment   0   |    1    |    2    |    3
               owner     2        3         0         1      the slice; it may own several segments, or none
               ticks   . . . .|. . . . .|. . . . .|. . .     quantiles of the load, wherever the cuts are

    hashes     hash of the value -> one of 1024 hash buckets -> its owner, by a table
               symbol = 'ABC' --------> 1 slice;   symbol LIKE 'A%' --> not narrow

Ranges keep near values in one slice. Hash buckets suit equalities: known values are dealt out evenly, however
unevenly filters ask for them, and later values are spread by chance (growing numbers would all fall behind the last
cut).

Whether a registration is narrow does not depend on the number of slices, so it stays narrow when a slice comes or
goes. Divisions are values: a change makes another one.
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
        """The slice of each segment or hash bucket."""

    @property
    def limit(self) -> int:
        """A registration that covers more than this is not narrow."""

    def mark(self, spans: Spans, base: int, held: Held, terms: Shorts, covered: Shorts) -> None:
        """Mark the owners that each registration reaches, in columns from `base` on, and add up its terms and how
        much they cover."""

    def owners_of_events(self, columns: BatchColumns, place: int, choice: Integers) -> None:
        """Put the owner of each event's value into a column; -1 where it has no value there."""

    def turned(self, by: int, slices: int) -> Self:
        """Move every owner that many slices further on."""

    def split(self, loaded: int, new: int) -> Self:
        """Give half of what one slice owns, by load, to another; nothing where it cannot be halved."""

    def without(self, gone: int, slices: int) -> Self:
        """Give what a slice owns to its neighbours, and renumber the slices behind it."""

    def part(self, own: int) -> Sequence[Any]:
        """What a slice owns, for comparison."""

    def to_state(self) -> State:
        """As JSON."""

    def describe(self, slices: int) -> list[dict[str, Any]]:
        """Describe each segment, or slice, for people, as JSON."""


def nearest_to_half(weights: Sequence[int], total: int) -> int:
    """The place of the weight that is nearest to half of the total, the first of several."""
    away = np.abs(2 * np.array(weights, np.int64) - total)
    return int(np.argmin(away))
