"""Figure 7: the cost of an event against the size of the subscription set, on one core."""

import contextlib
import math
from collections.abc import Mapping
from functools import partial

from culver.bench.bench_frame import Tell
from culver.bench.matching.contestants import KINDS, Contestant
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.matching.matching_bench import one_core
from culver.bench.matching.rounds import Rounds, run_rounds
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan

FIGURE = "7"
COST = "cost of an event"
_FILTERS = ("columnar", "counting", "numpy-scan")
_SEARCH = "numpy-scan"  # stands for the paper's linear search
_POOL_EVENTS = 65_536


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    costs: dict[str, dict[int, float]] = {name: {} for name in _FILTERS}
    pool = workload().event_batch(min(_POOL_EVENTS, plan.log_events), SEED)
    with one_core():
        for count in plan.filtering_sizes:
            tell(f"figure 7: {count:,} subscriptions")
            subscriptions = draw(workload(), count, SEED)
            with contextlib.ExitStack() as stack:
                loaded: dict[str, Contestant] = {}
                for name in _FILTERS:
                    loaded[name] = stack.enter_context(contextlib.closing(KINDS[name].make()))
                    loaded[name].load(subscriptions)
                results = run_rounds(loaded, pool, Rounds(plan.rounds, plan.round_seconds), lambda text: None)
            for name, result in results.items():
                costs[name][count] = 1e6 / result.events_per_second
    return findings_of(costs)


def findings_of(costs: Mapping[str, Mapping[int, float]]) -> list[Finding]:
    """Findings from the microseconds of an event, by filter and number of subscriptions."""
    finding = partial(Finding, figure=FIGURE, cores=1)
    findings = [
        finding(what=COST, unit="µs", ours=cost, part=name, subscriptions=count, note="paper: only drawn")
        for name in costs
        for count, cost in costs[name].items()
    ]
    faster, growth = "times faster than a linear search", "growth: cost ~ subscriptions to the power"
    for name in [each for each in costs if each != _SEARCH]:
        findings += [
            finding(
                what=faster,
                unit="times",
                ours=costs[_SEARCH][count] / cost,
                part=name,
                subscriptions=count,
                paper=streamhub_paper.COUNTING_TIMES_FASTER if count > 500 else None,
                note="ours: the search is NumPy's, vectorised",
            )
            for count, cost in costs[name].items()
        ]
        ours = _growth(costs[name])
        findings.append(
            finding(what=growth, unit="", ours=ours, part=name, note="paper: below 1 (sublinear)")
        )
    return findings


def _growth(costs: Mapping[int, float]) -> float:
    """The exponent of growth between the smallest and the largest set."""
    few, many = min(costs), max(costs)
    return math.log(costs[many] / costs[few]) / math.log(many / few)
