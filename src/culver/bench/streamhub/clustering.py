"""Figure 10: what a placement costs where subscriptions are stored, and what it saves where events are matched.

For a subscription: the access point's part (deciding on slices) and M's (its segment, written). For an event: the
access point's (which slices get it, worked out in each) and M's, all slices in turn: their work, not their delay.
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from culver.bench.bench_frame import Tell
from culver.bench.matching.matching_bench import one_core
from culver.bench.streamhub import sliced_matching, streamhub_paper
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.matching import ClauseTable, SearchMemory
from culver.pipeline import DividedIndex, LoadReport, events_for_slice, match_events, warm_up_operators
from culver.placement import Replicated
from culver.plugins import forwarding_named

FIGURE = "10"
SLICES = 4
STORED, MATCHED = "storing a subscription", "matching an event"
_EVENTS = 10_000  # as in the paper
_REPEATED = 5  # in a round: they are matched within milliseconds


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds for one subscription or event, in the access point and in M."""

    access_point: float
    matching: float

    @property
    def both(self) -> float:
        return self.access_point + self.matching


Costs = Mapping[tuple[str, str, int], Cost]
"""By STORED or MATCHED, placement, and number of subscriptions."""


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    costs: dict[tuple[str, str, int], Cost] = {}
    events = sliced_matching.workload().event_batch(_EVENTS, SEED)
    warm_up_operators()
    with one_core(), tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        for count in plan.clustering_sizes:
            table = sliced_matching.table_of(count)
            for (
                placement
            ) in sliced_matching.PLACEMENTS:  # once before it counts, so that all is compiled and in memory
                _store(Path(directory) / f"{count}-{placement}-first", placement, table)
            for turn in range(plan.rounds):
                tell(f"figure 10: {count:,} subscriptions, round {turn + 1} of {plan.rounds}")
                for placement in sliced_matching.PLACEMENTS:
                    index = Path(directory) / f"{count}-{placement}-{turn}"
                    _keep_best(costs, (STORED, placement, count), _store(index, placement, table))
                    _keep_best(costs, (MATCHED, placement, count), _match(index, events))
    return findings_of(costs)


def findings_of(costs: Costs) -> list[Finding]:
    """The costs, and each placement's against hashing."""
    findings: list[Finding] = []
    for (what, placement, count), cost in costs.items():
        slices = 1 if placement == Replicated.name else SLICES
        for part, ours in (("AP", cost.access_point), ("M", cost.matching), ("AP + M", cost.both)):
            findings.append(
                _finding(what, "µs", ours, part, count, placement, slices, None, "paper: only drawn")
            )
        if placement != "hashed":
            clustered = (
                what == MATCHED and count == streamhub_paper.CLUSTERING_SUBSCRIPTIONS and slices == SLICES
            )
            findings.append(
                _finding(
                    f"{what}, against hashed",
                    "times",
                    cost.both / costs[what, "hashed", count].both,
                    "AP + M",
                    count,
                    placement,
                    slices,
                    streamhub_paper.CLUSTERED_MATCHING if clustered else None,
                    "",
                )
            )
    return findings


def _keep_best(costs: dict[tuple[str, str, int], Cost], key: tuple[str, str, int], cost: Cost) -> None:
    if key not in costs or cost.both < costs[key].both:
        costs[key] = cost


def _store(directory: Path, placement: str, table: ClauseTable) -> Cost:
    """Deciding is done twice, once by itself: what is left of the whole is M's."""
    started = time.perf_counter()
    sliced_matching.placement_for(placement, SLICES, table).assign(table)
    decided = time.perf_counter()
    sliced_matching.store(directory, sliced_matching.placement_for(placement, SLICES, table), table)
    stored = time.perf_counter()
    scale = 1e6 / len(table.numbers)
    deciding = (decided - started) * scale
    return Cost(deciding, max(0.0, (stored - decided) * scale - deciding))


def _match(directory: Path, events: pa.RecordBatch) -> Cost:
    index = DividedIndex(directory, sliced_matching.VERSION)
    _matched(index, events)  # so that values seen for the first time do not count
    cost = min((_matched(index, events) for _ in range(_REPEATED)), key=lambda each: each.both)
    index.close()
    return cost


def _matched(index: DividedIndex, events: pa.RecordBatch) -> Cost:
    memory, forwarding = SearchMemory(), forwarding_named("adaptive")()
    started = time.perf_counter()
    routed = index.route(forwarding, LoadReport(), 0, [events])
    routing = time.perf_counter() - started
    for own in range(index.slices):
        sent = None if routed is None else [events_for_slice(own, chosen) for chosen in routed]
        for _ in match_events(index.set, 0, [events], memory, sent):
            pass
    seconds = time.perf_counter() - started
    scale = 1e6 / events.num_rows
    return Cost(routing * scale, (seconds - routing) * scale)


def _finding(
    what: str,
    unit: str,
    ours: float,
    part: str,
    count: int,
    placement: str,
    slices: int,
    quoted: Quoted | None,
    note: str,
) -> Finding:
    return Finding(
        figure=FIGURE,
        what=what,
        unit=unit,
        ours=ours,
        cores=1,
        part=part,
        subscriptions=count,
        placement=placement,
        slices=slices,
        paper=quoted,
        note=note,
    )
