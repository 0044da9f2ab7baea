"""Figure 9: how fast subscriptions are stored, in M's slices and through the gateway of a whole site."""

import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from culver.bench.bench_frame import Tell
from culver.bench.bulk_registration import register_workload
from culver.bench.child_processes import side_by_side
from culver.bench.matching.drawn_subscriptions import Form, draw
from culver.bench.matching.matching_bench import one_core
from culver.bench.site_process import SiteProcess
from culver.bench.streamhub import sliced_index, streamhub_paper
from culver.bench.streamhub.streamhub_findings import Finding
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan

FIGURE = "9"
RATE = "subscriptions stored"
PROCESSES = 2


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    count = max(plan.sizes)
    text_bytes = sum(map(len, sliced_index.workload().filters(count, SEED))) / count
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        for slices in plan.slices:
            for processes in (1, PROCESSES):
                tell(f"figure 9: {count:,} subscriptions into {slices} slices, {processes} processes")
                arguments = [
                    (Path(directory) / f"{slices}-{processes}-{number}", slices, count, plan.rounds)
                    for number in range(processes)
                ]
                if processes == 1:
                    with one_core():
                        rates = [store_repeatedly(threading.Barrier(1), *arguments[0])]
                else:
                    rates = side_by_side(store_repeatedly, arguments)
                findings += _findings("M", count, slices, processes, sum(rates), text_bytes, "ours: fsynced")
        tell(f"figure 9: {count:,} subscriptions through the gateway")
        with SiteProcess("inline", Path(directory) / "site") as site, site.client() as http:
            through = register_workload(http, sliced_index.workload(), count, SEED, settle_seconds=0.0)
        note = "ours: HTTP, registry and index, fsynced"
        findings += _findings("gateway", count, None, PROCESSES, through, text_bytes, note)
    return findings


def store_repeatedly(
    barrier: threading.Barrier, directory: Path, slices: int, count: int, rounds: int
) -> float:
    """Subscriptions per second from columns of values to the index on disk, compilation included, in the best of
    several rounds. Each process has an index of its own, as a machine of the paper's cluster would."""
    forms = draw(sliced_index.workload(), count, SEED).forms
    _store(directory / "warm-up", slices, draw(sliced_index.workload(), min(count, 1_000), SEED).forms)
    barrier.wait()
    return max(count / _store(directory / str(number), slices, forms) for number in range(rounds))


def _store(directory: Path, slices: int, forms: Sequence[Form]) -> float:
    started = time.perf_counter()
    table = sliced_index.compiled(forms)
    sliced_index.store(directory, sliced_index.placement_for("hashed", slices, table), table)
    return time.perf_counter() - started


def _findings(
    part: str, count: int, slices: int | None, cores: int, rate: float, text_bytes: float, note: str
) -> list[Finding]:
    placement = "hashed" if part == "M" else None
    finding = partial(
        Finding, figure=FIGURE, cores=cores, part=part, subscriptions=count, placement=placement, slices=slices,
        note=note,
    )  # fmt: skip
    megabytes = rate * text_bytes / 1e6
    return [
        finding(what=RATE, unit="/s", ours=rate, paper=streamhub_paper.STORED_SUBSCRIPTIONS),
        finding(
            what="as texts of filters", unit="MB/s", ours=megabytes, paper=streamhub_paper.STORED_MEGABYTES
        ),
    ]
