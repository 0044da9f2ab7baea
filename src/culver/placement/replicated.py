"""Every slice may work on every registration, and an event goes to any one of them.

There is one set, at home anywhere. Events need not be told apart, so whole ranges of the log can go to a slice as
they are. The index must fit into every worker's memory, though workers on one machine share its pages.
"""

from typing import Self

import pyarrow as pa

from culver.matching import ClauseTable, Undivided
from culver.placement.placement import Route, State, always


class Replicated(Undivided):
    @classmethod
    def learnt(cls, table: ClauseTable, slices: int, events: pa.RecordBatch | None = None) -> Self:
        return cls(slices)

    @classmethod
    def from_state(cls, slices: int, state: State) -> Self:
        return cls(slices)

    def route(self, batch: pa.RecordBatch) -> Route:
        return Route(batch.num_rows, (always(0, batch.num_rows),))
