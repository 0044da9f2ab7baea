"""Online k-means (sequential, section 4.2.2 of StreamHub's paper): registrations that are alike share a slice.

A registration is a point: in each dimension the centre of its intervals (the end of a half-line), averaged over its
clauses. It goes to the slice with the nearest centre, measured in standard deviations, and the centre moves towards
it. Dimensions in which one of the two has nothing are neutral. A slice above its even share is penalised, the more
the fuller it is, and one with a quarter more takes nothing. A slice whose summary would lose its bounds is penalised,
too.

A slice has one set, and keeps a summary of it: per dimension the interval around the terms of all its clauses,
without bounds as soon as one clause has no term there. An event goes to the slices whose summary it does not
contradict:

    slice 0    a in [3, 90]    s in ['A', 'K']        event {a: 50, s: 'X'}  -> slices 1 and 2
    slice 1    a in [10, 70]   s no bounds            event {s: 'B'}         -> slice 2 (a is missing)
    slice 2    a no bounds     s no bounds

Which slice holds a registration depends on all that came before, so all slices hear of its end. Summaries only widen;
only building the index anew, with a new placement, narrows them. How many events a slice is spared depends on how
well the filters separate; where they do not, this is `hashed` with similar filters together.
"""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers, Reals, compiled
from culver.matching import (
    HIGHEST_KEY,
    LOWEST_KEY,
    BatchColumns,
    ClauseTable,
    Dimension,
    KeyLine,
    event_keys,
    reals_of_keys,
    term_bounds,
)
from culver.placement.placement import NOWHERE, Route, State, everywhere, one_hot

# The first dimensions that are seen; further ones neither separate registrations nor spare events.
_MAX_DIMENSIONS = 64
# A slice takes nothing above this part of its even share ...
_ROOM = 1.25
# ... and these registrations, so that the first ones are not dealt out in turn.
_SLACK = 4
# The weight of a coordinate that is not the middle of an interval but its only end.
_HALF_LINE = 0.1
# The first registrations are assigned so often for practice, so that centres are in place before it counts.
_REHEARSALS = 2
_REHEARSED = 1024
# Coordinates end here, so that the sum of their squares is a number.
_HUGEST = 1e140
# Events routed at a time, so that their keys stay in the cache.
_ROWS = 1 << 15
_REAL_LINES = (KeyLine.NUMBERS, KeyLine.REALS)

# The penalty of a full slice.
_CROWDED = 4.0
# The penalty, in squared deviations, of a slice that would lose its bounds in a dimension.
_LOSS = 100.0


class _Clusters(NamedTuple):
    """What the loop changes in place; all but the sizes and clauses have the shape (slices, dimensions)."""

    sizes: Integers  # registrations of each slice
    clauses: Integers  # their clauses
    terms: Integers  # how many of those have a term in the dimension
    low: Integers  # the least and the greatest key that one of these terms allows
    high: Integers
    weight: Integers  # registrations that moved the centre
    centre: Reals


class _Terms(NamedTuple):
    """Registration r has the clauses clause_start[r] to clause_start[r + 1], clause c the terms term_start[c] to
    term_start[c + 1]. Dimensions are those of the clusters, -1 for those that are left out."""

    clause_start: Integers
    term_start: Integers
    dimension: Integers
    low: Integers
    high: Integers
    coordinate: Reals
    pull: Reals  # how much the coordinate counts; 0: there is none


