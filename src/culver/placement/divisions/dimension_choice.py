"""Which dimensions to divide, and where: decided from a sample of registrations, and of events where there are some.

A layer grows greedily. Every dimension is tried by itself, by ranges and by hash buckets, and the one with which
events cost least is taken (see `expected_cost`); then another beside it, and so on, as long as the cost does not
rise. Registrations that are not narrow in all of them are left over, and count as if every event were matched against
all of them; so a dimension that many registrations do not constrain loses more than it gains. The next layer is made
of what is left, as long as it takes a fair share. A dimension is worth adding even if it saves nothing, because a
second candidate evens out what no cut can: load that changes, and slices that are slow or gone.

`quantiles` may mean two things where ranges are cut, and a trial decides which is better:

    of the load      events times registrations: all sets take about as much work. Best where there is one candidate
    of the events    segments get as many events, and sets are as uneven as registrations are. Best where there are
                     several: events find a candidate on a cold spot (BlueDove, section III-A2)

Without events, the ends of intervals stand for both.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import BatchColumns, ClauseTable, Dimension, KeyLine, event_keys
from culver.placement.divisions.division import Division, Spans, TermTable
from culver.placement.divisions.hash_division import divide_by_hash
from culver.placement.divisions.layer import Layer, narrow_registrations
from culver.placement.divisions.range_division import (
    RangeDivision,
    divide_at_equal_widths,
    divide_at_quantiles,
)
from culver.placement.expected_cost import draw_typical_events, pace, sampled
from culver.placement.placement import NOWHERE

# Fewer registrations than these decide nothing.
_ENOUGH = 128
# A layer must take this part of all registrations, and a dimension must have terms of as many.
_SHARE = 0.05
# With a layer, an event must be matched against less than this part of the registrations left over.
_WORTH = 0.9
# One more dimension may raise the cost of an event by this factor.
_NO_WORSE = 1.02
# Hash buckets are taken if they cost at most so many times as much as ranges.
_NEARLY_AS_GOOD = 1.1
# The dimensions with most terms are tried.
_TRIED = 48


_Cutting = Literal["ends", "load", "events", "equal"]


@dataclass(frozen=True, slots=True)
class DivisionOptions:
    """How to divide: at most so many dimensions in a layer, and so many layers; cuts at quantiles (see above) or, as
    in the paper, at equal widths; and no slice holds more than `fullest` times all registrations, copies counted."""

    dimensions: int = 4
    layers: int = 4
    cuts: Literal["quantiles", "equal"] = "quantiles"
    fullest: float = np.inf


@dataclass(frozen=True, slots=True)
class _Candidate:
    division: Division
    narrow: NDArray[np.bool_]  # (registrations,)
    reached: NDArray[np.bool_]  # (registrations, slices)
    owners: Integers  # (events,), -1 without a value


@dataclass(frozen=True, slots=True)
class _Grown:
    chosen: list[_Candidate]
    members: NDArray[np.bool_]
    cost: float


def learn_layers(
    table: ClauseTable, slices: int, dividing: DivisionOptions, events: pa.RecordBatch | None
) -> tuple[Layer, ...]:
    """Learn layers for registrations and events like these; none where no dimension distinguishes them."""
    table = sampled(table)
    total = len(table.numbers)
    if total < _ENOUGH:
        return ()
    columns = BatchColumns(draw_typical_events(table) if events is None else events)
    ways: list[_Cutting] = ["equal"] if dividing.cuts == "equal" else ["ends"]
    if dividing.cuts == "quantiles" and events is not None:
        ways = ["load", "events"]
    layers: list[Layer] = []
    held = 0  # what the fullest slice holds with the layers so far
    while len(layers) < dividing.layers and len(table.numbers) >= max(1, _SHARE * total):
        terms = TermTable(table)
        tried = [_candidates(terms, slices, way, columns, _SHARE * total) for way in ways]
        room = dividing.fullest * total - held
        layouts = [_grown(each, terms.count, slices, dividing.dimensions, room) for each in tried]
        grown = min(layouts, key=attrgetter("cost"))
        if np.count_nonzero(grown.members) < _SHARE * total:
            break
        turns = _turns(grown.chosen, slices)
        divisions = [each.division.turned(turn, slices) for each, turn in turns]
        layers.append(Layer(tuple(divisions), slices))
        held += _sizes(grown.chosen, grown.members, slices).sum(axis=0).max()
        table = table.select_registrations(~grown.members)
    return tuple(layers)


def _candidates(
    terms: TermTable, slices: int, way: _Cutting, columns: BatchColumns, fewest: float
) -> list[_Candidate]:
    rows = np.bincount(terms.table.term_dimension, minlength=len(terms.table.dimensions))
    found: list[_Candidate] = []
    for place in np.argsort(-rows, kind="stable")[:_TRIED].tolist():
        if rows[place] < fewest:
            break
        dimension = terms.table.dimensions[place]
        spans = terms.on(dimension)
        divisions: list[Division] = [_ranges(spans, dimension, slices, way, columns)]
        if way != "equal" or dimension[1] is KeyLine.STRINGS:
            divisions.append(divide_by_hash(spans, dimension, slices))
        for division in divisions:
            narrow, reached = narrow_registrations(division, terms, slices)
            if np.count_nonzero(narrow) >= fewest:
                owners = np.empty((columns.rows, 1), np.int64)
                division.owners_of_events(columns, 0, owners)
                found.append(_Candidate(division, narrow, reached, owners[:, 0]))
    return found


def _ranges(
    spans: Spans, dimension: Dimension, slices: int, way: _Cutting, columns: BatchColumns
) -> RangeDivision:
    ends = spans.finite_ends()
    if way == "equal":
        return divide_at_equal_widths(dimension, ends, slices)
    found = None if way == "ends" else event_keys(columns, dimension)
    if found is not None:
        keys = np.sort(found[0][found[1] != 0])
        weights = np.ones(len(keys), np.int64)
        if way == "load":
            low, high = spans.bounds
            weights = np.searchsorted(np.sort(low), keys, "right") - np.searchsorted(
                np.sort(high), keys, "left"
            )
        if weights.sum() > 0:
            return divide_at_quantiles(dimension, keys, np.maximum(weights, 0), slices)
    return divide_at_quantiles(dimension, ends, np.ones(len(ends), np.int64), slices)


def _grown(tried: list[_Candidate], count: int, slices: int, most: int, room: float) -> _Grown:
    """Choose the dimensions of a layer, and its members; none where a layer is not worth it. A slice has room for so
    many registrations. The first dimension may take more, because without it every slice holds all of the rest."""
    chosen: list[_Candidate] = []
    members = np.ones(count, np.bool_)
    cost = np.inf
    while len(chosen) < most:
        taken = {each.division.dimension for each in chosen}
        left = [each for each in tried if each.division.dimension not in taken]
        if chosen:
            left = [each for each in left if _fullest([*chosen, each], members & each.narrow, slices) <= room]
        costs = [_cost([*chosen, each], members & each.narrow, slices) for each in left]
        if not left or min(costs)[0] > cost * _NO_WORSE:
            break
        best = int(np.argmin([found * _favour(each) for (found, _), each in zip(costs, left, strict=True)]))
        cost, searched = costs[best]
        if searched > _WORTH * count:
            break
        chosen.append(left[best])
        members &= left[best].narrow
    return _Grown(chosen, members if chosen else np.zeros(count, np.bool_), cost)


def _cost(chosen: list[_Candidate], members: NDArray[np.bool_], slices: int) -> tuple[float, float]:
    """The cost of an event for the busiest slice and for all of them, with these dimensions turned as in a layer. An
    event is matched against everything that is no member, too."""
    sets = np.stack(
        [
            np.where(each.owners < 0, NOWHERE, place * slices + (each.owners + turn) % slices)
            for place, (each, turn) in enumerate(_turns(chosen, slices))
        ],
        axis=1,
    )
    sets[(sets == NOWHERE).any(axis=1)] = NOWHERE
    homes = np.tile(np.arange(slices), len(chosen))
    searched, busiest = pace([sets], _sizes(chosen, members, slices).reshape(-1), homes, slices)
    left = np.count_nonzero(~members)
    return busiest + left, searched + left


def _sizes(chosen: list[_Candidate], members: NDArray[np.bool_], slices: int) -> Integers:
    """What the sets hold, (dimensions, slices), with the dimensions turned as in a layer."""
    turns = _turns(chosen, slices)
    return np.stack([np.roll(np.count_nonzero(each.reached[members], axis=0), turn) for each, turn in turns])


def _turns(chosen: list[_Candidate], slices: int) -> list[tuple[_Candidate, int]]:
    """How far the owners of each dimension of a layer are moved on, so that a slice owns different parts in each."""
    return [(each, place * slices // len(chosen)) for place, each in enumerate(chosen)]


def _fullest(chosen: list[_Candidate], members: NDArray[np.bool_], slices: int) -> int:
    """What the fullest slice would hold, with everything that is no member, and without backups."""
    return int(_sizes(chosen, members, slices).sum(axis=0).max() + np.count_nonzero(~members))


def _favour(candidate: _Candidate) -> float:
    return 1.0 if candidate.division.kind == RangeDivision.kind else 1 / _NEARLY_AS_GOOD
