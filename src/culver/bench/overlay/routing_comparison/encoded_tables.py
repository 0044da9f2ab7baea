"""The table of all sites' predicates: its size encoded and exact, and the time to match an event against it.

1,000 sites have one predicate of W3 each, 20 conjunctions. An exact predicate is counted as the text of its filter.
Both are matched on one core, in turn, and the best round counts.
"""

import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from culver.bench.bench_frame import Tell
from culver.bench.matching.matching_bench import one_core
from culver.bench.overlay import bdrp_paper as paper
from culver.bench.overlay.overlay_findings import COMPUTED, OverlayFinding, OverlayResult
from culver.bench.overlay.overlay_plan import SEED, OverlayPlan
from culver.bench.workloads import named
from culver.config import UNLIMITED_FILTERS
from culver.matching import ColumnarFilter, EncodedFilter, EncodedPredicate, Matches, predicate_of
from culver.model.language import parse
from culver.simulation import encoded_of

EXPERIMENT = "tables"
TABLE_BYTES, MATCH_TIME = "table of predicates", "time to match an event"


def measure(plan: OverlayPlan, tell: Tell) -> OverlayResult:
    workload, sites = named("W3"), plan.table_sites
    texts = workload.filters(sites, SEED)
    exact_bytes = sum(len(text.encode()) for text in texts)
    predicates = [parse(text, UNLIMITED_FILTERS) for text in texts]
    batch = workload.event_batch(plan.table_events, SEED)
    exact = ColumnarFilter()
    exact.add(enumerate(predicates))
    matchers: dict[str, Callable[[pa.RecordBatch], Matches]] = {"exact": exact.match}
    sizes = {"exact": exact_bytes}
    for policy, encoding in (("b-drp", "cells"), ("b-drp, paper's encoding", "paper")):
        tell(f"{EXPERIMENT}: {policy}, {sites} sites")
        encoded = [encoded_of([predicate], encoding) for predicate in predicates]
        sizes[policy] = sum(len(each.text) for each in encoded)
        matchers[policy] = encoded_filter(encoded).match
    with one_core():
        found = {name: len(match(batch).numbers) for name, match in matchers.items()}  # and compiles kernels
        seconds = {
            name: min(_seconds(match, batch) for _ in range(plan.table_rounds))
            for name, match in matchers.items()
        }
    result = OverlayResult()
    for name in ("b-drp", "b-drp, paper's encoding", "exact"):
        finding = partial(
            OverlayFinding,
            experiment=EXPERIMENT,
            how=COMPUTED,
            policy=name,
            brokers=sites,
            setting="W3, predicates a site: 1",
        )
        result.findings += [
            finding(
                what=TABLE_BYTES,
                unit="bytes",
                ours=sizes[name],
                note=f"{sizes[name] / exact_bytes:.2f} of the exact filters' text",
            ),
            finding(
                what=MATCH_TIME,
                unit="µs",
                ours=1e6 * seconds[name] / plan.table_events,
                target=f"<= {paper.MATCHING_US:g}" if name == "b-drp" else None,
                note=f"on one core, in a batch; {found[name] / plan.table_events:.0f} sites an event",
            ),
        ]
    return result


def encoded_filter(predicates: list[EncodedPredicate]) -> EncodedFilter:
    made = EncodedFilter()
    made.add((number, predicate_of(each.text, "encoded")) for number, each in enumerate(predicates))
    return made


def _seconds(match: Callable[[pa.RecordBatch], Matches], batch: pa.RecordBatch) -> float:
    """Processor seconds, because other processes may use this machine."""
    started = time.process_time()
    match(batch)
    return time.process_time() - started
