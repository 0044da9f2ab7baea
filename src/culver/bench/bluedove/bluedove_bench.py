"""Runs the paper's figures in turn, each with both cost models, and draws their plots."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from culver.bench.bench_frame import Record, Tell
from culver.bench.bluedove import saturation_figures, workload_changes
from culver.bench.bluedove.bluedove_findings import FigureResult, Value, records
from culver.bench.bluedove.bluedove_plan import BluedovePlan
from culver.bench.bluedove.service_times import Measured, Proportional
from culver.bench.bluedove.simulated_world import World
from culver.bench.line_plot import check_plotting, save_plots

_FIGURES: Mapping[str, Callable[[World], FigureResult]] = {
    "5": saturation_figures.response_over_time,
    "6": saturation_figures.saturation_by_size,
    "7": saturation_figures.by_policy,
    "8": saturation_figures.balance,
    "9": workload_changes.elasticity,
    "10": workload_changes.failures,
    "11": saturation_figures.variations,
}


def run(plan: BluedovePlan, plots: Path, tell: Tell) -> list[Record]:
    """Simulate what the plan names, in the paper's order, and draw into the directory `plots`. Raises
    BenchmarkFailed."""
    check_plotting()
    services = (Proportional(plan.subscriptions), Measured(plan.rounds, plan.slowed, plan.batch))
    worlds = [World(plan, service, tell) for service in services]
    values: list[list[Value]] = [[] for _ in worlds]
    for name, simulate in _FIGURES.items():
        if name not in plan.figures:
            continue
        for world, own in zip(worlds, values, strict=True):
            tell(f"figure {name}, {world.service.name} costs")
            found, drawn = simulate(world)
            own += found
            named = [replace(plot, name=f"{plot.name}-{world.service.name}") for plot in drawn]
            save_plots(named, plots, tell)
    return records(*values)
