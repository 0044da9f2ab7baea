"""Figure 11: the whole pipeline on the Spark engine, from a full log to notifications on disk."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from culver.bench.bench_frame import Tell
from culver.bench.pipeline.backlog import fill_log, measure_backlog
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.match_distributions import distributions
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.bench.streamhub.streamhub_site import Sites, client, sites_with_subscriptions
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
    with sites_with_subscriptions(plan, lambda text: tell(f"figure 11: {text}")) as sites:
        for setting in settings:
            tell(f"figure 11: {plan.whole_events:,} events, {setting.placement}, {setting.cores} cores")
            rates[setting] = _events_per_second(sites, setting, plan)
            tell(f"figure 11: {rates[setting]:,.0f} events/s")
    return findings_of(rates, plan.whole_subscriptions, per_event)


def _events_per_second(sites: Sites, setting: SparkSetting, plan: StreamhubPlan) -> float:
    end = fill_log(sites.log, workload(), plan.whole_events, SEED + 1)
    settings: dict[str, str | int] = {
        "pipeline.placement": setting.placement,
        "pipeline.slices": setting.cores,
        "pipeline.spark_master": f"local[{setting.cores}]",
    }
    with sites.started("spark", settings) as site, client(site) as http:
        return measure_backlog(http, end, lambda done: None, start=end - plan.whole_events)


def findings_of(rates: Mapping[SparkSetting, float], subscriptions: int, per_event: float) -> list[Finding]:
    """Findings from events per second, by setting."""
    most = max(setting.cores for setting in rates)
    papers_size = subscriptions == 100_000

    def finding(setting: SparkSetting, what: str, unit: str, ours: float, quoted: Quoted | None) -> Finding:
        return Finding(
            figure=FIGURE,
            what=what,
            unit=unit,
            ours=ours,
            cores=setting.cores,
            part="spark",
            subscriptions=subscriptions,
            placement=setting.placement,
            slices=1 if setting.placement == Replicated.name else setting.cores,
            paper=quoted,
            note="" if papers_size else "paper: at 100,000 subscriptions",
        )

    findings: list[Finding] = []
    for setting, rate in rates.items():
        whole = papers_size and setting.cores == most
        findings.append(
            finding(setting, RATE, "events/s", rate, streamhub_paper.WHOLE_EVENTS if whole else None)
        )
        quoted = streamhub_paper.WHOLE_NOTIFICATIONS if whole else None
        findings.append(finding(setting, "notifications", "/s", rate * per_event, quoted))
    hashed = rates.get(SparkSetting("hashed", most))
    for setting, rate in rates.items():
        if hashed and setting.placement == "event-space":
            findings.append(
                finding(
                    setting, "against hashed", "times", rate / hashed, streamhub_paper.CLUSTERED_THROUGHPUT
                )
            )
    one, all_of_them = rates.get(SparkSetting(Replicated.name, 1)), SparkSetting(Replicated.name, most)
    if one and most > 1 and all_of_them in rates:
        scaled = rates[all_of_them] / one / most
        findings.append(
            finding(all_of_them, "of linear scaling from one core", "times", scaled, streamhub_paper.SCALING)
        )
    return findings
