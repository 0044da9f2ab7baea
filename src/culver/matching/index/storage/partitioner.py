"""How an index is divided: into sets, each with segments of its own, that slices work on.

    version 42   placement {"name": "mpartition", "slices": 2, "homes": [-1, 0, 1], "state": ...}
      set 0      segment  segment              home -1: every slice may work on it
      set 1      segment                       home 0: slice 0 does
      set 2      segment  segment  segment     home 1: slice 1 does

Who decides is a placement (see `culver.placement`). The writer asks it about every registration that comes or ends,
and puts what it has learnt into each version, for those who send events to the slices.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.clause_table import ClauseTable

ANYWHERE = -1  # the home of a set that every slice may work on


class Slicing(Protocol):
    """As much of a placement as the writer needs."""

    name: ClassVar[str]
    slices: int
    homes: NDArray[np.int64]  # (sets,): the slice that works on each set, or ANYWHERE

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        """(registrations, sets): which sets hold each registration."""

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(numbers, sets): which sets must hear that these registrations have ended."""

    def state(self) -> dict[str, Any]:
        """What it has learnt, as JSON."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What a version says of the placement that divided it."""

    name: str = "replicated"
    slices: int = 1
    homes: tuple[int, ...] = (ANYWHERE,)
    state: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def by(cls, slicing: Slicing) -> Self:
        return cls(slicing.name, slicing.slices, tuple(slicing.homes.tolist()), slicing.state())

    def fingerprint(self) -> str:
        """The same for the same division, in every process."""
        return f"{zlib.crc32(json.dumps(asdict(self), sort_keys=True).encode()):08x}"

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        return cls(stored["name"], stored["slices"], tuple(stored["homes"]), stored["state"])


UNDIVIDED = Placed()


class Undivided:
    """One set with everything in it, which every worker may map: the placement `replicated`."""

    name: ClassVar[str] = "replicated"

    def __init__(self, slices: int = 1) -> None:
        self.slices = slices
        self.homes = np.array([ANYWHERE])

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        return np.ones((len(table.numbers), 1), np.bool_)

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones((len(numbers), 1), np.bool_)

    def state(self) -> dict[str, Any]:
        return {}
