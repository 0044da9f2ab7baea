"""What a placement would cost, from a sample: how much an event is matched against, and how much a slice holds."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from culver.matching import ANYWHERE, ClauseTable
from culver.placement.divisions.dimension_choice import sampled
from culver.placement.ideal_pace import pace
from culver.placement.placement import Placement
from culver.placement.typical_events import draw_typical_events

_CLEARLY = 0.8  # of the cost: what is worth a change


@dataclass(frozen=True, slots=True)
class Expected:
    """Shares of all registrations. One that is in several sets of a slice is held several times, so that a share may
    be above 1."""

    searched: float  # that an event is matched against, in all slices together
    busiest: float  # the same by the busiest slice, times the slices: what throughput goes by
    fullest: float  # in the sets that the fullest slice may work on


def expected(placement: Placement, table: ClauseTable, events: pa.RecordBatch | None = None) -> Expected:
    """For registrations like these, and events like these (without any: like the registrations), each of which goes
    to the candidate that is done with it first. One that learns as it assigns learns these."""
    table = sampled(table)
    count = max(1, len(table.numbers))
    held = placement.assign(table)
    sizes = np.count_nonzero(held, axis=0)
    route = placement.route(draw_typical_events(table) if events is None else events)
    searched, busiest = pace(route.choices, sizes, placement.homes, placement.slices)
    anywhere = int(sizes[placement.homes == ANYWHERE].sum())
    homes = placement.homes >= 0
    own = np.bincount(placement.homes[homes], sizes[homes], placement.slices)
    return Expected(searched / count, busiest / count, (anywhere + float(own.max())) / count)


def is_clearly_better(
    fresh: Placement, present: Placement, table: ClauseTable, events: pa.RecordBatch | None = None
) -> bool:
    """Whether events would cost so much less with another division that it is worth a change."""
    ours, theirs = (expected(each, table, events).busiest for each in (fresh, present))
    return ours < _CLEARLY * theirs
