"""A partitioner divides an index into sets. Each set has its own segments, and slices work on sets.

    version 42   placement {"name": "mpartition", "slices": 2, "homes": [-1, 0, 1], "state": ...}
      set 0      segment  segment              home -1: every slice may work on it
      set 1      segment                       home 0: slice 0 does
      set 2      segment  segment  segment     home 1: slice 1 does

A partitioner decides which sets hold a registration. The writer asks it about every registration that comes or ends,
and stores what it has learnt with each version, for those who send events to the slices. A placement (see
`culver.placement`) is a partitioner that also routes events. Without a partitioner there is one set, which holds
everything.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.clause_table import ClauseTable

ANYWHERE = -1
"""The home of a set that every slice may work on."""


class Partitioner(Protocol):
    name: ClassVar[str]
    slices: int
    homes: NDArray[np.int64]
    """By set: the slice that works on it, or ANYWHERE."""

    def assign(self, table: ClauseTable) -> NDArray[np.bool_]:
        """Say which sets hold each registration, as an array (registrations, sets). At least one does. May learn."""

    def holders(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which sets must hear that these registrations have ended, as an array (numbers, sets): the ones that
        hold it where the number tells, all of them where it does not."""

    def state(self) -> dict[str, Any]:
        """Everything that it has learnt, as JSON; some kilobytes."""


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """What a version stores about the partitioner that divided it. The default is an index in one set."""

    name: str = "replicated"
    slices: int = 1
    homes: tuple[int, ...] = (ANYWHERE,)
    state: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, partitioner: Partitioner | None) -> Self:
        if partitioner is None:
            return cls()
        homes = tuple(partitioner.homes.tolist())
        return cls(partitioner.name, partitioner.slices, homes, partitioner.state())

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(stored["name"], stored["slices"], tuple(stored["homes"]), stored["state"])

    def fingerprint(self) -> str:
        """The same for the same division, in every process."""
        return f"{zlib.crc32(json.dumps(asdict(self), sort_keys=True).encode()):08x}"


UNDIVIDED = PlacementRecord()
