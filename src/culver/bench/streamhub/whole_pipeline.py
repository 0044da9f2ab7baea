"""Figure 11: the whole pipeline on the Spark engine, from a full log to notifications on disk."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from culver.bench.bench_frame import Tell
from culver.bench.bulk_registration import register_workload
from culver.bench.pipeline.backlog import fill_log, measure_backlog
from culver.bench.site_process import SiteProcess
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.match_distributions import distributions
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.placement import Replicated

FIGURE = "11"
RATE = "events"
_SAMPLE_EVENTS = 65_536  # that tell how many notifications an event makes


@dataclass(frozen=True, slots=True)
class SparkSetting:
    placement: str
    cores: int


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    cores = len(os.sched_getaffinity(0))
    settings = [SparkSetting(placement, cores) for placement in plan.whole_placements]
    if plan.one_core and cores > 1:
        settings.append(SparkSetting(Replicated.name, 1))
    tell(f"figure 11: {_SAMPLE_EVENTS:,} events matched, to count notifications")
    per_event = float(np.mean(distributions(plan.whole_subscriptions, _SAMPLE_EVENTS).per_event))
    rates: dict[SparkSetting, float] = {}
    with with_subscriptions(plan, lambda text: tell(f"figure 11: {text}")) as directory:
        for setting in settings:
            tell(f"figure 11: {plan.whole_events:,} events, {setting.placement}, {setting.cores} cores")
            rates[setting] = _events_per_second(directory, setting, plan)
            tell(f"figure 11: {rates[setting]:,.0f} events/s")
    return findings_of(rates, plan.whole_subscriptions, per_event)


@contextlib.contextmanager
def with_subscriptions(plan: StreamhubPlan, tell: Tell) -> Iterator[Path]:
    """Yield a data directory with `plan.whole_subscriptions` registered, on which one site after another may run.
    A site that divides its index differently rebuilds it from the registry before it is ready."""
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as name:
        directory = Path(name)
        tell(f"registering {plan.whole_subscriptions:,} subscriptions")
        with SiteProcess("inline", directory) as site, site.client() as http:
            register_workload(
                http, workload(), plan.whole_subscriptions, SEED, settle_seconds=plan.settle_seconds
            )
        yield directory


def _events_per_second(directory: Path, setting: SparkSetting, plan: StreamhubPlan) -> float:
    end = fill_log(directory / "site" / "log", workload(), plan.whole_events, SEED + 1)
    settings: dict[str, str | int] = {
        "pipeline.placement": setting.placement,
        "pipeline.slices": setting.cores,
        "pipeline.spark_master": f"local[{setting.cores}]",
    }
    with SiteProcess("spark", directory, settings=settings) as site, site.client() as http:
        return measure_backlog(http, end - plan.whole_events, end)


def findings_of(rates: Mapping[SparkSetting, float], subscriptions: int, per_event: float) -> list[Finding]:
    """Findings from events per second, by setting."""
    most = max(setting.cores for setting in rates)
    papers_size = subscriptions == 100_000

    def finding(setting: SparkSetting, what: str, unit: str, ours: float, quoted: Quoted | None) -> Finding:
        return Finding(
            figure=FIGURE, what=what, unit=unit, ours=ours, cores=setting.cores, part="spark",
            subscriptions=subscriptions, placement=setting.placement,
            slices=1 if setting.placement == Replicated.name else setting.cores, paper=quoted,
            note="" if papers_size else "paper: at 100,000 subscriptions",
        )  # fmt: skip

    findings: list[Finding] = []
    for setting, rate in rates.items():
        whole = papers_size and setting.cores == most
        events = streamhub_paper.WHOLE_EVENTS if whole else None
        notifications = streamhub_paper.WHOLE_NOTIFICATIONS if whole else None
        findings += [
            finding(setting, RATE, "events/s", rate, events),
            finding(setting, "notifications", "/s", rate * per_event, notifications),
        ]
    hashed, clustered = SparkSetting("hashed", most), SparkSetting("event-space", most)
    if hashed in rates and clustered in rates:
        gain = rates[clustered] / rates[hashed]
        findings.append(
            finding(clustered, "against hashed", "times", gain, streamhub_paper.CLUSTERED_THROUGHPUT)
        )
    one, every = SparkSetting(Replicated.name, 1), SparkSetting(Replicated.name, most)
    if most > 1 and one in rates and every in rates:
        what, scaled = "of linear scaling from one core", rates[every] / rates[one] / most
        findings.append(finding(every, what, "times", scaled, streamhub_paper.SCALING))
    return findings
