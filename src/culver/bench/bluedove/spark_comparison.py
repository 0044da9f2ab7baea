"""Runs the systems of the paper's figure 6 on the real Spark engine, as large as this machine allows.

All systems share one registry: a site that starts with another placement rebuilds its index. For each system:

    events     --> the site starts, learns from them how to divide its index, and stops
    a backlog  --> the site starts again and works through it: events a second, from log to notifications on disk
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from culver.bench.bench_frame import BenchmarkFailed, Record, Tell
from culver.bench.bulk_registration import register_workload
from culver.bench.pipeline.backlog import fill_log, measure_backlog
from culver.bench.site_process import SiteProcess, site_status
from culver.bench.workloads.uniform_ranges import RangesWorkload
from culver.pipeline import StandaloneCluster

SEED = 1
SYSTEMS = ("replicated", "one-dimension", "mpartition")
_SETTLE_SECONDS = 6.0  # without a new version of the index: it is divided and compact
_LIMIT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class RealPlan:
    """What to run. With `workers`, the sites use a standalone cluster of that many workers with one core each;
    without, they use local mode."""

    subscriptions: int = 40_000
    slices: Sequence[int] = (2, 4)
    systems: Sequence[str] = SYSTEMS
    dimensions: int = 4
    events: int = 6_000_000
    learnt_from: int = 100_000
    batch_events: int = 2_000_000
    workers: int | None = None
    data_dir: Path | None = None

    @property
    def workload(self) -> RangesWorkload:
        """W1 with boxes that shrink as the number of subscriptions grows beyond the paper's, so that an event
        matches as many subscriptions as it does there."""
        return RangesWorkload(width=250.0 * (40_000 / max(40_000, self.subscriptions)) ** 0.25)


def run(plan: RealPlan, tell: Tell) -> list[Record]:
    """Measure every system with every number of slices. Raises BenchmarkFailed."""
    with tempfile.TemporaryDirectory(dir=plan.data_dir) as name, _cluster(plan, Path(name), tell) as settings:
        directory = Path(name)
        settings["registry.max_subscriptions"] = 2 * plan.subscriptions
        settings["pipeline.batch_events"] = plan.batch_events
        settings["pipeline.dimensions"] = plan.dimensions
        first = {**settings, "pipeline.placement": "replicated"}
        with _site(directory, first) as site, site.client() as http:
            rate = register_workload(http, plan.workload, plan.subscriptions, SEED)
        registered = f"{plan.subscriptions:,} subscriptions of {plan.workload.name} registered"
        tell(f"  {registered}, {rate:,.0f} a second")
        records: list[dict[str, Any]] = []
        for system in plan.systems:
            for slices in plan.slices if system != "replicated" else plan.slices[:1]:
                own = {**settings, "pipeline.placement": system, "pipeline.slices": slices}
                records.append(_measure(plan, directory, own, system, slices, tell))
    base = next((each["events_per_second"] for each in records if each["system"] == "replicated"), None)
    return [
        {**each, "times_replicated": round(each["events_per_second"] / base, 2) if base else None}
        for each in records
    ]


def _measure(
    plan: RealPlan, directory: Path, settings: Mapping[str, str | int], system: str, slices: int, tell: Tell
) -> dict[str, Any]:
    log, index = directory / "site" / "log", directory / "site" / "index"
    end = fill_log(log, plan.workload, plan.learnt_from, SEED)
    with _site(directory, settings) as site, site.client() as http:
        _wait_until_divided(http, end, system)
        held = [each["registrations"] for each in http.get("/v1/slices").json()["slices"]]
    start, end = end, fill_log(log, plan.workload, plan.events, SEED + 1)
    with _site(directory, settings) as site, site.client() as http:
        rate = measure_backlog(http, start, end, limit_seconds=_LIMIT_SECONDS)
        mapped = _mapped_by_workers(index)
    size = sum(path.stat().st_size for path in index.glob("*.segment"))
    shown = "" if mapped is None else f", a worker has at most {mapped / size:.0%} of the index"
    tell(f"  {system}, {slices} slices: {rate:,.0f} events a second{shown}")
    return {
        "figure": "6",
        "what": "events a second",
        "engine": "spark",
        "system": system,
        "slices": 1 if system == "replicated" else slices,
        "subscriptions": plan.subscriptions,
        "events_per_second": round(rate),
        "fullest_slice": round(max(held) / plan.subscriptions, 3),
        "index_bytes": size,
        "worker_bytes": mapped,
        "events": plan.events,
    }


def _wait_until_divided(http: httpx.Client, end: int, system: str) -> None:
    """Wait until all events so far are matched and the index is divided and no longer changes."""
    began, seen, since = time.monotonic(), (-1, ""), time.monotonic()
    while time.monotonic() - began < _LIMIT_SECONDS:
        status, view = site_status(http), http.get("/v1/slices").json()
        now = status["delivered_offset"], str([(each["set"], each["registrations"]) for each in view["sets"]])
        if now != seen:
            seen, since = now, time.monotonic()
        divided = system == "replicated" or view["layers"]
        if now[0] >= end and divided and time.monotonic() - since > _SETTLE_SECONDS:
            return
        time.sleep(0.5)
    raise BenchmarkFailed(
        f"the site with the placement {system} has not divided its index in {_LIMIT_SECONDS:.0f} s"
    )


def _mapped_by_workers(index: Path) -> int | None:
    """The most bytes of the index that one of Spark's Python workers has mapped; None if no worker has mapped
    any."""
    most = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if "culver.pipeline.spark.worker_daemon" in " ".join(process.cmdline()):
                maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                own = [line.split(maxsplit=1)[0].split("-") for line in maps if str(index) in line]
                most = max(most, sum(int(end, 16) - int(start, 16) for start, end in own))
    return most or None


@contextlib.contextmanager
def _cluster(plan: RealPlan, directory: Path, tell: Tell) -> Iterator[dict[str, str | int]]:
    """Start the plan's cluster, if it has one, and yield the settings with which a site uses it."""
    if plan.workers is None:
        yield {}
        return
    cluster = StandaloneCluster(directory / "cluster")
    state = cluster.up(plan.workers, cores=1, memory="2g", port=0, progress=tell)
    try:
        conf = "spark.executor.memory=1g spark.executor.cores=1"
        yield {"pipeline.spark_master": state.master_url, "pipeline.spark_conf": conf}
    finally:
        cluster.down()


def _site(directory: Path, settings: Mapping[str, str | int]) -> SiteProcess:
    return SiteProcess("spark", directory, settings=settings, ready_limit_seconds=_LIMIT_SECONDS)
