"""What a placement would cost, from a sample: how much an event is matched against, and how much a slice holds.

Matching an event in a set costs in proportion to what the set holds (BlueDove's model). In each choice, the event
goes to the candidate whose slice would be done with it first. The slice with most to do sets the pace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from culver.jit import Integers, Reals, compiled
from culver.matching import (
    ANYWHERE,
    HIGHEST_KEY,
    LOWEST_KEY,
    ClauseTable,
    KeyLine,
    reals_of_keys,
)
from culver.model import Event, Timestamp, Value
from culver.model.columns import concat, encode
from culver.placement.placement import Placement

LEARNING_SAMPLE = 8192
"""Of more registrations than these, every n-th is looked at."""
# A change is worth it where the cost falls below this part of what it is.
_CLEARLY = 0.8
_EVENTS = 512
# The dimensions with most terms.
_DIMENSIONS = 64
_SEED = 20_110_517
_INNER = "data."


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Shares of all registrations. A registration in several sets of a slice counts several times, so a share may be
    above 1.

    searched   an event is matched against so many, in all slices together
    busiest    the same by the busiest slice, times the slices: it decides the throughput
    fullest    in the sets that the fullest slice may work on
    """

    searched: float
    busiest: float
    fullest: float


def estimate_cost(
    placement: Placement, table: ClauseTable, events: pa.RecordBatch | None = None
) -> ExpectedCost:
    """Work out the cost for registrations like these, and for events like these (without any: like the
    registrations). A placement that learns as it assigns learns these registrations."""
    table = sampled(table)
    count = max(1, len(table.numbers))
    held = placement.assign(table)
    sizes = np.count_nonzero(held, axis=0)
    route = placement.route(draw_typical_events(table) if events is None else events)
    searched, busiest = pace(route.choices, sizes, placement.homes, placement.slices)
    anywhere = int(sizes[placement.homes == ANYWHERE].sum())
    homes = placement.homes >= 0
    own = np.bincount(placement.homes[homes], sizes[homes], placement.slices)
    return ExpectedCost(searched / count, busiest / count, (anywhere + float(own.max())) / count)


def is_clearly_better(
    fresh: Placement, present: Placement, table: ClauseTable, events: pa.RecordBatch | None = None
) -> bool:
    """Whether events would cost so much less with another division that it is worth a change."""
    ours, theirs = (estimate_cost(each, table, events).busiest for each in (fresh, present))
    return ours < _CLEARLY * theirs


def sampled(table: ClauseTable) -> ClauseTable:
    count = len(table.numbers)
    return table if count <= LEARNING_SAMPLE else table.every(count // LEARNING_SAMPLE + 1)


def pace(choices: Sequence[Integers], sizes: Integers, homes: Integers, slices: int) -> tuple[float, float]:
    """The registrations that an event with these choices among sets of these sizes and homes is matched against, on
    average: by all slices together, and by the busiest slice times the number of slices."""
    load = np.zeros(slices)
    events = max([1, *(len(choice) for choice in choices)])
    for choice in choices:
        spread(np.ascontiguousarray(choice), sizes, homes, load)
    return float(load.sum()) / events, float(load.max()) * slices / events


@compiled
def spread(choice: Integers, sizes: Integers, homes: Integers, load: Reals) -> None:
    for row in range(len(choice)):
        best, least = -1, np.inf
        for place in range(choice.shape[1]):
            number = choice[row, place]
            if number < 0:
                break
            home = int(homes[number] if homes[number] >= 0 else np.argmin(load))
            after = load[home] + sizes[number]
            if after < least:
                best, least = home, after
        if best >= 0:
            load[best] = least


def draw_typical_events(table: ClauseTable) -> pa.RecordBatch:
    """Draw events whose values fall where the intervals of registrations begin and end, the same for the same table.
    Every event has a value in each of the dimensions with most terms."""
    random = np.random.default_rng(_SEED)
    data: list[dict[str, Value]] = [{} for _ in range(_EVENTS)]
    terms = np.bincount(table.term_dimension, minlength=len(table.dimensions))
    for place in np.argsort(-terms, kind="stable")[:_DIMENSIONS].tolist():
        name, line = table.dimensions[place]
        ends = table.term_bounds[table.term_dimension == place].reshape(-1)
        ends = ends[(ends != LOWEST_KEY) & (ends != HIGHEST_KEY)]
        if line in (KeyLine.NUMBERS, KeyLine.REALS):
            ends = ends[np.isfinite(reals_of_keys(ends))]  # the key above that of the greatest real
        if not len(ends) or line is KeyLine.LISTS:
            continue
        attribute, values = (
            name.removeprefix(_INNER),
            _values(random.choice(ends, _EVENTS), line, table.literals),
        )
        for event, value in zip(data, values, strict=True):
            event.setdefault(attribute, value)
    return concat(encode([Event({}, each, b"{}") for each in data], 0))


def _values(keys: Integers, line: KeyLine, literals: tuple[bytes, ...]) -> Sequence[Value]:
    match line:
        case KeyLine.NUMBERS | KeyLine.REALS:
            reals: list[float] = reals_of_keys(keys).tolist()
            return reals
        case KeyLine.STRINGS:
            places = np.minimum(keys >> 1, len(literals) - 1)
            return [literals[place].decode(errors="replace") for place in places.tolist()]
        case KeyLine.BOOLEANS:
            return [bool(key) for key in keys.tolist()]
        case KeyLine.TIMESTAMPS:
            return [Timestamp(key) for key in keys.tolist()]
        case _:
            integers: list[int] = keys.tolist()
            return integers