class KMeans:
    name: ClassVar[str] = "kmeans"

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self.homes = np.arange(slices)
        self._dimensions: dict[Dimension, int] = {}
        self._clusters = _empty(slices, 0)
        # For each dimension: the number of coordinates, their mean, and the sum of squared distances from it.
        self._moments = np.zeros((3, 0))

    @classmethod
    def learnt(cls, table: ClauseTable, slices: int, events: pa.RecordBatch | None = None) -> Self:
        return cls(slices)  # it learns as registrations come

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        made = cls(slices)
        if state.get("slices") != slices:
            raise ValueError(f"not the state of a {cls.name} placement with {slices} slices")
        try:
            names = [(str(attribute), KeyLine(line)) for attribute, line in state["dimensions"]]
            made._dimensions = {dimension: place for place, dimension in enumerate(names)}
            made._moments = np.array(state["moments"], np.float64).reshape(3, len(names))
            empty = _empty(slices, len(names))
            made._clusters = _Clusters(
                *(
                    np.array(state[field], array.dtype).reshape(array.shape)
                    for field, array in zip(_Clusters._fields, empty, strict=True)
                )
            )
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not the state of a {cls.name} placement") from exc
        return made

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        if np.any(np.diff(table.clause_registration) < 0):
            table = table.select_clauses(np.argsort(table.clause_registration, kind="stable"))
        count = len(table.numbers)
        places = self._places(table.dimensions)
        dimension = places[table.term_dimension]
        low, high = term_bounds(table)
        is_real = np.array([line in _REAL_LINES for _, line in table.dimensions], np.bool_)
        coordinate, pull = _coordinates(low, high, is_real[table.term_dimension])
        self._learn_spread(dimension, coordinate, pull)
        number, _, squares = self._moments
        deviation = np.sqrt(squares / np.maximum(number, 1.0))
        scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0.0)
        chosen = np.zeros(count, np.int64)
        clause_start = np.searchsorted(table.clause_registration, np.arange(count + 1))
        terms = _Terms(clause_start, table.term_start, dimension, low, high, coordinate, pull)
        if not self._clusters.sizes.any():
            for _ in range(_REHEARSALS):
                _cluster(self._clusters, terms, min(count, _REHEARSED), scale, _ROOM, _SLACK, chosen)
                self._begin_again()
        _cluster(self._clusters, terms, count, scale, _ROOM, _SLACK, chosen)
        return one_hot(chosen, self.slices)

    def holders(self, numbers: Integers) -> NDArray[np.bool_]:
        return everywhere(len(numbers), self.slices)

    def route(self, batch: pa.RecordBatch) -> Route:
        marked = np.tile(self._clusters.sizes > 0, (batch.num_rows, 1))
        bounded = self._clusters.terms == self._clusters.clauses[:, None]
        for begin in range(0, batch.num_rows, _ROWS):
            columns = BatchColumns(batch.slice(begin, _ROWS))
            self._exclude(columns, bounded, marked[begin : begin + _ROWS])
        sets = [np.where(marked[:, each : each + 1], each, NOWHERE) for each in range(self.slices)]
        return Route(batch.num_rows, tuple(sets))

    def state(self) -> State:
        return {
            "slices": self.slices,
            "dimensions": [[attribute, str(line)] for attribute, line in self._dimensions],
            "moments": self._moments.tolist(),
            **{field: array.tolist() for field, array in self._clusters._asdict().items()},
        }

    def _exclude(self, columns: BatchColumns, bounded: NDArray[np.bool_], marked: NDArray[np.bool_]) -> None:
        """Unmark the slices whose summary an event contradicts."""
        for dimension, place in self._dimensions.items():
            slices = np.flatnonzero(bounded[:, place])
            if not len(slices):
                continue
            found = event_keys(columns, dimension)
            if found is None:
                marked[:, slices] = False
                continue
            keys, there = found
            for each in slices.tolist():
                low, high = self._clusters.low[each, place], self._clusters.high[each, place]
                marked[:, each] &= (keys >= low) & (keys <= high) & there.view(np.bool_)

    def _begin_again(self) -> None:
        """Forget everything but the centres, which the next registrations move easily."""
        empty = _empty(self.slices, len(self._dimensions))
        known = np.minimum(self._clusters.weight, 1)
        self._clusters = empty._replace(centre=self._clusters.centre, weight=known)

    def _places(self, dimensions: tuple[Dimension, ...]) -> Integers:
        """The places of dimensions among those that are known; -1 where there is no room for more."""
        for dimension in dimensions:
            if len(self._dimensions) < _MAX_DIMENSIONS:
                self._dimensions.setdefault(dimension, len(self._dimensions))
        missing = len(self._dimensions) - self._moments.shape[1]
        if missing:
            self._moments = np.pad(self._moments, ((0, 0), (0, missing)))
            self._clusters = _widened(self._clusters, missing)
        return np.array([self._dimensions.get(dimension, -1) for dimension in dimensions], np.int64)

    def _learn_spread(self, dimension: Integers, coordinate: Reals, pull: Reals) -> None:
        """Add coordinates to the moments (Chan's way of adding variances)."""
        counted = (dimension >= 0) & (pull > 0.0)
        dimension, coordinate = dimension[counted], coordinate[counted]
        size = self._moments.shape[1]
        number, mean, squares = self._moments
        fresh: NDArray[Any] = np.bincount(dimension, minlength=size)
        fresh_mean = np.bincount(dimension, coordinate, size) / np.maximum(fresh, 1)
        away = coordinate - fresh_mean[dimension]
        fresh_squares = np.bincount(dimension, away * away, size)
        total = np.maximum(number + fresh, 1)
        apart = fresh_mean - mean
        self._moments = np.stack(
            [
                number + fresh,
                mean + apart * fresh / total,
                squares + fresh_squares + apart * apart * number * fresh / total,
            ]
        )


