"""Measures the whole path from a publisher to subscribers, on each engine: throughput and latency.

For each engine a real site runs in its own processes and gets the workload's subscriptions as durable ones. It is
then measured twice: its latency at a steady rate, seen by one live subscriber that every event matches, and its
maximum throughput into the durable mailboxes.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from culver.bench.bench_frame import Record, Tell
from culver.bench.bulk_registration import mean_pending, register
from culver.bench.latency import LatencyPlan, measure_floor, measure_latency
from culver.bench.site_process import SiteProcess, site_status
from culver.bench.throughput import measure_throughput
from culver.bench.workloads import Workload

DEFAULT_RATES = {"spark": 200, "inline": 1_000}
"""Events a second at which latency is measured, unless told otherwise."""

_SEED = 1
_SAMPLE = 1_000  # subscriptions whose mailboxes tell how many notifications an event makes


@dataclass(frozen=True, slots=True)
class SpinePlan:
    workload: Workload
    subscriptions: int
    seconds: float
    warm_up_seconds: float
    events: int
    rate: int | None = None  # None: DEFAULT_RATES
    data_dir: Path | None = None  # where the sites keep their files; None: the system's temporary directory
    command: Sequence[str] = (sys.executable, "-m", "culver", "serve")


def run_engine(engine: str, plan: SpinePlan, tell: Tell) -> Record:
    """Measure one engine. Raises BenchmarkFailed if there is nothing to measure."""
    rate = plan.rate or DEFAULT_RATES[engine]
    latency_plan = LatencyPlan(rate, plan.seconds, plan.warm_up_seconds)
    workload = plan.workload
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        tell(f"{engine}: starting a site ...")
        with (
            SiteProcess(engine, Path(directory), command=plan.command) as site,
            httpx.Client(base_url=site.url, trust_env=False, timeout=120.0) as http,
        ):
            tell(
                f"{engine}: ready after {site.ready_seconds:.1f} s; registering {plan.subscriptions:,} subscriptions"
            )
            filters = workload.filters(plan.subscriptions, _SEED)
            registered_per_second = register(http, filters, _every_tenth(engine, plan.subscriptions, tell))
            tell(
                f"{engine}: {rate:,} events/s for {plan.seconds:g} s, after a warm-up of "
                f"{plan.warm_up_seconds:g} s"
            )
            events = workload.events(latency_plan.events, _SEED)
            latency = measure_latency(site.websocket_url, events, latency_plan)
            tell(f"{engine}: the same with nothing but a file, for comparison")
            floor = np.percentile(measure_floor(Path(directory), latency_plan), [50, 99])
            tell(f"{engine}: {plan.events:,} events as fast as they are acknowledged")
            events = workload.events(plan.events, _SEED + 1)
            throughput = asyncio.run(measure_throughput(site.url, site.websocket_url, events))
            published = site_status(http)["log_next_offset"]
            per_event = mean_pending(http, _SAMPLE) * plan.subscriptions / published
    return {
        "workload": workload.name,
        "subscriptions": plan.subscriptions,
        "engine": engine,
        **throughput.record(),
        "rate": rate,
        **latency.record(),
        "floor_p50_ms": round(float(floor[0]), 3),
        "floor_p99_ms": round(float(floor[1]), 3),
        "notifications_per_event": round(per_event, 2),
        "subscriptions_per_second": round(registered_per_second, 1),
        "ready_seconds": round(site.ready_seconds, 2),
        "events": plan.events,
        "seconds": plan.seconds,
    }


def _every_tenth(engine: str, total: int, tell: Tell) -> Callable[[int], None]:
    """A function that reports progress at each tenth of a large number of subscriptions."""
    told = 0

    def progress(done: int) -> None:
        nonlocal told
        tenths = 10 * done // total
        if tenths > told and total > 10_000:
            told = tenths
            tell(f"{engine}: {done:,} of {total:,} subscriptions")

    return progress
