"""Measures the whole path from a publisher to subscribers, on each engine: throughput and latency.

For each engine a real site runs in its own processes and gets the workload's subscriptions as durable ones. It is
then measured twice: its latency at a steady rate, seen by one live subscriber that every event matches, and its
maximum throughput into the durable mailboxes.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from culver.bench.bench_frame import Record, Tell, every_tenth
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


def run_engine(engine: str, plan: SpinePlan, tell_all: Tell) -> Record:
    """Measure one engine. Raises BenchmarkFailed if there is nothing to measure."""

    def tell(text: str) -> None:
        tell_all(f"{engine}: {text}")

    rate = plan.rate or DEFAULT_RATES[engine]
    latency_plan = LatencyPlan(rate, plan.seconds, plan.warm_up_seconds)
    workload = plan.workload
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        tell("starting a site ...")
        with (
            SiteProcess(engine, Path(directory), command=plan.command) as site,
            site.client() as http,
        ):
            tell(f"ready after {site.ready_seconds:.1f} s; registering {plan.subscriptions:,} subscriptions")
            filters = workload.filters(plan.subscriptions, _SEED)
            progress = every_tenth(plan.subscriptions, tell, "subscriptions")
            registered_per_second = register(http, filters, progress)
            tell(f"{rate:,} events/s for {plan.seconds:g} s, after a warm-up of {plan.warm_up_seconds:g} s")
            events = workload.events(latency_plan.events, _SEED)
            latency = measure_latency(site.websocket_url, events, latency_plan)
            tell("the same with nothing but a file, for comparison")
            floor = np.percentile(measure_floor(Path(directory), latency_plan), [50, 99])
            tell(f"{plan.events:,} events as fast as they are acknowledged")
            events = workload.events(plan.events, _SEED + 1)
            throughput = measure_throughput(site, events)
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
