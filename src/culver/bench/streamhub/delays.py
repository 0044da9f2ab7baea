"""Table 2: the average delay and its deviation at half of the maximum rate, with batching and without.

    large    the Spark engine as it is: a batch takes all waiting events, up to the limit of the settings
    small    the Spark engine with batches of a thousand events at most
    none     the inline engine with every event by itself, at the paper's own rate

The paper's batches are output buffers of 16 KB between its operators; without them, every event is sent by itself.
Our delay counts from the moment at which an event is due until a live subscriber has it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.bench.bench_frame import Tell
from culver.bench.latency import LatencyPlan, measure_latency
from culver.bench.site_process import SiteProcess
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.bench.streamhub.whole_pipeline import with_subscriptions
from culver.bench.throughput import measure_throughput
from culver.config import PipelineSettings

TABLE = "table 2"


@dataclass(frozen=True, slots=True)
class Batching:
    name: str
    engine: str
    batch_events: int
    paper: tuple[Quoted, Quoted, Quoted]  # the column that it belongs beside

    @property
    def papers_rate(self) -> bool:
        """Whether to measure at the paper's rate instead of half of the site's maximum. The maximum is found with
        messages of many events, which says nothing about events sent one by one."""
        return self.batch_events == 1


BATCHINGS = (
    Batching("large", "spark", PipelineSettings().batch_events, streamhub_paper.BATCHED),
    Batching("small", "spark", 1_000, streamhub_paper.UNBATCHED),
    Batching("none", "inline", 1, streamhub_paper.UNBATCHED),
)


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    findings: list[Finding] = []
    with with_subscriptions(plan, lambda text: tell(f"{TABLE}: {text}")) as directory:
        for batching in BATCHINGS:
            rate, delays = _delays(directory, batching, plan, tell)
            findings += findings_of(batching, plan.whole_subscriptions, rate, delays)
    return findings


def _delays(
    directory: Path, batching: Batching, plan: StreamhubPlan, tell: Tell
) -> tuple[int, NDArray[np.float64]]:
    """The rate in events per second, and the delay of each event at that rate in milliseconds."""
    about = f"{TABLE}: {batching.name} batches, {batching.engine}"
    settings = {"pipeline.batch_events": batching.batch_events}
    with SiteProcess(batching.engine, directory, settings=settings) as site:
        rate = round(batching.paper[0].value)
        if not batching.papers_rate:
            tell(f"{about}: what the site takes")
            events = workload().events(plan.gateway_events, SEED + 2)
            whole = measure_throughput(site, events)
            rate = max(1, round(whole.events / whole.deliver_seconds / 2))
        tell(f"{about}: {rate:,} events/s")
        schedule = LatencyPlan(rate, plan.delay_seconds, plan.warm_up_seconds)
        events = workload().events(schedule.events, SEED)
        return rate, measure_latency(site.websocket_url, events, schedule).delivered


def findings_of(
    batching: Batching, subscriptions: int, rate: int, delays_ms: NDArray[np.float64]
) -> list[Finding]:
    """The findings of the rate, the average delay and its deviation."""
    how = "the paper's rate" if batching.papers_rate else "half of what the site takes"
    ours = (
        ("rate", "events/s", float(rate)),
        ("average delay", "s", float(delays_ms.mean()) / 1e3),
        ("standard deviation", "s", float(delays_ms.std()) / 1e3),
    )
    return [
        Finding(
            figure=TABLE,
            what=what,
            unit=unit,
            ours=value,
            cores=len(os.sched_getaffinity(0)),
            part=f"{batching.engine}, {batching.name} batches",
            subscriptions=subscriptions,
            paper=quoted,
            note=f"ours: at {rate:,} events/s, {how}",
        )
        for (what, unit, value), quoted in zip(ours, batching.paper, strict=True)
    ]
