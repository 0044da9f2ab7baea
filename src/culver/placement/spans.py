"""The terms of registrations as one sees them who cuts the event space: intervals and hashes, in plain columns.

A registration can be kept off a slice by a dimension only if every one of its clauses has a term there; only such
terms are taken. Keys and hashes are `portable`, so that spans of several tables can be put together and stored.

    registration   dimension   low   high   hash               hash: of the value of an equality, else none
    0              symbol      ...   ...    8123...            symbol = 'A' AND close > 10 OR symbol = 'B'
    0              symbol      ...   ...    1677...            (close is in one clause only)
    1              symbol      ...   ...    none               symbol LIKE 'A%'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.bounds import Line
from culver.matching.index.portable import point_hashes, term_bounds
from culver.matching.index.table import ClauseTable, Dimension
from culver.placement.placement import State


@dataclass(frozen=True, slots=True)
class Spans:
    """Of `count` registrations; those with no row in a dimension are not told apart by it."""

    count: int
    dimensions: tuple[Dimension, ...]
    registration: NDArray[np.int64]
    dimension: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    is_point: NDArray[np.bool_]
    hashes: NDArray[np.uint64]

    def on(self, place: int) -> "Spans":
        """The rows of one dimension, by its place."""
        rows = self.dimension == place
        return Spans(
            self.count, self.dimensions, self.registration[rows], self.dimension[rows], self.low[rows],
            self.high[rows], self.is_point[rows], self.hashes[rows],
        )  # fmt: skip

    def to_state(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "dimensions": [[attribute, str(line)] for attribute, line in self.dimensions],
            "registration": self.registration.tolist(),
            "dimension": self.dimension.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "is_point": self.is_point.tolist(),
            "hashes": self.hashes.tolist(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls(
            int(state["count"]),
            tuple((str(attribute), Line(line)) for attribute, line in state["dimensions"]),
            np.array(state["registration"], np.int64),
            np.array(state["dimension"], np.int64),
            np.array(state["low"], np.int64),
            np.array(state["high"], np.int64),
            np.array(state["is_point"], np.bool_),
            np.array(state["hashes"], np.uint64),
        )


def spans_of(table: ClauseTable) -> Spans:
    """The spans of a table's registrations in all dimensions."""
    registration, dimension = _owners(table), table.term_dimension
    # A clause has at most one term in a dimension: as many terms as clauses, and every clause has one.
    clauses = np.bincount(table.clause_registration, minlength=len(table.numbers))
    cells = registration * len(table.dimensions) + dimension
    distinct, where, terms = np.unique(cells, return_inverse=True, return_counts=True)
    complete = terms == clauses[distinct // max(1, len(table.dimensions))]
    return _spans(table, np.flatnonzero(complete[where]), registration, table.dimensions, dimension)


def spans_on(table: ClauseTable, dimension: Dimension) -> Spans:
    """The spans in one dimension; the same as of `spans_of`, and much faster."""
    count = len(table.numbers)
    place = table.dimensions.index(dimension) if dimension in table.dimensions else -1
    registration = _owners(table)
    rows = np.flatnonzero(table.term_dimension == place)
    clauses = np.bincount(table.clause_registration, minlength=count)
    complete = np.bincount(registration[rows], minlength=count) == clauses
    rows = rows[complete[registration[rows]]]
    return _spans(table, rows, registration, (dimension,), np.zeros_like(table.term_dimension))


def _owners(table: ClauseTable) -> NDArray[np.int64]:
    """The registration of each term."""
    return np.repeat(table.clause_registration, np.diff(table.term_start))


def _spans(
    table: ClauseTable,
    rows: NDArray[np.int64],
    registration: NDArray[np.int64],
    dimensions: tuple[Dimension, ...],
    dimension: NDArray[np.int64],
) -> Spans:
    low, high = term_bounds(table, rows)
    is_point, hashes = point_hashes(table, rows)
    return Spans(
        len(table.numbers), dimensions, registration[rows], dimension[rows], low, high,
        is_point, hashes,
    )  # fmt: skip


def together(parts: Sequence[Spans]) -> Spans:
    """The spans of several tables, their registrations one after another."""
    dimensions = tuple(sorted({dimension for part in parts for dimension in part.dimensions}))
    place = {dimension: i for i, dimension in enumerate(dimensions)}
    bases = np.cumsum([0, *(part.count for part in parts)])
    moved = [np.array([place[each] for each in part.dimensions], np.int64) for part in parts]
    return Spans(
        int(bases[-1]),
        dimensions,
        np.concatenate([part.registration + base for part, base in zip(parts, bases, strict=False)]),
        np.concatenate([places[part.dimension] for part, places in zip(parts, moved, strict=True)]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.is_point for part in parts]),
        np.concatenate([part.hashes for part in parts]),
    )


def marked(spans: Spans, first: NDArray[np.int64], last: NDArray[np.int64], slices: int) -> NDArray[np.bool_]:
    """(registrations, slices): the slices from `first` to `last` of any of a registration's rows; all slices for
    registrations without a row."""
    rows = np.bincount(spans.registration, minlength=spans.count)
    if (rows == 1).all():  # most often
        order = np.empty(spans.count, np.int64)
        order[spans.registration] = np.arange(spans.count)
        first, last = first[order], last[order]
        result = np.empty((spans.count, slices), np.bool_)
        for each in range(slices):
            np.logical_and(first <= each, each <= last, out=result[:, each])
        return result
    result = np.zeros((spans.count, slices), np.bool_)
    for each in range(slices):
        result[spans.registration[(first <= each) & (each <= last)], each] = True
    result[rows == 0] = True
    return result
