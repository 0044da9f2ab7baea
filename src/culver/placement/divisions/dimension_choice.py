"""Which dimensions to divide, and where: decided from a sample of registrations, and of events where there are some.

A layer is built greedily. Every dimension is tried by itself, in ranges and in buckets, and the one is taken with
which events cost least (see `pace`); then another beside it, and so on, as long as that does not make it more. What
is not narrow in all of them is left over, and counts as if every event were matched against all of it; so a dimension
that many registrations say nothing about, or little, loses more than it brings. The next layer is made of what is
left, while it takes a fair share. A dimension is worth adding even if it saves nothing, for a second candidate evens
out what no cut can: load that changes, and slices that are slow or gone.

Where ranges are cut, `quantiles` may mean two things, and what is better is found out by trying:

    of the load      events times registrations: all sets are about as much work. Best where there is one candidate
    of the events    segments get as many events, and sets are as uneven as registrations are. Best where there are
                     several: events find a candidate on a cold spot (BlueDove, section III-A2)

Without events, the ends of intervals stand for both.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import BatchColumns, ClauseTable, Dimension, KeyLine, event_keys
from culver.placement.divisions.division import Division
from culver.placement.divisions.hash_division import divide_by_hash
from culver.placement.divisions.layer import Layer, narrow_registrations
from culver.placement.divisions.range_division import (
    RangeDivision,
    divide_at_equal_widths,
    divide_at_quantiles,
)
from culver.placement.divisions.term_spans import Spans, TermTable
from culver.placement.expected_cost import pace, sampled
from culver.placement.placement import NOWHERE
from culver.placement.typical_events import draw_typical_events

_ENOUGH = 128  # registrations to decide on
_SHARE = 0.05  # of all registrations: what a layer must take, and a dimension have terms of
_WORTH = 0.9  # of the registrations left over: with a layer, an event must be matched against less than this
_NO_WORSE = 1.02  # what an event is matched against, with one more dimension
_NEARLY_AS_GOOD = 1.1  # buckets are taken if they make it so much more than with ranges
_TRIED = 48  # dimensions, those with most terms


_Cutting = Literal["ends", "load", "events", "equal"]


@dataclass(frozen=True, slots=True)
class DivisionOptions:
    dimensions: int = 4  # of a layer, at most
    layers: int = 4  # at most
    cuts: Literal["quantiles", "equal"] = "quantiles"  # see above; or the paper's: equal widths
    fullest: float = np.inf  # share of all registrations, copies counted, that a slice is to hold at most


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
    """Layers for registrations and events like these; none where nothing tells them apart."""
    table = sampled(table)
    total = len(table.numbers)
    if total < _ENOUGH:
        return ()
    columns = BatchColumns(draw_typical_events(table) if events is None else events)
    ways: list[_Cutting] = ["equal"] if dividing.cuts == "equal" else ["ends"]
    if dividing.cuts == "quantiles" and events is not None:
        ways = ["load", "events"]
    layers: list[Layer] = []
    held = 0  # by the fullest slice, for the layers that there are
    while len(layers) < dividing.layers and len(table.numbers) >= max(1, _SHARE * total):
        terms = TermTable(table)
        tried = [_candidates(terms, slices, way, columns, _SHARE * total) for way in ways]
        room = dividing.fullest * total - held
        grown = min(
            (_grown(each, terms.count, slices, dividing.dimensions, room) for each in tried), key=_cost_of
        )
        if np.count_nonzero(grown.members) < _SHARE * total:
            break
        divisions = [each.division for each in grown.chosen]
        turned = [
            each.turned(place * slices // len(divisions), slices) for place, each in enumerate(divisions)
        ]
        layers.append(Layer(tuple(turned), slices))
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
    """The dimensions of a layer, and its members; none where it would not be worth it. A slice has room for so many:
    the first dimension may take more, for without it there is the rest, which every slice has all of."""
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
    """Of an event, for the busiest slice and for all of them, with these dimensions turned as in a layer; all that is
    no member is matched against, too."""
    choice = []
    for place, each in enumerate(chosen):
        turn = place * slices // len(chosen)
        choice.append(np.where(each.owners < 0, NOWHERE, place * slices + (each.owners + turn) % slices))
    sets = np.stack(choice, axis=1)
    sets[(sets == NOWHERE).any(axis=1)] = NOWHERE
    homes = np.tile(np.arange(slices), len(chosen))
    searched, busiest = pace([sets], _sizes(chosen, members, slices).reshape(-1), homes, slices)
    left = np.count_nonzero(~members)
    return busiest + left, searched + left


def _sizes(chosen: list[_Candidate], members: NDArray[np.bool_], slices: int) -> Integers:
    """(dimensions, slices): what the sets hold, with the dimensions turned as in a layer."""
    sizes = [np.count_nonzero(each.reached[members], axis=0) for each in chosen]
    turns = [place * slices // len(chosen) for place in range(len(chosen))]
    return np.stack([np.roll(each, turn) for each, turn in zip(sizes, turns, strict=True)])


def _fullest(chosen: list[_Candidate], members: NDArray[np.bool_], slices: int) -> int:
    """How much a slice would hold, with what is no member, and without backups."""
    return int(_sizes(chosen, members, slices).sum(axis=0).max() + np.count_nonzero(~members))


def _favour(candidate: _Candidate) -> float:
    return 1.0 if candidate.division.kind == RangeDivision.kind else 1 / _NEARLY_AS_GOOD


def _cost_of(grown: _Grown) -> float:
    return grown.cost
