"""Which dimensions to divide, and where: decided from a sample of registrations, and of events where there are some.

A layer is built greedily. Every dimension is tried by itself, in ranges and in buckets, and the one is taken with
which an event is matched against least; then another beside it, and so on, as long as that does not make it more.
What an event is matched against:

    the least of its candidates' sets + the registrations that the layer does not take

so a dimension that many registrations say nothing about, or little, loses more than it brings. The next layer is made
of what is left, while it takes a fair share. A dimension is worth adding even if it saves nothing, for a second
candidate evens out what no cut can: load that changes, and slices that are slow or gone.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.index.arrays import Integers
from culver.matching.index.bounds import Line
from culver.matching.index.columns import BatchColumns
from culver.matching.index.portable import event_keys
from culver.matching.index.table import ClauseTable, Dimension, select_registrations
from culver.placement.buckets import of_points
from culver.placement.division import Division
from culver.placement.layer import Layer, marks
from culver.placement.ranges import Ranges, at_equal_widths, at_quantiles
from culver.placement.spans import Spans, TermTable
from culver.placement.typical import typical_events

SAMPLE = 8192  # registrations: of more than these, every n-th is looked at
_ENOUGH = 128  # registrations to decide on
_SHARE = 0.05  # of all registrations: what a layer must take, and a dimension have terms of
_WORTH = 0.9  # of the registrations left over: with a layer, an event must be matched against less than this
_NO_WORSE = 1.02  # what an event is matched against, with one more dimension
_NEARLY_AS_GOOD = 1.1  # buckets are taken if they make it so much more than with ranges
_TRIED = 48  # dimensions, those with most terms


@dataclass(frozen=True, slots=True)
class Dividing:
    dimensions: int = 4  # of a layer, at most
    layers: int = 4  # at most
    cuts: Literal["quantiles", "equal"] = "quantiles"  # of the load, or the paper's: equal widths


@dataclass(frozen=True, slots=True)
class _Candidate:
    division: Division
    narrow: NDArray[np.bool_]  # (registrations,)
    reached: NDArray[np.bool_]  # (registrations, slices)
    owners: Integers  # (events,), -1 without a value


def learn(
    table: ClauseTable, slices: int, dividing: Dividing, events: pa.RecordBatch | None
) -> tuple[Layer, ...]:
    """Layers for registrations and events like these; none where nothing tells them apart."""
    table = sampled(table)
    total = len(table.numbers)
    if total < _ENOUGH:
        return ()
    drawn = typical_events(table) if events is None else events
    layers: list[Layer] = []
    while len(layers) < dividing.layers and len(table.numbers) >= max(1, _SHARE * total):
        terms = TermTable(table)
        tried = _candidates(terms, slices, dividing.cuts, drawn, events is not None, _SHARE * total)
        chosen, members = _grown(tried, terms.count, dividing.dimensions)
        if np.count_nonzero(members) < _SHARE * total:
            break
        turned = [
            each.division.turned(place * slices // len(chosen), slices) for place, each in enumerate(chosen)
        ]
        layers.append(Layer(tuple(turned), slices))
        table = select_registrations(table, ~members)
    return tuple(layers)


def sampled(table: ClauseTable) -> ClauseTable:
    count = len(table.numbers)
    if count <= SAMPLE:
        return table
    return select_registrations(table, np.arange(count) % (count // SAMPLE + 1) == 0)


def _candidates(
    terms: TermTable, slices: int, cuts: str, events: pa.RecordBatch, are_real: bool, fewest: float
) -> list[_Candidate]:
    columns = BatchColumns(events)
    rows = np.bincount(terms.table.term_dimension, minlength=len(terms.table.dimensions))
    found: list[_Candidate] = []
    for place in np.argsort(-rows, kind="stable")[:_TRIED].tolist():
        if rows[place] < fewest:
            break
        dimension = terms.table.dimensions[place]
        spans = terms.on(dimension)
        divisions: list[Division] = []
        if dimension[1] is not Line.LISTS:
            divisions.append(_ranges(spans, dimension, slices, cuts, columns if are_real else None))
        if cuts != "equal" or dimension[1] is Line.STRINGS:
            divisions.append(of_points(spans, dimension, slices))
        for division in divisions:
            narrow, reached = marks(division, terms, slices)
            if np.count_nonzero(narrow) >= fewest:
                owners = np.empty((columns.rows, 1), np.int64)
                division.owners_of_events(columns, 0, owners)
                found.append(_Candidate(division, narrow, reached, owners[:, 0]))
    return found


def _ranges(
    spans: Spans, dimension: Dimension, slices: int, cuts: str, columns: BatchColumns | None
) -> Ranges:
    ends = spans.finite_ends()
    if cuts == "equal":
        return at_equal_widths(dimension, ends, slices)
    if columns is not None and (found := event_keys(columns, dimension)) is not None:
        # The load at a value: events that have it, times registrations that cover it.
        keys = np.sort(found[0][found[1] != 0])
        low, high = spans.bounds
        covering = np.searchsorted(np.sort(low), keys, "right") - np.searchsorted(np.sort(high), keys, "left")
        if covering.sum() > 0:
            return at_quantiles(dimension, keys, np.maximum(covering, 0), slices)
    return at_quantiles(dimension, ends, np.ones(len(ends), np.int64), slices)


def _grown(tried: list[_Candidate], count: int, most: int) -> tuple[list[_Candidate], NDArray[np.bool_]]:
    """The dimensions of a layer, and its members; none where it would not be worth it."""
    chosen: list[_Candidate] = []
    members = np.ones(count, np.bool_)
    cost = _WORTH * count / _NO_WORSE
    while len(chosen) < most:
        taken = {each.division.dimension for each in chosen}
        left = [each for each in tried if each.division.dimension not in taken]
        costs = [_cost([*chosen, each], members & each.narrow) for each in left]
        if not left or min(costs) > cost * _NO_WORSE:
            break
        best = int(np.argmin([found * _favour(each) for found, each in zip(costs, left, strict=True)]))
        chosen.append(left[best])
        members &= left[best].narrow
        cost = costs[best]
    return chosen, members if chosen else np.zeros(count, np.bool_)


def _cost(chosen: list[_Candidate], members: NDArray[np.bool_]) -> float:
    """What an event is matched against, on the average: the least of its candidates, and all that is no member."""
    searched = []
    for each in chosen:
        sizes = np.append(np.count_nonzero(each.reached[members], axis=0), 0)
        searched.append(sizes[each.owners])  # the last where there is no value
    found: float = np.minimum.reduce(searched).mean() + np.count_nonzero(~members)
    return found


def _favour(candidate: _Candidate) -> float:
    return 1.0 if candidate.division.kind == Ranges.kind else 1 / _NEARLY_AS_GOOD
