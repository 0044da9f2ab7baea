"""How long events take in each set, lately: measured by M, and told to the access point with every batch.

    workers   Work, with each result  -->  LoadMeter (in the site)  --LoadReport-->  a file  -->  the planner of the
              next batch, which puts it into the batch's offset: all tasks of a batch decide by the same report, also
              when the batch is run again

Imports nothing heavy: every process of Spark needs it.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from culver.disk import write_whole
from culver.pipeline.operator_work import SliceWork

_HALF_LIFE_SECONDS = 10.0
_FORGOTTEN_EVENTS = 1e-6  # some five minutes after the last of a thousand
_DIGITS = 3
_MOST_EVENTS = 1 << 16  # of a block: rows are counted in 16 bits
_LEAST_EVENTS = 1 << 10
_MOST_PAIRS = 1 << 26  # that a block is expected to have: two bytes each, and as much to put them in order
_GUESSED_SHARE = 0.01  # of the registrations that an event matches, before any was


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The members by set are empty where nothing is known. `division` tells which placement numbers the sets."""

    division: str = ""
    registrations: int = 0  # in the index, which the site knows
    pairs_per_event: float | None = None  # registrations that an event matched; None: not measured yet
    rates: tuple[float, ...] = ()  # events a second while a slice works on nothing else; 0: not measured
    arrivals: tuple[float, ...] = ()  # events a second that were sent to the set
    responses: tuple[
        float, ...
    ] = ()  # seconds until a slice was done with a block, and with an event in the set
    cores: int = 0  # tasks that a cluster's executors can run at the same time; 0: not known

    def block_events(self) -> int:
        """How many events to match at once, so that what they match fits into memory."""
        pairs = self.pairs_per_event
        if pairs is None:
            pairs = _GUESSED_SHARE * self.registrations
        events = max(1, int(_MOST_PAIRS / max(pairs, 1.0)))
        return min(max(1 << (events.bit_length() - 1), _LEAST_EVENTS), _MOST_EVENTS)

    def or_as_before(self, before: "LoadReport") -> "LoadReport":
        """As long as nothing is measured, what a site knew when it was last stopped: how much events match, and how
        long they take, is mostly what it was."""
        if self.pairs_per_event is None:
            return replace(before, registrations=self.registrations, cores=self.cores or before.cores)
        return replace(self, cores=self.cores or before.cores)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> "LoadReport":
        arrays = {name: tuple(members[name]) for name in ("rates", "arrivals", "responses")}
        cores = members.get("cores", 0)  # Spark's checkpoint may hold a report of before there was one
        return cls(
            members["division"], members["registrations"], members["pairs_per_event"], **arrays, cores=cores
        )


@dataclass(slots=True)
class _SetLoad:
    sent: float = 0.0
    seconds: float = 0.0
    blocks: float = 0.0
    block_seconds: float = 0.0  # of the slices that worked on it, for everything they did meanwhile


class LoadMeter:
    """Adds up work, the older the less. Not thread-safe; time is passed in."""

    def __init__(self, half_life_seconds: float = _HALF_LIFE_SECONDS) -> None:
        self._half_life = half_life_seconds
        self._at: float | None = None
        self._division = ""
        self._sets: dict[int, _SetLoad] = {}
        self._events = self._pairs = 0.0
        self._last_pairs: float | None = None

    def add(self, work: Iterable[SliceWork], now: float) -> None:
        """What one block took, in all slices that worked on it."""
        records = tuple(work)
        if not records:
            return
        self._fade(now)
        self._events += max(each.events for each in records)
        self._pairs += sum(each.pairs for each in records)
        for each in records:
            if each.division != self._division:
                self._division, self._sets = each.division, {}
            for number, sent, seconds in each.sets:
                load = self._sets.setdefault(number, _SetLoad())
                load.sent += sent
                load.seconds += seconds
                load.blocks += 1
                load.block_seconds += each.m_seconds

    def report(self, now: float) -> LoadReport:
        self._fade(now)
        pairs = self._pairs / self._events if self._events > 1e-9 else self._last_pairs
        self._last_pairs = pairs
        sets = [self._sets.get(number, _SetLoad()) for number in range(max(self._sets, default=-1) + 1)]
        per_second = 0.6931 / self._half_life  # what a steady flow of one a second adds up to, turned over
        return LoadReport(
            self._division,
            0,
            None if pairs is None else _rounded(pairs),
            tuple(_rounded(each.sent / each.seconds) if each.seconds > 0 else 0.0 for each in sets),
            tuple(_rounded(each.sent * per_second) for each in sets),
            tuple(_rounded(_response(each)) for each in sets),
        )

    def _fade(self, now: float) -> None:
        kept = 1.0 if self._at is None else 0.5 ** (max(0.0, now - self._at) / self._half_life)
        self._at = now
        self._events *= kept
        self._pairs *= kept
        for load in self._sets.values():
            load.sent *= kept
            load.seconds *= kept
            load.blocks *= kept
            load.block_seconds *= kept
        # A set that got nothing for long counts as not measured: soon nothing would be left of it but rounding.
        self._sets = {number: load for number, load in self._sets.items() if load.sent > _FORGOTTEN_EVENTS}


def _response(load: _SetLoad) -> float:
    if load.sent <= 0 or load.blocks <= 0:
        return 0.0
    return load.block_seconds / load.blocks + load.seconds / load.sent


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


class LoadFile:
    """The last report, as JSON, for other processes, and for the next start. Not made durable: it is only a guess
    then, and measured anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: LoadReport | None = None

    def write(self, report: LoadReport) -> None:
        """Put it in place as a whole, if it is new."""
        if report == self._written:
            return
        write_whole(self._path, [json.dumps(report.to_json()).encode()], durable=False)
        self._written = report

    def read(self) -> LoadReport:
        """Nothing known where there is none yet."""
        try:
            return LoadReport.from_json(json.loads(self._path.read_bytes()))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return LoadReport()
