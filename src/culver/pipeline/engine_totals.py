"""What an engine has done since it started: totals that only grow, the load of the last seconds, and their tally.

Rates are differences between two observations (`culver.control`).
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from culver.model import COLUMNAR
from culver.pipeline.batch_plan import LoadReport
from culver.pipeline.operator_work import SliceWork

BATCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of batch durations, which has one more count for longer ones."""

_RECENT_BATCHES = 256
_WORKERS_KEPT = 64
_HALF_LIFE_SECONDS = 10.0
# A thousand events fade to this in about five minutes.
_FORGOTTEN_EVENTS = 1e-6


@dataclass(frozen=True, slots=True)
class SliceTotals:
    """The sum of all work for one slice; see `SliceWork` for the members."""

    slice: int
    events: int = 0
    sent: int = 0
    pairs: int = 0
    ap_seconds: float = 0.0
    m_seconds: float = 0.0
    ep_seconds: float = 0.0

    @property
    def busy_seconds(self) -> float:
        return self.ap_seconds + self.m_seconds + self.ep_seconds

    def plus(self, work: "SliceWork | SliceTotals", sign: int = 1) -> "SliceTotals":
        return SliceTotals(
            self.slice,
            self.events + sign * work.events,
            self.sent + sign * work.sent,
            self.pairs + sign * work.pairs,
            self.ap_seconds + sign * work.ap_seconds,
            self.m_seconds + sign * work.m_seconds,
            self.ep_seconds + sign * work.ep_seconds,
        )


@dataclass(frozen=True, slots=True)
class SchemeTotals:
    """The sum of all work of the operator M of one filtering scheme, in all slices."""

    scheme: str
    pairs: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Notification files that workers have written, and the seconds until they were on disk. A file may hold what
    several slices found. The inline engine writes none: delivery writes its results."""

    files: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RecentBatch:
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchTotals:
    """Batches are what an engine does at once: a micro-batch of Spark, a range of the inline engine. `counts` is a
    histogram over BATCH_SECONDS, `recent` has the last batches, oldest first, and `stages` the seconds of the last
    one's stages, by Spark's names."""

    count: int = 0
    events: int = 0
    seconds: float = 0.0
    counts: tuple[int, ...] = (0,) * (len(BATCH_SECONDS) + 1)
    recent: tuple[RecentBatch, ...] = ()
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineObservation:
    """An engine at one moment. Everything below `position` is matched and handed on; `ahead` events in
    `waiting_files` are matched behind a hole. `workers` maps host:pid to the records that came from there."""

    position: int
    ahead: int = 0
    waiting_files: int = 0
    blocks: int = 0  # results handed on
    slices: tuple[SliceTotals, ...] = ()
    written: FileTotals = field(default_factory=FileTotals)
    workers: Mapping[str, int] = field(default_factory=dict)
    batches: BatchTotals = field(default_factory=BatchTotals)
    spark_ui: str | None = None
    schemes: tuple[SchemeTotals, ...] = ()  # by name; together they are the work of M in all slices
    load: LoadReport = field(default_factory=LoadReport)

    def slices_since(self, earlier: "EngineObservation") -> list[SliceTotals]:
        """What each slice has done between two observations."""
        known = {each.slice: each for each in earlier.slices}
        return [each.plus(known.get(each.slice, SliceTotals(each.slice)), -1) for each in self.slices]


@dataclass(slots=True)
class _SetLoad:
    sent: float = 0.0
    seconds: float = 0.0
    blocks: float = 0.0
    block_seconds: float = 0.0  # of all work of M in the slices that worked on this set

    def response(self) -> float:
        return self.block_seconds / self.blocks + self.seconds / self.sent if self.blocks else 0.0


class LoadMeter:
    """Adds up work with weights that halve every ten seconds. Not thread-safe; time is passed in."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._division = ""
        self._sets: dict[int, _SetLoad] = {}
        self._events = self._pairs = 0.0
        self._last_pairs: float | None = None

    def add(self, work: Sequence[SliceWork], now: float) -> None:
        """Count the work on one block, in all slices that worked on it."""
        if not work:
            return
        self._fade(now)
        self._events += max(each.events for each in work)
        self._pairs += sum(each.pairs for each in work)
        for each in work:
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
        if self._events > 1e-9:
            self._last_pairs = _rounded(self._pairs / self._events)
        sets = [self._sets.get(number, _SetLoad()) for number in range(max(self._sets, default=-1) + 1)]
        per_second = 0.6931 / _HALF_LIFE_SECONDS  # a steady flow of one a second adds up to the inverse
        return LoadReport(
            self._division,
            0,
            self._last_pairs,
            tuple(_rounded(each.sent / each.seconds) if each.seconds > 0 else 0.0 for each in sets),
            tuple(_rounded(each.sent * per_second) for each in sets),
            tuple(_rounded(each.response()) for each in sets),
        )

    def _fade(self, now: float) -> None:
        kept = 1.0 if self._at is None else 0.5 ** (max(0.0, now - self._at) / _HALF_LIFE_SECONDS)
        self._at = now
        self._events *= kept
        self._pairs *= kept
        for load in self._sets.values():
            load.sent *= kept
            load.seconds *= kept
            load.blocks *= kept
            load.block_seconds *= kept
        # A set that got nothing for long counts as not measured: only rounding errors would be left of it.
        self._sets = {number: load for number, load in self._sets.items() if load.sent > _FORGOTTEN_EVENTS}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


