"""Figure 3, and as much of figure 5 as one machine bears, with real brokers and sockets.

Brokers and clients share the machine's cores, so the rates stay below the paper's.
"""

import os
import tempfile
from functools import partial
from pathlib import Path

from culver.bench.bench_frame import Tell
from culver.bench.line_plot import LinePlot
from culver.bench.overlay import bdrp_paper as paper
from culver.bench.overlay.broker_topologies import paper_topology
from culver.bench.overlay.client_workload import SINGLE, SPREAD, WorkloadDraw
from culver.bench.overlay.overlay_findings import REAL, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.bench.overlay.packet_routes import B_DRP
from culver.bench.overlay.real_sites.client_ramp import Ramp, RampResult, run_ramp
from culver.bench.overlay.real_sites.real_brokers import real_brokers
from culver.bench.overlay.simulated_figures import LINK_USE, OUTPUT

# Not the measure of the simulation, which counts what is late at any time.
UNDELIVERED_AT_END = "undelivered 1 s after the end"

_FIRST_SHARE = 0.01  # of the last rate, as in the paper


def single_broker(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    """Figure 3: one broker, few and simple predicates, many deliveries of a message."""
    draw = WorkloadDraw(SINGLE, plan.messages, SEED)
    tell(f"figure 3: 1 real broker, up to {plan.single_rate:,.0f} messages/s")
    run = _run(plan, draw, 1, plan.single_rate)
    finding = partial(
        OverlayFinding, experiment="3", how=REAL, brokers=1, clients=SINGLE.clients, rate=plan.single_rate
    )
    second = _last_second(run)
    replication = float(run.total_due / max(1, sum(run.published)))
    result = OverlayResult(
        [
            finding(
                what="deliveries of a message",
                unit="a message",
                ours=replication,
                paper=paper.SINGLE_REPLICATION,
            ),
            finding(what="input at the last rate", unit="messages/s", ours=run.published[second]),
            finding(
                what=OUTPUT,
                unit="deliveries/s",
                ours=run.delivered[second],
                note=f"of {run.due[second]:,} that were due; {_cpu_note(run, plan)}",
            ),
            finding(what=UNDELIVERED_AT_END, unit="%", ours=run.undelivered_percent, note=_late_note(run)),
        ]
    )
    result.plots.append(_plot("figure-3", "Figure 3: one broker, real", run))
    return result


def several_brokers(plan: OverlayPlan, brokers: int, tell: Tell) -> OverlayResult:
    """Figure 5, up to the rate that this machine bears."""
    draw = WorkloadDraw(SPREAD, plan.messages, SEED)
    tell(f"figure 5: {brokers} real brokers, up to {plan.real_rate:,.0f} messages/s")
    run = _run(plan, draw, brokers, plan.real_rate)
    finding = partial(
        OverlayFinding,
        experiment="5",
        how=REAL,
        policy=B_DRP,
        brokers=brokers,
        clients=SPREAD.clients,
        rate=plan.real_rate,
    )
    second = _last_second(run)
    result = OverlayResult(
        [
            finding(what=UNDELIVERED_AT_END, unit="%", ours=run.undelivered_percent, note=_late_note(run)),
            finding(
                what=OUTPUT,
                unit="deliveries/s",
                ours=run.delivered[second],
                note=f"of {run.due[second]:,} that were due; {_cpu_note(run, plan)}",
            ),
        ]
    )
    if run.link_use:
        use = 100 * run.link_use[second] / paper.LINK_BYTES_PER_SECOND
        result.findings.append(
            finding(
                what=LINK_USE,
                unit="%",
                ours=use,
                note=f"of 1 MB/s, one direction, all frames; {run.events_per_packet:.1f} messages in a packet",
            )
        )
    result.plots.append(_plot(f"figure-5-{brokers}-real", f"Figure 5: {brokers} brokers, real", run))
    return result


def _run(plan: OverlayPlan, draw: WorkloadDraw, brokers: int, rate: float) -> RampResult:
    with (
        tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory,
        real_brokers(paper_topology(brokers, SEED), Path(directory), paper.LINK_BYTES_PER_SECOND) as sites,
    ):
        return run_ramp(sites, draw, Ramp(_FIRST_SHARE * rate, rate, plan.real_seconds))


def _last_second(run: RampResult) -> int:
    """The last whole second in which messages were published."""
    return max(second for second, count in enumerate(run.published) if count)


def _cpu_note(run: RampResult, plan: OverlayPlan) -> str:
    cores = sum(run.cpu_seconds) / plan.real_seconds
    return f"brokers took {cores:.2f} cores on average; load {os.getloadavg()[0]:.1f}"


def _late_note(run: RampResult) -> str:
    return f"all came later; clients at most {1_000 * run.behind_seconds:.0f} ms behind"


def _plot(name: str, title: str, run: RampResult) -> LinePlot:
    seconds = [second + 0.5 for second in range(len(run.published))]
    lines = {
        label: list(zip(seconds, map(float, values), strict=True))
        for label, values in (("input", run.published), ("output", run.delivered), ("due", run.due))
    }
    return LinePlot(name, title, "seconds", "a second", lines)
