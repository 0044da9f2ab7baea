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

A division sees the terms of registrations in its dimension as intervals and hashes, in columns:

    registration   low   high   hash               hash: of the value of an equality, else none
    0              ...   ...    8123...            symbol = 'A' AND close > 10 OR symbol = 'B'
    0              ...   ...    1677...
    1              ...   ...    none               symbol LIKE 'A%'

A segment of the dimension can do without a registration only if every clause of it has a term there; `clauses` counts
them. Keys and hashes are portable (see `portable_keys`), so that they mean the same in every table.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, Shorts
from culver.matching import (
    HIGHEST_KEY,
    LOWEST_KEY,
    BatchColumns,
    ClauseTable,
    Dimension,
    term_bounds,
    term_hashes,
)
from culver.placement.divisions.division_kernels import Held
from culver.placement.placement import State


class Spans:
    """The terms of one dimension. It computes what it is asked for, once."""

    def __init__(self, table: ClauseTable, rows: Integers, registration: Integers) -> None:
        self.count = len(table.numbers)
        self.registration = registration
        self._table = table
        self._rows = rows

    @cached_property
    def bounds(self) -> tuple[Integers, Integers]:
        return term_bounds(self._table, self._rows)

    @cached_property
    def points(self) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Mark the rows that are equalities, with the hashes of their values (anything for the others)."""
        return term_hashes(self._table, self._rows)

    def finite_ends(self) -> Integers:
        """Where intervals begin and end, ascending, without open sides and empty intervals."""
        low, high = self.bounds
        some = low <= high
        ends = np.concatenate([low[some], high[some]])
        return np.sort(ends[(ends != LOWEST_KEY) & (ends != HIGHEST_KEY)])


class TermTable:
    def __init__(self, table: ClauseTable) -> None:
        self.table = table
        self.count = len(table.numbers)
        self.clauses = np.bincount(table.clause_registration, minlength=self.count)
        self._owner = np.repeat(table.clause_registration, np.diff(table.term_start))

    def on(self, dimension: Dimension) -> Spans:
        if dimension not in self.table.dimensions:
            return Spans(self.table, np.empty(0, np.int64), np.empty(0, np.int64))
        rows = np.flatnonzero(self.table.term_dimension == self.table.dimensions.index(dimension))
        return Spans(self.table, rows, self._owner[rows])


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
        """Mark the owners that each registration reaches, from column `base` on; count its terms and their cover."""

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

    def to_state(self) -> State: ...

    def describe(self, slices: int) -> list[dict[str, Any]]:
        """Describe each segment, or slice, for people, as JSON."""


def nearest_to_half(weights: Sequence[int], total: int) -> int:
    """The place of the weight that is nearest to half of the total, the first of several."""
    away = np.abs(2 * np.array(weights, np.int64) - total)
    return int(np.argmin(away))
