"""Measures one workload on the Spark engine, and on the inline engine beside it."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from culver.bench.bench_frame import Record, Tell, every_tenth
from culver.bench.bulk_registration import register_workload
from culver.bench.latency import LatencyPlan, measure_floor, measure_latency
from culver.bench.pipeline.backlog import fill_log, measure_backlog
from culver.bench.pipeline.bare_matcher import Bare, measure_bare
from culver.bench.site_process import SiteProcess
from culver.bench.throughput import BATCH, measure_throughput
from culver.bench.workloads import Workload
from culver.matching import index_versions

_SEED = 1
_SAMPLED_PER_SECOND = 5_000  # events that a live subscriber gets, at most
_SETTLE_SECONDS = 4.0  # in which nothing happens before a site is taken to be at rest


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    workload: Workload
    subscriptions: int
    events: int  # in the log
    seconds: float  # of each measurement of latency
    warm_up_seconds: float
    idle_seconds: float
    matcher_seconds: float
    gateway_events: int  # published to find out what the whole site can do
    rate: int = 200
    inline_rate: int = 5_000
    data_dir: Path | None = None


def run_workload(plan: PipelinePlan, tell: Tell) -> list[Record]:
    """Return the record of the Spark engine and that of the inline engine. Raises BenchmarkFailed."""
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        return _Run(plan, Path(directory), tell).records()


class _Run:
    """The steps of a run, in order, on one data directory."""

    def __init__(self, plan: PipelinePlan, directory: Path, tell: Tell) -> None:
        self._plan = plan
        self._directory = directory
        self._name = plan.workload.name
        self._tell: Tell = lambda text: tell(f"{self._name}: {text}")

    def records(self) -> list[Record]:
        inline, spark = self._head("inline"), self._head("spark")
        with self._site("inline") as site:
            spark |= self._register(site)
            inline |= self._latency(site, self._plan.inline_rate)
            inline["ready_seconds"] = round(site.ready_seconds, 2)
        matcher = self._matcher()
        with self._site("spark") as site:
            spark["ready_seconds"] = round(site.ready_seconds, 2)
            spark["idle_cpu_percent"] = self._idle(site)
            spark |= self._latency(site, self._plan.rate)
            spark |= self._half_load(site)
        spark |= self._backlog(matcher)
        return [spark, inline]

    def _head(self, engine: str) -> dict[str, Any]:
        return {"workload": self._name, "subscriptions": self._plan.subscriptions, "engine": engine}

    def _site(self, engine: str) -> SiteProcess:
        self._tell(f"starting a site on the {engine} engine ...")
        return SiteProcess(engine, self._directory)

    def _register(self, site: SiteProcess) -> dict[str, Any]:
        plan = self._plan
        self._tell(f"registering {plan.subscriptions:,} subscriptions")
        with site.client() as http:
            per_second = register_workload(http, plan.workload, plan.subscriptions, _SEED)
        return {"registered_per_second": round(per_second, 1)}

    def _latency(self, site: SiteProcess, rate: int, prefix: str = "", batch: int = 1) -> dict[str, Any]:
        sampled = max(1, rate // _SAMPLED_PER_SECOND)
        plan = LatencyPlan(rate, self._plan.seconds, self._plan.warm_up_seconds, sampled=sampled, batch=batch)
        self._tell(f"{rate:,} events/s for {plan.seconds:g} s")
        events = self._plan.workload.events(plan.events, _SEED)
        measured = measure_latency(site.websocket_url, events, plan).record()
        floor = float(np.percentile(measure_floor(self._directory, plan), 99))
        return {
            f"{prefix}rate": rate,
            f"{prefix}p50_ms": measured["p50_ms"],
            f"{prefix}p99_ms": measured["p99_ms"],
            f"{prefix}floor_p99_ms": round(floor, 3),
        }

    def _matcher(self) -> Bare:
        self._tell("the bare matcher on all cores")
        index = self._directory / "site" / "index"
        return measure_bare(
            index, index_versions(index)[-1], self._name, _SEED + 1, self._plan.matcher_seconds
        )

    def _idle(self, site: SiteProcess) -> float:
        self._tell(f"idle for {self._plan.idle_seconds:g} s")
        time.sleep(_SETTLE_SECONDS)
        before = site.cpu_seconds()
        time.sleep(self._plan.idle_seconds)
        return round(100 * (site.cpu_seconds() - before) / self._plan.idle_seconds, 2)

    def _half_load(self, site: SiteProcess) -> dict[str, Any]:
        """Measure latency at half the rate that the whole site takes through its gateway, in batches of the same
        size."""
        count = self._plan.gateway_events
        self._tell(f"{count:,} events as fast as they are acknowledged")
        events = self._plan.workload.events(count, _SEED + 2)
        whole = measure_throughput(site, events)
        rate = round(whole.events / whole.deliver_seconds / 2)
        measured = self._latency(site, rate, "half_load_", BATCH)
        return {"gateway_events_per_second": whole.record()["events_per_second"], **measured}

    def _backlog(self, matcher: Bare) -> dict[str, Any]:
        plan = self._plan
        self._tell(f"filling the log with {plan.events:,} events")
        end = fill_log(self._directory / "site" / "log", plan.workload, plan.events, _SEED + 3)
        with self._site("spark") as site, site.client() as http:
            progress = every_tenth(end, self._tell, "events delivered")
            per_second = measure_backlog(http, end - plan.events, end, progress)
        return {
            "events_per_second": round(per_second, 1),
            "notifications_per_second": round(per_second * matcher.matches_per_event),
            "matcher_events_per_second": round(matcher.events_per_second, 1),
            "share_of_matcher": round(per_second / matcher.events_per_second, 3),
            "notifications_per_event": round(matcher.matches_per_event, 2),
            "events": plan.events,
        }
