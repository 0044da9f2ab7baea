"""The paper's figures one after another, with both models of costs, and their plots."""

from collections.abc import Callable, Mapping
from pathlib import Path

from culver.bench.bench_frame import Record, Tell
from culver.bench.bluedove import policy_comparison, scaling_runs, variations, workload_changes
from culver.bench.bluedove.bluedove_findings import Found, Value, records
from culver.bench.bluedove.bluedove_plan import BluedovePlan
from culver.bench.bluedove.service_times import Measured, Proportional
from culver.bench.bluedove.simulated_world import World
from culver.bench.matching.plot import plot

_FIGURES: Mapping[str, Callable[[World], Found]] = {
    scaling_runs.RESPONSE: scaling_runs.response_over_time,
    scaling_runs.SATURATION: scaling_runs.saturation_by_size,
    policy_comparison.POLICIES: policy_comparison.by_policy,
    policy_comparison.BALANCE: policy_comparison.balance,
    workload_changes.ELASTICITY: workload_changes.elasticity,
    workload_changes.FAILURES: workload_changes.failures,
    variations.VARIATIONS: variations.variations,
}


def run(plan: BluedovePlan, plots: Path, tell: Tell) -> list[Record]:
    """Simulate what the plan names, in the paper's order, and draw into the directory `plots`. Raises
    BenchmarkFailed."""
    plots.mkdir(parents=True, exist_ok=True)
    services = (Proportional(plan.subscriptions), Measured(plan.rounds, plan.slowed, plan.batch))
    worlds = [World(plan, service, tell) for service in services]
    values: list[list[Value]] = [[] for _ in worlds]
    for name, simulate in _FIGURES.items():
        if name not in plan.figures:
            continue
        for world, own in zip(worlds, values, strict=True):
            tell(f"figure {name}, {world.service.name} costs")
            found = simulate(world)
            own += found.values
            for each in found.drawings:
                path = plots / f"{each.name}-{world.service.name}.svg"
                text = plot(each.title, each.across, each.up, each.lines, linear=True)
                path.write_text(text, encoding="utf-8")
    tell(f"drawn into {plots}")
    return records(*values)
