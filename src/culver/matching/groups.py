"""Matches by registration: what the exit point hands on."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

MOST_EVENTS = 1 << 16
"""That are grouped together: a row then takes two bytes."""

Rows = NDArray[np.uint16]


class Groups(NamedTuple):
    """Registration `numbers[i]` (ascending) gets the events `rows[bounds[i]:bounds[i + 1]]` (ascending)."""

    numbers: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: Rows


class Runs(NamedTuple):
    """Matches event by event, in four bytes each. Run i is of the event that is row `rows[i]`, which satisfies
    `lengths[i]` registrations: the next ones in `numbers`, to which `low` is to be added. Rows ascend, and an event
    that satisfies nothing has no run."""

    low: int
    high: int
    """No registration lies above, nor below `low`."""
    rows: Rows
    lengths: NDArray[np.uint32]
    numbers: NDArray[np.uint32]


class Found(Protocol):
    """What some events match, to be grouped before the next of its kind is asked for: they may share memory."""

    @property
    def pairs(self) -> int:
        """Of an event and a registration, or a few more."""

    def groups(self) -> Groups:
        """May be called once."""
