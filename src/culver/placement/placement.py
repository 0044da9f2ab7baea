"""What a placement is. StreamHub calls it `libcluster` (sections 3.2.1 and 4.2.2 of its paper).

The work of matching is cut into slices. Each holds some registrations, and matches the events that it gets against
those. Whatever the placement, this must hold:

    For every registration that an event satisfies, EXACTLY ONE of the slices that get the event holds it.

Then every match is found, none is found twice, and nothing behind the slices has to look for duplicates.

    registrations      slice 0     slice 1     slice 2        event e satisfies A, B and C
    A  x < 10          A                                      one slice gets e: it must hold A, B and C
    B  x < 20          B           B                          or several get it: of the holders of A exactly one,
    C  y = 1           C           C           C              of the holders of B exactly one, ...
                       ^
                       e = {x: 5, y: 1}

There are two ways to get there: a registration in as many slices as its events may go to, and each event to one of
them (`replicated`, `event-space`); or a registration in one slice, and each event to every slice that may hold a
match (`hashed`, `kmeans`).
"""

import enum
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.index.table import ClauseTable

State = dict[str, Any]  # JSON


class Way(enum.StrEnum):
    """How many of the slices that a route marks must get the event."""

    ANY = "any"  # one of them, whichever
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Route:
    """Where the events of a batch go: StreamHub's three ways of sending, and BlueDove's.

                                     ANY of them                          ALL of them
        every slice (marked=None)    any slice                            all slices
        those marked for the event   a key's slice, or one of several     the slices of a key
                                     candidates, chosen by load

    `marked` has the shape (events, slices). An event with nothing marked matches nothing and goes nowhere.
    """

    events: int
    slices: int
    way: Way
    marked: NDArray[np.bool_] | None = None

    def chosen(self, turn: int = 0) -> NDArray[np.bool_]:
        """(events, slices): the slices to send to. Where any will do, the candidates take turns; `turn` says whose
        turn it is for the first event."""
        if self.marked is None and self.way is Way.ALL:
            return np.ones((self.events, self.slices), np.bool_)
        turns = np.arange(turn, turn + self.events)
        if self.marked is None:
            return one_hot(turns % self.slices, self.slices)
        if self.way is Way.ALL:
            return self.marked
        candidates = np.count_nonzero(self.marked, axis=1)
        several = np.flatnonzero(candidates > 1)
        if not len(several):
            return self.marked
        result = self.marked.copy()
        place = np.cumsum(self.marked[several], axis=1) - 1
        result[several] &= place == (turns[several] % candidates[several])[:, None]
        return result


class Placement(Protocol):
    """Not thread-safe: one owner assigns and routes with it. Does no I/O.

    A route is right for all registrations that were assigned before it, by this object or by those whose state it was
    made from. One that has seen more registrations than the slices hold is right, too: what has ended meanwhile, or
    is yet to come, costs at most some events in vain.
    """

    name: ClassVar[str]
    slices: int

    def __init__(self, slices: int) -> None: ...

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        """As it was when `state` was taken. Raises ValueError where that is not the state of such a placement with so
        many slices."""

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        """(registrations, slices): which slices hold each registration; at least one does. May learn."""

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(numbers, slices): the slices that must hear that these registrations have ended: the one that holds it
        where the number tells, all of them where it does not."""

    def route(self, batch: pa.RecordBatch) -> Route:
        """Which slices get each event of the batch."""

    def state(self) -> State:
        """Everything that `assign` and `route` have learnt, as JSON; a few kilobytes."""


def one_hot(chosen: NDArray[np.integer[Any]], slices: int) -> NDArray[np.bool_]:
    """(rows, slices): true at the slice chosen for each row."""
    result: NDArray[np.bool_] = chosen[:, None] == np.arange(slices)
    return result


def everywhere(rows: int, slices: int) -> NDArray[np.bool_]:
    return np.ones((rows, slices), np.bool_)
