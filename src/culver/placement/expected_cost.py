"""What a placement would cost, from a sample: how much an event is matched against, and how much a slice holds.

Matching an event in a set costs in proportion to what the set holds (BlueDove's model). In each choice, the event
goes to the candidate whose slice would be done with it first. The slice with most to do sets the pace.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from culver.jit import Integers, Reals, compiled
from culver.matching import ANYWHERE, ClauseTable
from culver.placement.placement import Placement
from culver.placement.typical_events import draw_typical_events

LEARNING_SAMPLE = 8192
"""Of more registrations than these, every n-th is looked at."""
# A change is worth it where the cost falls below this part of what it is.
_CLEARLY = 0.8


class Pace(NamedTuple):
    """Registrations that an event is matched against, on average: by all slices together, and by the busiest slice
    times the number of slices. Both are equal where all slices have as much to do."""

    searched: float
    busiest: float


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


def pace(choices: Sequence[Integers], sizes: Integers, homes: Integers, slices: int) -> Pace:
    """Work out the pace for events with these choices among sets of these sizes and homes."""
    load = np.zeros(slices)
    events = max([1, *(len(choice) for choice in choices)])
    for choice in choices:
        spread(np.ascontiguousarray(choice), sizes, homes, load)
    return Pace(float(load.sum()) / events, float(load.max()) * slices / events)


@compiled
def spread(choice: Integers, sizes: Integers, homes: Integers, load: Reals) -> None:
    """Add each event of a choice to the load of the slice that it goes to."""
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
