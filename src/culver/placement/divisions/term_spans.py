"""The terms of registrations in one dimension as a division sees them: intervals and hashes, in columns.

    registration   low   high   hash               hash: of the value of an equality, else none
    0              ...   ...    8123...            symbol = 'A' AND close > 10 OR symbol = 'B'
    0              ...   ...    1677...
    1              ...   ...    none               symbol LIKE 'A%'

A segment of the dimension can do without a registration only if every clause of it has a term there; `clauses` counts
them. Keys and hashes are portable (see `portable_keys`), so that they mean the same in every table.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import ClauseTable, Dimension, term_bounds, term_hashes


class Spans:
    """The terms of one dimension. It computes what it is asked for, once."""

    def __init__(self, table: ClauseTable, rows: Integers, registration: Integers) -> None:
        self.count = len(table.numbers)
        self.registration = registration
        self._table = table
        self._rows = rows

    @cached_property
    def bounds(self) -> tuple[Integers, Integers]:
        """The lowest and the highest key of each row."""
        return term_bounds(self._table, self._rows)

    @cached_property
    def points(self) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Which rows are equalities, and the hashes of their values (anything for the others)."""
        return term_hashes(self._table, self._rows)

    def finite_ends(self) -> Integers:
        """Where intervals begin and end, ascending, without open sides and empty intervals."""
        low, high = self.bounds
        some = low <= high
        info = np.iinfo(np.int64)
        ends = np.concatenate([low[some], high[some]])
        return np.sort(ends[(ends != info.min) & (ends != info.max)])


class TermTable:
    """The terms of a table, dimension by dimension."""

    def __init__(self, table: ClauseTable) -> None:
        self.table = table
        self.count = len(table.numbers)
        self.clauses = np.bincount(table.clause_registration, minlength=self.count)
        self._owner = np.repeat(table.clause_registration, np.diff(table.term_start))

    def on(self, dimension: Dimension) -> Spans:
        """The terms of one dimension; none where it has none."""
        if dimension not in self.table.dimensions:
            return Spans(self.table, np.empty(0, np.int64), np.empty(0, np.int64))
        rows = np.flatnonzero(self.table.term_dimension == self.table.dimensions.index(dimension))
        return Spans(self.table, rows, self._owner[rows])
