"""How fast slices would be that share the work well: what an event costs where every slice is at work all the time.

An event costs in a set what the set holds (BlueDove's model: time is proportional to the set that is searched). It
goes, in each choice, to the candidate whose slice would be done with it first. The slice with most to do sets the
pace.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from culver.jit import Integers, Reals, compiled


class Pace(NamedTuple):
    """Registrations for each event, on the average."""

    searched: float  # by all slices together
    busiest: float  # by the busiest slice, times the slices: the same where all have as much to do


def pace(choices: Sequence[Integers], sizes: Integers, homes: Integers, slices: int) -> Pace:
    """For events that go to such sets, of such sizes, at home in such slices."""
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
