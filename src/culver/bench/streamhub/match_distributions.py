"""Figure 6: how many subscriptions an event matches, and how many events a subscription matches."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.bench.bench_frame import Tell
from culver.bench.matching.contestants import load_rows
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding, Quoted
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan
from culver.matching import ColumnarFilter

FIGURE = "6"
PERCENTILES = (10, 25, 50, 75, 90, 99)
_TILE = 8_192


@dataclass(frozen=True, slots=True)
class Distributions:
    """How many subscriptions each event matches, and how many of the events each subscription matches."""

    per_event: NDArray[np.int64]
    per_subscription: NDArray[np.int64]


def distributions(subscriptions: int, events: int) -> Distributions:
    """Match `events` events of W2 against `subscriptions` of its subscriptions."""
    columnar = ColumnarFilter()
    load_rows(columnar, draw(workload(), subscriptions, SEED))
    batch = workload().event_batch(events, SEED)
    per_event: list[NDArray[np.int64]] = []
    per_subscription = np.zeros(subscriptions, np.int64)
    for first in range(0, events, _TILE):
        matches = columnar.match(batch.slice(first, _TILE))
        per_event.append(np.diff(matches.offsets))
        per_subscription += np.bincount(matches.numbers, minlength=subscriptions)
    return Distributions(np.concatenate(per_event), per_subscription)


def measure(plan: StreamhubPlan, tell: Tell) -> list[Finding]:
    count = max(plan.sizes)
    tell(f"figure 6: {plan.distribution_events:,} events against {count:,} subscriptions")
    found = distributions(count, plan.distribution_events)
    sizes = np.percentile(found.per_event, PERCENTILES)
    ratios = np.percentile(found.per_subscription, PERCENTILES)
    findings = [
        _finding(
            count,
            f"matched by an event, {percentile}th percentile",
            "% of subscriptions",
            100 * size / count,
            streamhub_paper.MEDIAN_MATCHED_PERCENT if percentile == 50 else None,
        )
        for percentile, size in zip(PERCENTILES, sizes, strict=True)
    ]
    mean = 100 * float(np.mean(found.per_event)) / count
    note = "paper: gives the median only"
    findings.append(_finding(count, "matched by an event, mean", "% of subscriptions", mean, note=note))
    median = float(np.median(found.per_event))
    at_the_papers_size = streamhub_paper.MEDIAN_MATCHED if count == 100_000 else None
    findings.append(
        _finding(count, "matched by an event, median", "subscriptions", median, at_the_papers_size)
    )
    findings += [
        _finding(
            count,
            f"matching a subscription, {percentile}th percentile",
            "% of events",
            100 * ratio / plan.distribution_events,
        )
        for percentile, ratio in zip(PERCENTILES, ratios, strict=True)
    ]
    idle = 100 * float(np.mean(found.per_subscription == 0))
    note = "paper: a large part of the subscriptions; no figure"
    findings.append(_finding(count, "without any event", "% of subscriptions", idle, note=note))
    return findings


def _finding(
    count: int, what: str, unit: str, ours: float, quoted: Quoted | None = None, note: str = ""
) -> Finding:
    return Finding(
        figure=FIGURE,
        what=what,
        unit=unit,
        ours=ours,
        cores=None,
        subscriptions=count,
        paper=quoted,
        note=note,
    )
