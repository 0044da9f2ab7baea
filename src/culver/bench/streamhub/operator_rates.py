"""Figure 8: each operator by itself, and all three together, on one core and in two processes, without Spark.

    AP    reads batches from the log's files and decides which slices get each event
    M     matches batches in memory
    EP    groups the matches of each slice and joins them (timed by itself while M runs before it)
    all   turns the log's files into notifications in memory

With two processes, AP, EP and all work on a range of the log each. Several slices of M are dealt out to the
processes, and the busier process sets the pace; a single slice runs in both, each with a range of its own.
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from culver.bench.bench_frame import Tell
from culver.bench.child_processes import side_by_side
from culver.bench.matching.matching_bench import one_core
from culver.bench.pipeline.backlog import fill_log
from culver.bench.streamhub import sliced_index, streamhub_paper
from culver.bench.streamhub.streamhub_findings import Finding
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.matching import MOST_EVENTS, Found, SearchMemory
from culver.pipeline import (
    DividedIndex,
    LoadReport,
    MatchMeter,
    Notifications,
    access_point,
    events_for_slice,
    exit_point,
    match_events,
    warm_up_operators,
)
from culver.placement import ChosenSets, Replicated
from culver.plugins import forwarding_named, open_reader

FIGURE = "8"
RATE = "events"
PROCESSES = 2
OPERATORS = ("AP", "M", "EP", "all")


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one process: an operator on the blocks of `[start, end)` of the log, in its own slices."""

    operator: str
    log: Path
    index: Path
    start: int
    end: int
    own: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Flow:
    events_per_second: float
    bytes_per_second: float  # of events, as the log has them
    notifications_per_second: float


Block = tuple[int, int]


class _Stage:
    """An operator with its input prepared, to be run on one block after another."""

    def __init__(self, job: Job) -> None:
        warm_up_operators()
        self._job = job
        self._reader = open_reader(job.log.absolute().as_uri())
        self._index = DividedIndex(job.index, sliced_index.VERSION)
        self._memory = SearchMemory()
        self._forwarding = forwarding_named("adaptive")()
        step = min(MOST_EVENTS, job.end - job.start)
        self.blocks = [(at, min(job.end, at + step)) for at in range(job.start, job.end, step)]
        if job.operator in ("M", "EP"):
            self.blocks = self.blocks[:1]  # what waits in memory
            self._parts = self._read(self.blocks[0])
            self._waiting = self._routed(self.blocks[0], self._parts)

    def run(self, block: Block) -> tuple[int, float]:
        """Returns the number of notifications and the seconds that the operator took."""
        began = time.perf_counter()
        meter = MatchMeter()
        match self._job.operator:
            case "AP":
                self._routed(block, self._read(block))
                count = 0
            case "M":
                own = self._job.own
                slices = [self._match(block, one, self._parts, self._waiting) for one in own]
                count = sum(found.pairs for each in slices for found in each)
            case "EP":
                count = len(self._exit_point(block, self._parts, self._waiting, meter).rows)
            case _:
                parts = self._read(block)
                found = self._exit_point(block, parts, self._routed(block, parts), meter)
                return len(found.rows), time.perf_counter() - began
        return count, time.perf_counter() - began - meter.seconds

    def block_bytes(self) -> int:
        return sum(part.nbytes for part in self._read(self.blocks[0]))

    def _read(self, block: Block) -> list[pa.RecordBatch]:
        return access_point(*block, self._reader.read(*block))

    def _routed(self, block: Block, parts: Sequence[pa.RecordBatch]) -> list[ChosenSets] | None:
        return self._index.route(self._forwarding, LoadReport(), block[0], parts)

    def _match(
        self,
        block: Block,
        own: int,
        parts: Sequence[pa.RecordBatch],
        routed: Sequence[ChosenSets] | None,
        meter: MatchMeter | None = None,
    ) -> Iterator[Found]:
        sent = None if routed is None else [events_for_slice(own, chosen) for chosen in routed]
        return match_events(self._index.set, block[0], parts, self._memory, sent, meter)

    def _exit_point(
        self,
        block: Block,
        parts: Sequence[pa.RecordBatch],
        routed: Sequence[ChosenSets] | None,
        meter: MatchMeter,
    ) -> Notifications:
        found = [
            each.part() for own in self._job.own for each in self._match(block, own, parts, routed, meter)
        ]
        return exit_point(block[0], sliced_index.VERSION, parts, found, self._memory)


