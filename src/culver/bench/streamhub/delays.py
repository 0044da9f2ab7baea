"""Table 2: the average delay and its deviation at half of the maximum rate, with batching and without.

    large    the Spark engine as it is: a batch takes all waiting events, up to the limit of the settings
    small    the Spark engine with batches of a thousand events at most
    none     the inline engine with every event by itself, at the paper's own rate

The paper's batches are output buffers of 16 KB between its operators; without them, every event is sent by itself.
Our delay counts from the moment at which an event is due until a live subscriber has it.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.bench.bench_frame import Tell
from culver.bench.latency import LatencyPlan, measure_latency
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.bench.streamhub.streamhub_site import Sites, sites_with_subscriptions
from culver.bench.throughput import measure_throughput
from culver.config import PipelineSettings

TABLE = "table 2"


@dataclass(frozen=True, slots=True)
class Batching:
    name: str
    engine: str
    batch_events: int

    @property
    def is_batched(self) -> bool:
        """Whether this belongs beside the paper's column with batching."""
        return self.name == "large"

    @property
    def papers_rate(self) -> bool:
        """Whether to measure at the paper's rate instead of half of the site's maximum. The maximum is found with
        messages of many events, which says nothing about events sent one by one."""
        return self.batch_events == 1


BATCHINGS = (
    Batching("large", "spark", PipelineSettings().batch_events),
    Batching("small", "spark", 1_000),
    Batching("none", "inline", 1),
)


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    findings: list[Finding] = []
    with sites_with_subscriptions(plan, lambda text: tell(f"{TABLE}: {text}")) as sites:
        for batching in BATCHINGS:
            rate, delays = _delays(sites, batching, plan, tell)
            findings += findings_of(batching, plan.whole_subscriptions, rate, delays)
    return findings


def _delays(
    sites: Sites, batching: Batching, plan: StreamhubPlan, tell: Tell
) -> tuple[int, NDArray[np.float64]]:
    """The rate in events per second, and the delay of each event at that rate in milliseconds."""
    with sites.started(batching.engine, {"pipeline.batch_events": batching.batch_events}) as site:
        rate = round(streamhub_paper.UNBATCHED_RATE.value)
        if not batching.papers_rate:
            tell(f"{TABLE}: {batching.name} batches, {batching.engine}: what the site takes")
            events = workload().events(plan.gateway_events, SEED + 2)
            whole = asyncio.run(measure_throughput(site.url, site.websocket_url, events))
            rate = max(1, round(whole.events / whole.deliver_seconds / 2))
        tell(f"{TABLE}: {batching.name} batches, {batching.engine}: {rate:,} events/s")
        schedule = LatencyPlan(rate, plan.delay_seconds, plan.warm_up_seconds)
        events = workload().events(schedule.events, SEED)
        return rate, measure_latency(site.websocket_url, events, schedule).delivered


def findings_of(
    batching: Batching, subscriptions: int, rate: int, delays_ms: NDArray[np.float64]
) -> Iterator[Finding]:
    batched = batching.is_batched
    how = "the paper's rate" if batching.papers_rate else "half of what the site takes"
    mean, deviation = float(delays_ms.mean()) / 1e3, float(delays_ms.std()) / 1e3

    def finding(what: str, unit: str, ours: float, quoted: Quoted) -> Finding:
        return Finding(
            figure=TABLE,
            what=what,
            unit=unit,
            ours=ours,
            cores=len(os.sched_getaffinity(0)),
            part=f"{batching.engine}, {batching.name} batches",
            subscriptions=subscriptions,
            paper=quoted,
            note=f"ours: at {rate:,} events/s, {how}",
        )

    yield finding(
        "rate", "events/s", rate, streamhub_paper.BATCHED_RATE if batched else streamhub_paper.UNBATCHED_RATE
    )
    quoted = streamhub_paper.BATCHED_DELAY_SECONDS if batched else streamhub_paper.UNBATCHED_DELAY_SECONDS
    yield finding("average delay", "s", mean, quoted)
    quoted = (
        streamhub_paper.BATCHED_DEVIATION_SECONDS if batched else streamhub_paper.UNBATCHED_DEVIATION_SECONDS
    )
    yield finding("standard deviation", "s", deviation, quoted)
