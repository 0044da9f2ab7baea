"""Runs the experiments of a paper about the overlay in turn, and draws their plots."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from culver.bench.bench_frame import Record, Tell
from culver.bench.line_plot import check_plotting, save_plots
from culver.bench.overlay import cluster_figures, gossip_figures, large_network, simulated_figures
from culver.bench.overlay.overlay_findings import COMPUTED, REAL, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import OverlayPlan
from culver.bench.overlay.packet_routes import B_DRP, FLOODING
from culver.bench.overlay.real_sites import real_figures
from culver.bench.overlay.real_sites.broker_costs import BrokerCosts, measure_costs
from culver.bench.overlay.routing_comparison import (
    encoded_tables,
    site_reach,
    site_strategies,
    site_traffic,
)
from culver.bench.overlay.simulated_figures import SimulatedFigures

_SIMULATED = frozenset("4567")


def run(paper: str, plan: OverlayPlan, plots: Path, tell: Tell) -> list[Record]:
    """Measure what the plan names, in the paper's order, and draw into the directory `plots`. Raises
    BenchmarkFailed."""
    check_plotting()
    records: list[Record] = []
    for result in PAPERS[paper](plan, tell):
        save_plots(result.plots, plots, tell)
        records += [finding.record() for finding in result.findings]
    return records


def _b_drp(plan: OverlayPlan, tell: Tell) -> Iterator[OverlayResult]:
    wanted = set(plan.figures)
    if wanted & _SIMULATED:
        tell("measuring what a message costs a broker")
        with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
            costs = measure_costs(Path(directory), plan.cost_events)
        yield OverlayResult(_cost_findings(costs))
        simulated = SimulatedFigures(plan, costs, tell)
    if "2" in wanted:
        yield simulated_figures.distribution(plan)
    if "3" in wanted:
        yield real_figures.single_broker(plan, tell)
    if "4" in wanted:
        yield simulated.growing_rate(FLOODING)
    if "5" in wanted:
        yield simulated.growing_rate(B_DRP)
        for brokers in plan.real_networks:
            result = real_figures.several_brokers(plan, brokers, tell)
            result.findings += simulated.model_of(brokers, plan.real_rate, round(plan.real_seconds))
            yield result
    if wanted >= {"4", "5"}:
        yield OverlayResult(simulated.gain())
    if "6" in wanted:
        yield simulated.constant_rates()
    if "7" in wanted:
        yield large_network.large_network(plan, costs, tell)
    if plan.compares_routing:
        yield site_traffic.measure(plan, tell)
        yield site_reach.measure(plan, tell)
        yield encoded_tables.measure(plan, tell)


def _clusters(plan: OverlayPlan, tell: Tell) -> Iterator[OverlayResult]:
    yield from cluster_figures.measure(plan, tell)
    if plan.compares_routing:
        yield site_strategies.measure(plan, tell)


def _cost_findings(costs: BrokerCosts) -> list[OverlayFinding]:
    load = f"; load of the machine {os.getloadavg()[0]:.1f}"
    return [
        OverlayFinding(
            experiment="costs",
            what=name,
            unit="µs",
            ours=1e6 * getattr(costs, name),
            how=how,
            note=note + load,
        )
        for name, how, note in (
            ("take", REAL, "a message of a publisher, into the log"),
            ("deliver", REAL, "to one live subscriber"),
            ("receive", REAL, "a message of another site, into the log"),
            ("send", COMPUTED, "matched with another site's predicate, put into a packet"),
            ("forward", COMPUTED, "a packet to one neighbour"),
        )
    ]


PAPERS: Mapping[str, Callable[[OverlayPlan, Tell], Iterator[OverlayResult]]] = {
    "b-drp": _b_drp,
    "clusters": _clusters,
    "gossip": gossip_figures.measure,
}
"""The papers that can be run again, by name."""
