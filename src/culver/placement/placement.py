"""The placement protocol. StreamHub calls it `libcluster` (sections 3.2.1 and 4.2.2 of its paper), BlueDove
mPartition.

Slices share the work of matching, and a task does the work of one. Registrations are in sets, each with an index of
its own, and a slice works on one set or on several (BlueDove, section III-A: the sets of a matcher). Every slice may
work on a set whose home is ANYWHERE. An event goes to some sets, by choices: in each choice, one of several
candidates gets it. Every placement obeys this rule:

    For every registration that an event satisfies, EXACTLY ONE of the sets that get the event holds it,
    WHICHEVER candidates are chosen.

So every match is found once, and nothing behind the slices has to look for duplicates.

    registrations         slice 0            slice 1             event e = {x: 5, y: 1}
                          set x0   set y0    set x1   set y1     one choice: x0 or y1. Either holds A, the only
    A  x < 10, y < 2      A        A                  A          registration that e satisfies
    B  x > 10, y = 0               B         B
                          ^                           ^
                          e or ...                    ... e
"""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import ANYWHERE, ClauseTable, Partitioner

State = dict[str, Any]
NOWHERE = -1
"""In place of a set or a slice: none gets the event."""


@dataclass(frozen=True, slots=True)
class ChosenSets:
    """For each choice, the set that gets each event, and the slice that works on it there."""

    sets: tuple[Integers, ...]
    slices: tuple[Integers, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Where the events of a batch may go. Each choice is an array (events, candidates): exactly one of the sets in an
    event's row gets the event. NOWHERE fills a row up behind its candidates; an event with nothing else goes nowhere
    in this choice."""

    events: int
    choices: tuple[Integers, ...]


class Placement(Partitioner, Protocol):
    """A partitioner of the index that also routes events. Not thread-safe: one owner assigns and routes with it. Does
    no I/O.

    A route is right for all registrations that were assigned before it, by this object or by those whose state it was
    made from. It stays right where sets hold fewer registrations than that: those that have ended, or are yet to
    come, at most cost some events in vain.
    """

    def __init__(self, slices: int) -> None: ...

    @classmethod
    def learnt(cls, table: ClauseTable, slices: int, events: pa.RecordBatch | None = None) -> Self:
        """Make a placement that suits registrations like these, and events like these where some are given."""

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        """Restore a placement. Raises ValueError where `state` is not that of such a one with so many slices."""

    def route(self, batch: pa.RecordBatch) -> Route: ...


def one_hot(chosen: NDArray[np.integer[Any]], count: int) -> NDArray[np.bool_]:
    """An array (rows, count) that is true at what is chosen for each row."""
    result: NDArray[np.bool_] = chosen[:, None] == np.arange(count)
    return result


def everywhere(rows: int, sets: int) -> NDArray[np.bool_]:
    return np.ones((rows, sets), np.bool_)


def always(number: int, events: int) -> Integers:
    """The choice with one set as the only candidate. It takes no memory for each event."""
    return np.broadcast_to(np.array(number, np.int64), (events, 1))


def sets_of_slice(homes: Integers, own: int) -> list[int]:
    found: list[int] = np.flatnonzero((homes == own) | (homes == ANYWHERE)).tolist()
    return found
