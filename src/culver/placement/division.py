"""Where the event space is cut: one dimension, in ranges or in buckets of hashes, decided from registrations.

    ranges     cuts        10        25        60          slice = how many cuts are at or below the key
               slice   0   |    1    |    2    |    3
               x BETWEEN 20 AND 30 -----> slices 1 and 2

    buckets    hash of the value -> one of 1024 buckets -> slice, by a table
               symbol = 'ABC' --------> 1 slice;   symbol LIKE 'A%' --> all of them

Ranges keep what lies together in one slice. Buckets serve equalities: the values that are known are dealt out
evenly, however unevenly they are asked for, and values that come later are spread by chance (growing numbers would
all fall behind the last cut).

Every dimension is tried both ways, on a sample, and the one whose fullest slice is least full is taken.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.bounds import INT64_MAX, INT64_MIN, Line
from culver.matching.index.columns import BatchColumns
from culver.matching.index.portable import event_hashes, event_keys
from culver.matching.index.table import Dimension
from culver.placement.placement import State
from culver.placement.spans import Spans, marked

_BUCKET_BITS = 10
_BUCKETS = 1 << _BUCKET_BITS
_BUCKET_SHIFT = np.uint64(64 - _BUCKET_BITS)
_NEARLY_AS_GOOD = 1.1  # buckets are taken if their fullest slice is so much fuller than with ranges


@dataclass(frozen=True, slots=True)
class Division:
    """A cut dimension. Has either cuts (ascending keys, fewer than slices) or the slice of each bucket."""

    dimension: Dimension
    cuts: NDArray[np.int64] | None
    buckets: NDArray[np.int64] | None

    def holders(self, spans: Spans, slices: int) -> NDArray[np.bool_]:
        """(registrations, slices): where a registration may be satisfied, by its spans in this dimension."""
        if self.cuts is not None:
            first = np.searchsorted(self.cuts, spans.low, "right")
            last = np.searchsorted(self.cuts, spans.high, "right")
        else:
            assert self.buckets is not None
            found = self.buckets[spans.hashes >> _BUCKET_SHIFT]
            first = np.where(spans.is_point, found, 0)
            last = np.where(spans.is_point, found, slices - 1)
        return marked(spans, first, np.maximum(first, last), slices)  # an empty interval is in one slice, too

    def slices_of_events(self, columns: BatchColumns) -> NDArray[np.int64]:
        """The slice of each event, -1 for those that have no value in the dimension."""
        found: tuple[NDArray[Any], NDArray[np.uint8]] | None
        if self.cuts is not None:
            found = event_keys(columns, self.dimension)
            if found is not None:
                result = np.searchsorted(self.cuts, found[0], "right")
        else:
            assert self.buckets is not None
            found = event_hashes(columns, self.dimension)
            if found is not None:
                result = self.buckets[found[0] >> _BUCKET_SHIFT]
        if found is None:
            return np.full(columns.rows, -1)
        result[found[1] == 0] = -1
        return result

    def to_state(self) -> dict[str, Any]:
        return {
            "attribute": self.dimension[0],
            "line": str(self.dimension[1]),
            "cuts": None if self.cuts is None else self.cuts.tolist(),
            "buckets": None if self.buckets is None else self.buckets.tolist(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        cuts, buckets = state["cuts"], state["buckets"]
        return cls(
            (str(state["attribute"]), Line(state["line"])),
            None if cuts is None else np.array(cuts, np.int64),
            None if buckets is None else np.array(buckets, np.int64),
        )


def best_division(spans: Spans, slices: int) -> Division | None:
    """The division with the least full fullest slice; None: every division leaves all registrations in one slice."""
    best, fullest = None, float(spans.count)
    rows = np.bincount(spans.dimension, minlength=len(spans.dimensions))
    for place in np.argsort(-rows, kind="stable").tolist():
        if spans.count - rows[place] >= fullest:  # those without a row are in every slice
            break
        here = spans.on(place)
        ranges, buckets = _ranges(here, place, slices), _buckets(here, place, slices)
        for division, favour in ((ranges, 1.0), (buckets, _NEARLY_AS_GOOD)):
            held = int(division.holders(here, slices).sum(axis=0).max()) / favour
            if held < fullest:
                best, fullest = division, held
    return best


def _ranges(spans: Spans, place: int, slices: int) -> Division:
    """Cuts at quantiles of where intervals begin and end."""
    ends = np.concatenate([spans.low, spans.high])
    ends = np.sort(ends[(ends != INT64_MIN) & (ends != INT64_MAX)])
    if not len(ends):
        return Division(spans.dimensions[place], ends, None)
    quantiles = np.arange(1, slices) * len(ends) // slices
    return Division(spans.dimensions[place], np.unique(ends[quantiles]), None)


def _buckets(spans: Spans, place: int, slices: int) -> Division:
    """Buckets dealt out to slices, the fullest first and each to the slice with least so far."""
    points = spans.hashes[spans.is_point] >> _BUCKET_SHIFT
    sizes = np.bincount(points.astype(np.int64), minlength=_BUCKETS)
    result = np.arange(_BUCKETS) % slices
    load = np.zeros(slices, np.int64)
    for bucket in np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)].tolist():
        result[bucket] = least = int(np.argmin(load))
        load[least] += sizes[bucket]
    return Division(spans.dimensions[place], None, result)
