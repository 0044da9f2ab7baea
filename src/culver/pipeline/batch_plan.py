"""How a batch is to be matched: decided once, and the same for all of its tasks. Imports nothing heavy: every process
of Spark needs it."""

import json
import zlib
from dataclasses import dataclass, field

from culver.pipeline.set_loads import LoadReport


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """With an index version that has so many slices, of which each of so many tasks does its share:

        slices 5, tasks 2     task 0: slices 0 2 4     task 1: slices 1 3

    A task that does several reads and routes an event once for all of them."""

    index_version: int
    slices: int = 1
    tasks: int = 1
    load: LoadReport = field(default_factory=LoadReport)
    forwarding: str = "adaptive"  # the policy by which an event's candidates are chosen from

    def share(self, task: int) -> range:
        """The slices of a task."""
        return range(task, self.slices, self.tasks)

    @property
    def mark(self) -> str:
        """In the names of partial results: those of tasks that were told otherwise must not be joined."""
        told = zlib.crc32(json.dumps([self.load.to_json(), self.forwarding]).encode())
        return f"{self.index_version}-{self.slices}-{told:08x}"
