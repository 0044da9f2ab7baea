"""Event space partitioning (ESP, section 4.2.2 of StreamHub's paper) along one dimension, an event to one slice.

    slices                 0             1             2             3
    price             ...      10 |           25 |           60 |        ...
    price < 20        held          held
    price > 30                                     held          held
    symbol = 'A'      held          held           held          held        (says nothing about price)
    event price = 12                 ^  goes here, and to no other slice

A registration is in every slice that one of its clauses reaches; a clause without an interval in the dimension (a
pattern, a list, presence, other attributes) reaches all of them. An event goes to the slice of its own value. One
without a value, or with one of another type, can only satisfy registrations that are in all slices, so any will do.

The paper's variant puts a registration into one slice, by its first attribute, and sends every event to all slices.
Here some registrations are in several, and in return each event is matched once, in one slice, which holds a part of
the registrations: more memory, less work. A slice takes a registration once; events are what it does all day.

The division (see `division`) is decided on the first registrations, as soon as there are enough, and then kept: all
registrations before that are in all slices. To decide anew is to build the index anew, with a new placement.
The number of a registration does not tell where it is, so its end goes to all slices.
"""

from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.index.columns import BatchColumns
from culver.matching.index.table import ClauseTable, select_registrations
from culver.placement.division import Division, best_division
from culver.placement.placement import Route, State, Way, everywhere, one_hot
from culver.placement.spans import Spans, spans_of, spans_on, together

_ENOUGH = 128  # registrations to decide on
_SAMPLE = 8192  # of more than these, every n-th is looked at


class EventSpace:
    name: ClassVar[str] = "event-space"

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self._decided = slices == 1
        self._division: Division | None = (
            None  # once decided: None where no dimension tells registrations apart
        )
        self._seen: Spans | None = None  # until decided

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        made = cls(slices)
        if state.get("slices") != slices:
            raise ValueError(f"not the state of an {cls.name} placement with {slices} slices")
        try:
            made._decided = bool(state["decided"])
            made._division = None if state["division"] is None else Division.from_state(state["division"])
            made._seen = None if state["seen"] is None else Spans.from_state(state["seen"])
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not the state of an {cls.name} placement") from exc
        return made

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        if not self._decided:
            self._learn(table)
        if self._division is None:
            return everywhere(len(table.numbers), self.slices)
        return self._division.holders(spans_on(table, self._division.dimension), self.slices)

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return everywhere(len(numbers), self.slices)

    def route(self, batch: pa.RecordBatch) -> Route:
        if self._division is None:
            return Route(batch.num_rows, self.slices, Way.ANY)
        chosen = self._division.slices_of_events(BatchColumns(batch))
        marked = one_hot(chosen, self.slices)
        marked[chosen < 0] = True
        return Route(batch.num_rows, self.slices, Way.ANY, marked)

    def state(self) -> State:
        return {
            "slices": self.slices,
            "decided": self._decided,
            "division": None if self._division is None else self._division.to_state(),
            "seen": None if self._seen is None else self._seen.to_state(),
        }

    def _learn(self, table: ClauseTable) -> None:
        count = len(table.numbers)
        if count > _SAMPLE:
            table = select_registrations(table, np.arange(count) % (count // _SAMPLE + 1) == 0)
        fresh = spans_of(table)
        seen = fresh if self._seen is None else together([self._seen, fresh])
        if seen.count < _ENOUGH:
            self._seen = seen
            return
        self._decided, self._seen = True, None
        self._division = best_division(seen, self.slices)


def selective_share(table: ClauseTable, slices: int) -> float:
    """The share of the registrations that this placement would keep off some slices; see `auto`."""
    held = EventSpace(slices).assign(table)
    return float(np.mean(~held.all(axis=1))) if len(held) else 0.0
