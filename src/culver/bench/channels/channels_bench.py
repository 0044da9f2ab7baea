"""Runs the paper's experiments and our own in turn and draws their plots."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from culver.bench.bench_frame import Record, Tell
from culver.bench.channels.analyser_cost import measure_analyser
from culver.bench.channels.channels_findings import ExperimentResult
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.game_experiments import measure_elasticity, measure_scalability
from culver.bench.channels.reconfiguration_experiment import measure_reconfigurations
from culver.bench.channels.replication_experiment import measure_replication
from culver.bench.channels.rival_systems import measure_baselines
from culver.bench.line_plot import check_plotting, save_plots

Measure = Callable[[ChannelsPlan, Tell], Awaitable[ExperimentResult]]

_EXPERIMENTS: Mapping[str, Sequence[Measure]] = {
    "1": (measure_replication, measure_baselines),
    "2": (measure_scalability,),
    "3": (measure_elasticity,),
    "reconfigurations": (measure_reconfigurations,),
    "analyser": (measure_analyser,),
}


def run(plan: ChannelsPlan, plots: Path, tell: Tell) -> list[Record]:
    """Measure what the plan names, in the paper's order, and draw into the directory `plots`. Raises
    BenchmarkFailed. SIGTERM stops all servers and clients, and ends the program."""
    check_plotting()
    try:
        return asyncio.run(_run_until_stopped(plan, plots, tell))
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


async def _run_until_stopped(plan: ChannelsPlan, plots: Path, tell: Tell) -> list[Record]:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    running = asyncio.ensure_future(_run(plan, plots, tell))
    waiting = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        # A second signal changes nothing: no server must be left behind.
        waiting.cancel()
        running.cancel()
        await asyncio.wait((running,))
    return running.result()


async def _run(plan: ChannelsPlan, plots: Path, tell: Tell) -> list[Record]:
    records: list[Record] = []
    for name, measures in _EXPERIMENTS.items():
        for measure in measures if name in plan.experiments else ():
            result = await measure(plan, tell)
            save_plots(result.plots, plots, tell)
            records += [finding.record() for finding in result.findings]
    return records
