"""How long events took in each set in the last seconds: M measures it, and the access point of every batch uses it.

    workers --SliceWork, with each result--> LoadMeter (in the site) --LoadReport--> a file --> planner of a batch

The planner puts the report into the batch's offset, so all tasks of a batch decide by the same report, also when the
batch runs again. BlueDove, section III-B, forwards by such reports.

Imports nothing heavy: every process of Spark needs it.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from culver.disk import write_whole

# Events of a block, whose rows have 16 bits.
_MOST_EVENTS = 1 << 16
_LEAST_EVENTS = 1 << 10
# Expected pairs of a block: two bytes each, and as much for sorting them.
_MOST_PAIRS = 1 << 26
# Share of the registrations that an event is assumed to match until one was measured.
_GUESSED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How the sets did. Members by set are empty where nothing is known; `division` identifies the placement that
    numbers the sets."""

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
        if self.pairs_per_event is None:
            return replace(before, registrations=self.registrations, cores=self.cores or before.cores)
        return replace(self, cores=self.cores or before.cores)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> "LoadReport":
        arrays = {name: tuple(members[name]) for name in ("rates", "arrivals", "responses")}
        cores = members.get("cores", 0)  # a report in an older checkpoint of Spark has none
        return cls(
            members["division"], members["registrations"], members["pairs_per_event"], **arrays, cores=cores
        )


class LoadFile:
    """The last report as JSON, for other processes and for the next start. It is not made durable: the next start
    takes it for a guess only, and measures anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: LoadReport | None = None

    def write(self, report: LoadReport) -> None:
        """Put the report in place as a whole, if it has changed."""
        if report == self._written:
            return
        write_whole(self._path, [json.dumps(report.to_json()).encode()], durable=False)
        self._written = report

    def read(self) -> LoadReport:
        """The last report; an empty one where there is none."""
        try:
            return LoadReport.from_json(json.loads(self._path.read_bytes()))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return LoadReport()
