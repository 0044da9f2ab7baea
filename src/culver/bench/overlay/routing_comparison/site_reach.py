"""How many sites an event reaches, by the number of predicates that a site has.

The more predicates a site has, the more events it wants, and the less there is to save: with ten of W3's predicates a
site wants most events, and every way to route sends it nearly all.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from culver.bench.bench_frame import Tell
from culver.bench.overlay.overlay_findings import COMPUTED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.bench.overlay.routing_comparison.encoded_tables import encoded_filter
from culver.bench.workloads import named
from culver.config import UNLIMITED_FILTERS
from culver.matching import ColumnarFilter
from culver.model.language import Predicate, parse
from culver.simulation import encoded_of, names_only

EXPERIMENT = "reach"


def measure(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    workload, sites = named("W3"), plan.traffic_sites
    batch = workload.event_batch(plan.reach_events, SEED)
    texts = workload.filters(sites * max(plan.predicates_per_site), SEED)
    predicates = [parse(text, UNLIMITED_FILTERS) for text in texts]
    result = OverlayResult()
    for count in plan.predicates_per_site:
        tell(f"{EXPERIMENT}: {sites} sites with {count} predicates each")
        groups = [predicates[site::sites][:count] for site in range(sites)]
        for policy, reached in sites_reached(groups, batch).items():
            result.findings.append(
                OverlayFinding(
                    experiment=EXPERIMENT,
                    what="sites that an event reaches",
                    unit="sites",
                    ours=reached,
                    how=COMPUTED,
                    policy=policy,
                    brokers=sites,
                    setting=f"W3, predicates a site: {count}",
                )
            )
    return result


def sites_reached(groups: Sequence[Sequence[Predicate]], batch: pa.RecordBatch) -> dict[str, float]:
    """The mean number of sites for each way to route; a site has one group of predicates."""
    encoded = {
        "b-drp": [encoded_of(group) for group in groups],
        "b-drp, paper's encoding": [encoded_of(group, "paper") for group in groups],
        "names-only": [encoded_of(group, "cells", names_only) for group in groups],
    }
    found = {
        name: len(encoded_filter(each).match(batch).numbers) / batch.num_rows
        for name, each in encoded.items()
    }
    exact = ColumnarFilter()
    sites = [site for site, group in enumerate(groups) for _ in group]
    exact.add(enumerate(predicate for group in groups for predicate in group))
    matches = exact.match(batch)
    rows = np.repeat(np.arange(batch.num_rows), np.diff(matches.offsets))
    pairs = np.unique(rows * len(groups) + np.array(sites)[matches.numbers])
    return {**found, "exact": len(pairs) / batch.num_rows}
