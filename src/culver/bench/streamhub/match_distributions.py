"""Figure 6: how many subscriptions an event matches, and how many events a subscription matches."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from culver.bench.bench_frame import Tell
from culver.bench.matching.contestants import load_rows
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.streamhub import streamhub_paper
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_findings import Finding
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
    matched, matching = found.per_event / count, found.per_subscription / plan.distribution_events
    finding = partial(Finding, figure=FIGURE, cores=None, subscriptions=count)
    of_subscriptions = partial(finding, unit="% of subscriptions")
    findings = [
        of_subscriptions(
            what=f"matched by an event, {percentile}th percentile",
            ours=100 * float(np.percentile(matched, percentile)),
            paper=streamhub_paper.MEDIAN_MATCHED_PERCENT if percentile == 50 else None,
        )
        for percentile in PERCENTILES
    ]
    findings += [
        of_subscriptions(
            what="matched by an event, mean",
            ours=100 * float(np.mean(matched)),
            note="paper: gives the median only",
        ),
        finding(
            what="matched by an event, median",
            unit="subscriptions",
            ours=float(np.median(found.per_event)),
            paper=streamhub_paper.MEDIAN_MATCHED if count == 100_000 else None,
        ),
    ]
    findings += [
        finding(
            what=f"matching a subscription, {percentile}th percentile",
            unit="% of events",
            ours=100 * float(np.percentile(matching, percentile)),
        )
        for percentile in PERCENTILES
    ]
    idle = of_subscriptions(
        what="without any event",
        ours=100 * float(np.mean(matching == 0)),
        note="paper: a large part of the subscriptions; no figure",
    )
    return [*findings, idle]
