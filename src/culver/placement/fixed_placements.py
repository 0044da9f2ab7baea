"""Placements that learn nothing.

`hashed` is StreamHub's default (section 3.2.1): a registration is in the slice that its number hashes to, and an
event goes to all slices. Slices are even whatever the filters say, and the number alone tells which slice must hear
that a registration has ended. Every slice works on every event.

`replicated` has one set, at home anywhere: every slice may work on every registration, and an event goes to any one
of them. Events need not be told apart, so whole ranges of the log can go to a slice as they are. The index must fit
into every worker's memory, though workers on one machine share its pages.
"""

from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching import ANYWHERE, ClauseTable, hash_keys
from culver.placement.placement import Route, State, always, everywhere, one_hot


class Hashed:
    name: ClassVar[str] = "hashed"

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self.homes = np.arange(slices)

    @classmethod
    def learnt(cls, table: ClauseTable, slices: int, events: pa.RecordBatch | None = None) -> Self:
        return cls(slices)

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        return cls(slices)

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        return self.holders(table.numbers)

    def holders(self, numbers: Integers) -> NDArray[np.bool_]:
        high = hash_keys(numbers) >> np.uint64(32)
        return one_hot((high * np.uint64(self.slices)) >> np.uint64(32), self.slices)

    def route(self, batch: pa.RecordBatch) -> Route:
        return Route(batch.num_rows, tuple(always(each, batch.num_rows) for each in range(self.slices)))

    def state(self) -> State:
        return {}


class Replicated(Hashed):
    name: ClassVar[str] = "replicated"

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self.homes = np.array([ANYWHERE])

    def holders(self, numbers: Integers) -> NDArray[np.bool_]:
        return everywhere(len(numbers), 1)

    def route(self, batch: pa.RecordBatch) -> Route:
        return Route(batch.num_rows, (always(0, batch.num_rows),))