def work(barrier: threading.Barrier, jobs: Sequence[Job]) -> list[Flow]:
    """Run the jobs in turn, each for its time; before each one, wait for the other processes."""
    flows: list[Flow] = []
    for job in jobs:
        stage = _Stage(job)
        size = stage.block_bytes() / (stage.blocks[0][1] - stage.blocks[0][0])
        stage.run(stage.blocks[0])
        barrier.wait()
        events = notifications = turn = 0
        elapsed = 0.0
        while elapsed < job.seconds or not turn:
            block = stage.blocks[turn % len(stage.blocks)]
            found, seconds = stage.run(block)
            notifications += found
            elapsed += seconds
            events += block[1] - block[0]
            turn += 1
        flows.append(Flow(events / elapsed, size * events / elapsed, notifications / elapsed))
    return flows


def jobs_of(whole: Job, slices: int, processes: int) -> list[Job]:
    """The job of each process: M's slices are dealt out, all other work is cut by ranges."""
    every = tuple(range(slices))
    if whole.operator == "M" and slices > 1:
        return [replace(whole, own=every[number::processes]) for number in range(processes)]
    events = whole.end - whole.start
    bounds = [whole.start + events * number // processes for number in range(processes + 1)]
    return [replace(whole, start=low, end=high, own=every) for low, high in itertools.pairwise(bounds)]


def together(jobs: Sequence[Job], flows: Sequence[Flow]) -> Flow:
    """The flow of all processes together. If each has other slices, every event must pass all of them."""
    events = [flow.events_per_second for flow in flows]
    transferred = [flow.bytes_per_second for flow in flows]
    if len({job.own for job in jobs}) == 1:
        return Flow(sum(events), sum(transferred), sum(flow.notifications_per_second for flow in flows))
    slowest = min(events)
    notifications = sum(flow.notifications_per_second / flow.events_per_second for flow in flows) * slowest
    return Flow(slowest, min(transferred), notifications)


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        log = Path(directory) / "log"
        fill_log(log, sliced_index.workload(), plan.log_events, SEED)
        for count in plan.sizes:
            table = sliced_index.table_of(count)
            for placement, slices in _divisions(plan.slices):
                tell(f"figure 8: {count:,} subscriptions, {placement}, {slices} slices")
                index = Path(directory) / f"{count}-{placement}-{slices}"
                sliced_index.store(index, sliced_index.placement_for(placement, slices, table), table)
                wholes = [
                    Job(operator, log, index, 0, plan.log_events, (), plan.operator_seconds)
                    for operator in OPERATORS
                ]
                one, two = (
                    _measured([jobs_of(whole, slices, processes) for whole in wholes])
                    for processes in (1, PROCESSES)
                )
                for operator, flow, double in zip(OPERATORS, one, two, strict=True):
                    findings += _findings(operator, placement, slices, count, flow, double)
    return findings


def _divisions(slices: Sequence[int]) -> Iterator[tuple[str, int]]:
    yield Replicated.name, 1
    for placement in sliced_index.PLACEMENTS:
        if placement != Replicated.name:
            yield from ((placement, number) for number in slices if number > 1)


def _measured(shares: Sequence[Sequence[Job]]) -> list[Flow]:
    """The flow of each operator, which has one job for each process."""
    by_process = list(zip(*shares, strict=True))
    if len(by_process) == 1:
        with one_core():
            flows = [work(threading.Barrier(1), by_process[0])]
    else:
        flows = side_by_side(work, [(jobs,) for jobs in by_process])
    return [together(jobs, of) for jobs, of in zip(shares, zip(*flows, strict=True), strict=True)]


def _findings(
    operator: str, placement: str, slices: int, count: int, one: Flow, two: Flow
) -> Iterator[Finding]:
    finding = partial(
        Finding, figure=FIGURE, part=operator, subscriptions=count, placement=placement, slices=slices
    )
    whole = operator == "all"
    notes = {
        "M": "paper: only drawn, linear in slices",
        "EP": "EP alone; paper: only with AP and M",
        "all": "ours: no network",
    }
    for cores, flow in ((1, one), (PROCESSES, two)):
        yield finding(
            what=RATE,
            unit="events/s",
            ours=flow.events_per_second,
            cores=cores,
            paper=streamhub_paper.EXIT_POINT_EVENTS.get(count) if whole else None,
            note=notes.get(operator, ""),
        )
        if operator == "AP":
            yield finding(
                what="events read",
                unit="MB/s",
                ours=flow.bytes_per_second / 1e6,
                cores=cores,
                paper=streamhub_paper.ACCESS_POINT_MEGABYTES,
                note="ours: no network",
            )
        else:
            yield finding(
                what="notifications",
                unit="/s",
                ours=flow.notifications_per_second,
                cores=cores,
                paper=streamhub_paper.EXIT_POINT_NOTIFICATIONS.get(count) if whole else None,
            )
    yield finding(
        what=f"{PROCESSES} processes against one",
        unit="times",
        ours=two.events_per_second / one.events_per_second,
        cores=PROCESSES,
        note="paper: linear, up to 8 machines" if operator == "M" else "",
    )
