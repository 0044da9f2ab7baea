"""How an index is divided: into slices, each with segments of its own.

    version 42   placement {"name": "hashed", "slices": 3, "state": ...}
      slice 0    segment  segment
      slice 1    segment
      slice 2    segment  segment  segment

Who decides is a placement (see `culver.placement`). The writer asks it about every registration that comes or ends,
and puts what it has learnt into each version, for those who send events to the slices.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.table import ClauseTable


@dataclass(frozen=True, slots=True)
class Placed:
    """What a version says of the placement that divided it."""

    name: str = "replicated"
    slices: int = 1
    state: dict[str, Any] = field(default_factory=dict)


UNDIVIDED = Placed()


class Slicing(Protocol):
    """As much of a placement as the writer needs."""

    name: ClassVar[str]
    slices: int

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        """(registrations, slices): which slices hold each registration."""

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(numbers, slices): which slices must hear that these registrations have ended."""

    def state(self) -> dict[str, Any]:
        """What it has learnt, as JSON."""


class Undivided:
    """One slice with everything in it, which every worker may map: the placement `replicated`."""

    name: ClassVar[str] = "replicated"
    slices = 1

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        return np.ones((len(table.numbers), 1), np.bool_)

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones((len(numbers), 1), np.bool_)

    def state(self) -> dict[str, Any]:
        return {}
