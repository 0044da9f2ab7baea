"""Figure 7: a network of 42 brokers, as queues, with more clients, more and longer filters, and other links.

All settings get the same messages a second. The ideal is what would be delivered if nothing ever waited.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from culver.bench.bench_frame import Tell
from culver.bench.line_plot import LinePlot
from culver.bench.overlay import bdrp_paper as paper
from culver.bench.overlay.broker_queues import run_queues
from culver.bench.overlay.broker_topologies import paper_topology
from culver.bench.overlay.client_workload import SPREAD, ClientWorkload, WorkloadDraw, varied
from culver.bench.overlay.overlay_findings import COMPUTED, SIMULATED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.bench.overlay.packet_routes import B_DRP, FLOODING, BrokerNetwork, route_table
from culver.bench.overlay.real_sites.broker_costs import BrokerCosts
from culver.bench.overlay.simulated_figures import bearable_rate, growing

IDEAL_SHARE, BEARABLE = "output at the last rate, of the ideal", "input of which 95 % is delivered in time"


def large_network(plan: OverlayPlan, costs: BrokerCosts, tell: Tell) -> OverlayResult:
    result = OverlayResult()
    network = BrokerNetwork(paper_topology(plan.large_network, SEED))
    seconds, brokers = plan.ramp_seconds, plan.large_network
    result.findings += _busiest_links(plan, network, costs)
    for name, settings in _variations(plan):
        lines: dict[str, list[tuple[float, float]]] = {}
        for setting, workload, bandwidth in settings:
            tell(f"figure 7: {name}, {setting}, {brokers} brokers, simulated")
            drawn = WorkloadDraw(workload, plan.large_messages, SEED).spread(brokers)
            table = route_table(network, drawn, B_DRP, costs)
            run = run_queues(table, growing(1.0, plan.large_rate, seconds), seconds, bandwidth, SEED)
            lines[setting] = _points(run.published, run.delivered)
            if name != "link capacity":
                lines[f"{setting}, ideal"] = _points(run.published, run.due)
            elif "ideal" not in lines:
                lines["ideal"] = _points(run.published, run.due)
            finding = partial(
                OverlayFinding,
                experiment="7",
                how=SIMULATED,
                policy=B_DRP,
                brokers=brokers,
                clients=workload.clients,
                setting=setting,
                rate=plan.large_rate,
            )
            share = 100 * int(run.delivered[-1]) / max(1, int(run.due[-1]))
            to_brokers = drawn.broker_replication
            note = f"a message is for {drawn.client_replication:.1f} clients, {to_brokers:.1f} brokers"
            result.findings += [
                finding(what=IDEAL_SHARE, unit="%", ours=share, note=note),
                finding(what=BEARABLE, unit="messages/s", ours=bearable_rate(run), note=_paper_on(setting)),
            ]
        title = f"Figure 7: {name}, {brokers} brokers, simulated"
        slug = name.replace(" ", "-")
        result.plots.append(LinePlot(f"figure-7-{slug}", title, "messages/s", "deliveries/s", lines))
    return result


def _busiest_links(plan: OverlayPlan, network: BrokerNetwork, costs: BrokerCosts) -> Iterator[OverlayFinding]:
    """What a message puts on the link that gets the most, with either way to route and without acknowledgements."""
    drawn = WorkloadDraw(_base(plan), plan.large_messages, SEED).spread(plan.large_network)
    for policy in (B_DRP, FLOODING):
        table = route_table(network, drawn, policy, costs)
        by_link = np.bincount(table.hop_link, table.hop_bytes, table.links) / len(table.origin_seconds)
        yield OverlayFinding(
            experiment="7",
            what="bytes on the busiest link",
            unit="bytes/message",
            ours=float(by_link.max()),
            how=COMPUTED,
            policy=policy,
            brokers=plan.large_network,
            clients=drawn.workload.clients,
            note=f"all links {by_link.sum():,.0f}; "
            f"{drawn.reached.sum(axis=1).mean():.1f} brokers reached, {drawn.broker_replication:.1f} want it",
        )


def _base(plan: OverlayPlan) -> ClientWorkload:
    per_broker = paper.LARGE_CLIENTS // paper.LARGE_NETWORK
    return varied(SPREAD, clients=per_broker * plan.large_network)


def _variations(plan: OverlayPlan) -> Iterator[tuple[str, list[tuple[str, ClientWorkload, float]]]]:
    base = _base(plan)
    bandwidth = float(paper.LINK_BYTES_PER_SECOND)
    clients = [varied(base, clients=each * plan.large_network) for each in plan.clients_per_broker]
    yield (
        "clients",
        [(f"{each.clients // plan.large_network} clients a broker", each, bandwidth) for each in clients],
    )
    yield (
        "filters",
        [
            (f"{count} filters a client", varied(base, filters=count), bandwidth)
            for count in plan.filter_counts
        ],
    )
    yield (
        "filter complexity",
        [
            (_complexity(count), varied(base, constraints=count), bandwidth)
            for count in plan.constraint_counts
        ],
    )
    yield "link capacity", [(f"{size / 1_000:,.0f} KB/s", base, float(size)) for size in plan.link_capacities]


def _complexity(most: int) -> str:
    return "1 constraint a filter" if most == 1 else f"1 to {most} constraints a filter"


def _paper_on(setting: str) -> str:
    if setting in (f"{paper.MOST_CLIENTS_PER_BROKER} clients a broker", "100 KB/s"):
        return "paper: markedly worse than ideal"
    return "paper: nearly ideal"


def _points(across: NDArray[np.int64], values: NDArray[np.int64]) -> list[tuple[float, float]]:
    return list(zip(across.tolist(), values.tolist(), strict=True))
