"""Every slice may work on every registration, and an event goes to any one of them.

There is one set, at home anywhere. Events need not be told apart, so whole ranges of the log can go to a slice as
they are. The index must fit into every worker's memory, though workers on one machine share its pages.
"""

from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching import ANYWHERE, ClauseTable
from culver.placement.placement import Route, State, always, everywhere


class Replicated:
    name: ClassVar[str] = "replicated"

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self.homes = np.array([ANYWHERE])

    @classmethod
    def learnt(cls, table: ClauseTable, slices: int, events: pa.RecordBatch | None = None) -> Self:
        return cls(slices)

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        return cls(slices)

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        return everywhere(len(table.numbers), 1)

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return everywhere(len(numbers), 1)

    def route(self, batch: pa.RecordBatch) -> Route:
        return Route(batch.num_rows, (always(0, batch.num_rows),))

    def state(self) -> State:
        return {}