def _empty(slices: int, dimensions: int) -> _Clusters:
    shape = (slices, dimensions)
    return _Clusters(
        sizes=np.zeros(slices, np.int64),
        clauses=np.zeros(slices, np.int64),
        terms=np.zeros(shape, np.int64),
        low=np.full(shape, HIGHEST_KEY),
        high=np.full(shape, LOWEST_KEY),
        weight=np.zeros(shape, np.int64),
        centre=np.zeros(shape, np.float64),
    )


def _widened(clusters: _Clusters, more: int) -> _Clusters:
    new = _empty(len(clusters.sizes), more)
    joined = [np.concatenate([old, added], axis=-1) for old, added in zip(clusters[2:], new[2:], strict=True)]
    return _Clusters(clusters.sizes, clusters.clauses, *joined)


def _coordinates(low: Integers, high: Integers, is_real: NDArray[np.bool_]) -> tuple[Reals, Reals]:
    """The middle of each interval (of a half-line, its end), and how much it counts."""
    lows, highs = _values(low, is_real), _values(high, is_real)
    no_low, no_high = low == LOWEST_KEY, high == HIGHEST_KEY
    middle = np.where(no_low, highs, np.where(no_high, lows, lows / 2 + highs / 2))
    pull = np.where(no_low | no_high, _HALF_LINE, 1.0)
    pull[(no_low & no_high) | (low > high)] = 0.0
    return middle, pull


def _values(keys: Integers, is_real: NDArray[np.bool_]) -> Reals:
    values = np.where(is_real, reals_of_keys(keys), keys)
    return np.fmax(np.fmin(values, _HUGEST), -_HUGEST)  # a key without a bound is no number as a real


@compiled
def _cluster(
    clusters: _Clusters,
    terms: _Terms,
    registrations: int,
    scale: Reals,
    share: float,
    slack: int,
    chosen: Integers,
) -> None:
    """Choose the slice of each registration, and let the slice's centre and summary follow.

    A slice has room up to `share` times its even part, and `slack` more. `scale` turns coordinates
    into deviations.
    """
    slices, dimensions = clusters.centre.shape
    sums = np.zeros(dimensions)
    pulls = np.zeros(dimensions)
    present = np.zeros(dimensions, np.int64)
    total = clusters.sizes.sum()
    for registration in range(registrations):
        begin, end = terms.clause_start[registration], terms.clause_start[registration + 1]
        first, last = terms.term_start[begin], terms.term_start[end]
        sums[:], pulls[:], present[:] = 0.0, 0.0, 0
        for term in range(first, last):
            d = terms.dimension[term]
            if d >= 0:
                present[d] += 1
                pulls[d] += terms.pull[term]
                sums[d] += terms.pull[term] * terms.coordinate[term]
        total += 1
        even = total / slices
        room = share * even + slack
        best, nearest = -1, np.inf
        for s in range(slices):
            if clusters.sizes[s] >= room:
                continue
            # A slice above its even share leaves registrations that fit elsewhere as well.
            distance = max(0.0, clusters.sizes[s] - even) / (room - even) * _CROWDED
            for d in range(dimensions):
                if pulls[d] > 0.0:
                    # A centre without a coordinate is as far away as a registration is on average.
                    away = 1.0
                    if clusters.weight[s, d] > 0:
                        away = (sums[d] / pulls[d] - clusters.centre[s, d]) * scale[d]
                    distance += away * away * pulls[d] / present[d]
                if present[d] < end - begin and clusters.terms[s, d] == clusters.clauses[s]:
                    distance += _LOSS
            # The first is taken however far it is, because a distance may overflow.
            if (
                best < 0
                or distance < nearest
                or (distance == nearest and clusters.sizes[s] < clusters.sizes[best])
            ):
                best, nearest = s, distance
        chosen[registration] = best
        clusters.sizes[best] += 1
        clusters.clauses[best] += end - begin
        for d in range(dimensions):
            if pulls[d] > 0.0:
                clusters.weight[best, d] += 1
                clusters.centre[best, d] += (sums[d] / pulls[d] - clusters.centre[best, d]) / clusters.weight[
                    best, d
                ]
        for term in range(first, last):
            d = terms.dimension[term]
            if d >= 0:
                clusters.terms[best, d] += 1
                if terms.low[term] <= terms.high[term]:
                    clusters.low[best, d] = min(clusters.low[best, d], terms.low[term])
                    clusters.high[best, d] = max(clusters.high[best, d], terms.high[term])
