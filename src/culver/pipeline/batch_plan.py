"""How to match a batch: decided once, and the same for all of its tasks. Imports nothing heavy: every process of
Spark needs it."""

import json
import zlib
from dataclasses import dataclass, field

from culver.pipeline.load_report import LoadReport


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """An index version with so many slices, of which each of so many tasks does its share:

        slices 5, tasks 2     task 0: slices 0 2 4     task 1: slices 1 3

    A task reads and routes an event once for all of its slices."""

    index_version: int
    slices: int = 1
    tasks: int = 1
    load: LoadReport = field(default_factory=LoadReport)
    forwarding: str = "adaptive"  # the policy that chooses among an event's candidates

    def share(self, task: int) -> range:
        """The slices of a task."""
        return range(task, self.slices, self.tasks)

    @property
    def mark(self) -> str:
        """A part of the names of partial results, which differs where tasks were told otherwise and must not be
        joined."""
        told = zlib.crc32(json.dumps([self.load.to_json(), self.forwarding]).encode())
        return f"{self.index_version}-{self.slices}-{told:08x}"