class EngineTally:
    """Adds up the work that comes with an engine's results. Not thread-safe."""

    def __init__(self) -> None:
        self._loads = LoadMeter()
        self._blocks = 0
        self._slices: dict[int, SliceTotals] = {}
        self._schemes: dict[str, SchemeTotals] = {}  # all but the columnar one
        self._written = FileTotals()
        self._workers: dict[str, int] = {}
        self._batches = self._batch_events = 0
        self._batch_seconds = 0.0
        self._counts = [0] * (len(BATCH_SECONDS) + 1)
        self._recent: deque[RecentBatch] = deque(maxlen=_RECENT_BATCHES)
        self.stages: dict[str, float] = {}

    def add(self, work: Sequence[SliceWork]) -> None:
        """Count a result that was handed on, and its work."""
        self._blocks += 1
        self._loads.add(work, time.monotonic())
        for each in work:
            self._slices[each.slice] = (self._slices.get(each.slice) or SliceTotals(each.slice)).plus(each)
            for scheme, pairs, seconds in each.schemes:
                so_far = self._schemes.get(scheme, SchemeTotals(scheme))
                self._schemes[scheme] = SchemeTotals(scheme, so_far.pairs + pairs, so_far.seconds + seconds)
            if each.files:
                before = self._written
                self._written = FileTotals(
                    before.files + each.files,
                    before.bytes + each.written_bytes,
                    before.seconds + each.write_seconds,
                )
            self._workers[each.worker] = self._workers.pop(each.worker, 0) + 1
            if len(self._workers) > _WORKERS_KEPT:
                del self._workers[next(iter(self._workers))]  # the one that has been silent the longest

    def add_batch(self, events: int, seconds: float) -> None:
        self._batches += 1
        self._batch_events += events
        self._batch_seconds += seconds
        self._counts[bisect_left(BATCH_SECONDS, seconds)] += 1
        self._recent.append(RecentBatch(events, seconds))

    def observe(
        self, position: int, ahead: int = 0, waiting_files: int = 0, spark_ui: str | None = None
    ) -> EngineObservation:
        return EngineObservation(
            position,
            ahead,
            waiting_files,
            self._blocks,
            tuple(self._slices[number] for number in sorted(self._slices)),
            self._written,
            dict(self._workers),
            BatchTotals(
                self._batches,
                self._batch_events,
                self._batch_seconds,
                tuple(self._counts),
                tuple(self._recent),
                dict(self.stages),
            ),
            spark_ui,
            self._scheme_totals(),
            self._loads.report(time.monotonic()),
        )

    def _scheme_totals(self) -> tuple[SchemeTotals, ...]:
        """The columnar scheme did all the work that no other scheme reported."""
        others, slices = self._schemes.values(), self._slices.values()
        pairs = sum(each.pairs for each in slices) - sum(each.pairs for each in others)
        seconds = sum(each.m_seconds for each in slices) - sum(each.seconds for each in others)
        every = [SchemeTotals(COLUMNAR, pairs, seconds), *others]
        return tuple(sorted(every, key=lambda each: each.scheme))
