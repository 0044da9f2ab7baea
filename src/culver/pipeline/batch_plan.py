"""What all tasks of a batch are told, the same for each: an index version, its slices, and how its sets did lately.

    workers --SliceWork, with each result--> LoadMeter (in the site) --LoadReport--> a file --> planner of a batch

The planner puts the report into the batch's offset, so all tasks of a batch decide by the same report, also when the
batch runs again. BlueDove, section III-B, forwards by such reports.

Imports nothing heavy: every process of Spark needs it.
"""

import zlib
from pathlib import Path

import msgspec

from culver.disk import write_whole

# Events of a block, whose rows have 16 bits.
_MOST_EVENTS = 1 << 16
_LEAST_EVENTS = 1 << 10
# Expected pairs of a block: two bytes each, and as much for sorting them.
_MOST_PAIRS = 1 << 26
# Share of the registrations that an event is assumed to match until one was measured.
_GUESSED_SHARE = 0.01


class LoadReport(msgspec.Struct, frozen=True):
    """How the sets did in the last seconds. Members by set are empty where nothing is known; `division` identifies
    the placement that numbers the sets."""

    division: str = ""
    registrations: int = 0  # in the index; the site fills this in
    pairs_per_event: float | None = None  # registrations that an event matched; None: not measured yet
    rates: tuple[float, ...] = ()  # events a second while a slice works on this set; 0: not measured
    arrivals: tuple[float, ...] = ()  # events a second that were sent to the set
    responses: tuple[float, ...] = ()  # seconds of a slice for a block, and for an event in the set
    cores: int = 0  # tasks that a cluster's executors can run at the same time; 0: not known

    def block_events(self) -> int:
        """How many events to match at once, so that their matches fit into memory."""
        pairs = self.pairs_per_event
        if pairs is None:
            pairs = _GUESSED_SHARE * self.registrations
        events = max(1, int(_MOST_PAIRS / max(pairs, 1.0)))
        return min(max(1 << (events.bit_length() - 1), _LEAST_EVENTS), _MOST_EVENTS)

    def or_as_before(self, before: "LoadReport") -> "LoadReport":
        """The report from before the last stop, as long as nothing is measured: how much events match, and how long
        they take, rarely changes."""
        known = self if self.pairs_per_event is not None else before
        return msgspec.structs.replace(
            known, registrations=self.registrations, cores=self.cores or before.cores
        )


class LoadFile:
    """The last report as JSON, for other processes and for the next start. It is not made durable: the next start
    takes it for a guess only, and measures anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: LoadReport | None = None

    def write(self, report: LoadReport) -> None:
        """Put the report in place as a whole, if it has changed."""
        if report != self._written:
            write_whole(self._path, [msgspec.json.encode(report)], durable=False)
            self._written = report

    def read(self) -> LoadReport:
        """The last report; an empty one where there is none."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=LoadReport)
        except (FileNotFoundError, msgspec.DecodeError):
            return LoadReport()


class BatchPlan(msgspec.Struct, frozen=True):
    """An index version with so many slices, of which each of so many tasks does its share:

        slices 5, tasks 2     task 0: slices 0 2 4     task 1: slices 1 3

    A task reads and routes an event once for all of its slices. `forwarding` chooses among an event's candidates."""

    index_version: int
    slices: int = 1
    tasks: int = 1
    load: LoadReport = LoadReport()
    forwarding: str = "adaptive"

    def slices_of(self, task: int) -> range:
        return range(task, self.slices, self.tasks)

    @property
    def mark(self) -> str:
        """A part of the names of partial results: those of tasks that were told otherwise must not be joined."""
        told = zlib.crc32(msgspec.json.encode([self.load, self.forwarding]))
        return f"{self.index_version}-{self.slices}-{told:08x}"
