"""Figure 10: what a placement costs when subscriptions are stored, and what it saves when events are matched.

The cost of a subscription has two parts: the access point decides on slices, and M writes its segment. So has the
cost of an event: the access point works out which slices get it, and M matches it in all slices in turn. The sum is
work, not delay.
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from culver.bench.bench_frame import Tell
from culver.bench.matching.matching_bench import one_core
from culver.bench.streamhub import sliced_index, streamhub_paper
from culver.bench.streamhub.streamhub_findings import Finding
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
    events = sliced_index.workload().event_batch(_EVENTS, SEED)
    warm_up_operators()
    with one_core(), tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        for count in plan.clustering_sizes:
            table = sliced_index.table_of(count)
            # The first time does not count: it compiles kernels and brings everything into memory.
            for placement in sliced_index.PLACEMENTS:
                _store(Path(directory) / f"{count}-{placement}-first", placement, table)
            for turn in range(plan.rounds):
                tell(f"figure 10: {count:,} subscriptions, round {turn + 1} of {plan.rounds}")
                for placement in sliced_index.PLACEMENTS:
                    index = Path(directory) / f"{count}-{placement}-{turn}"
                    _keep_best(costs, (STORED, placement, count), _store(index, placement, table))
                    _keep_best(costs, (MATCHED, placement, count), _match(index, events))
    return findings_of(costs)


def findings_of(costs: Costs) -> list[Finding]:
    """Findings of the costs themselves, and of each placement's cost against hashing."""
    findings: list[Finding] = []
    for (what, placement, count), cost in costs.items():
        slices = 1 if placement == Replicated.name else SLICES
        finding = partial(
            Finding, figure=FIGURE, cores=1, subscriptions=count, placement=placement, slices=slices
        )
        findings += [
            finding(what=what, unit="µs", ours=ours, part=part, note="paper: only drawn")
            for part, ours in (("AP", cost.access_point), ("M", cost.matching), ("AP + M", cost.both))
        ]
        if placement != "hashed":
            at_its_size = what == MATCHED and count == streamhub_paper.CLUSTERING_SUBSCRIPTIONS
            findings.append(
                finding(
                    what=f"{what}, against hashed",
                    unit="times",
                    ours=cost.both / costs[what, "hashed", count].both,
                    part="AP + M",
                    paper=streamhub_paper.CLUSTERED_MATCHING if at_its_size and slices > 1 else None,
                )
            )
    return findings


def _keep_best(costs: dict[tuple[str, str, int], Cost], key: tuple[str, str, int], cost: Cost) -> None:
    if key not in costs or cost.both < costs[key].both:
        costs[key] = cost


def _store(directory: Path, placement: str, table: ClauseTable) -> Cost:
    """Store all subscriptions. The decision is made once more by itself, and M's part is the rest of the whole."""
    started = time.perf_counter()
    sliced_index.placement_for(placement, SLICES, table).assign(table)
    decided = time.perf_counter()
    sliced_index.store(directory, sliced_index.placement_for(placement, SLICES, table), table)
    stored = time.perf_counter()
    scale = 1e6 / len(table.numbers)
    deciding = (decided - started) * scale
    return Cost(deciding, max(0.0, (stored - decided) * scale - deciding))


def _match(directory: Path, events: pa.RecordBatch) -> Cost:
    index = DividedIndex(directory, sliced_index.VERSION)
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
