"""Measures the matcher alone: a process on each core matches batches against the index of a site."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from culver.bench.child_processes import side_by_side
from culver.bench.workloads import named

BATCH = 8_192
_BATCHES = 16  # different ones, in turn


@dataclass(frozen=True, slots=True)
class Bare:
    events_per_second: float  # of all cores together
    matches_per_event: float


def measure_bare(index: Path, version: int, workload: str, seed: int, seconds: float) -> Bare:
    """Match for `seconds` in as many processes as this process may use cores."""
    cores = len(os.sched_getaffinity(0))
    measured = side_by_side(_match, [(index, version, workload, seed, seconds)] * cores)
    return Bare(
        sum(events / elapsed for events, _, elapsed in measured),
        sum(matches for _, matches, _ in measured) / max(1, sum(events for events, _, _ in measured)),
    )


def _match(
    barrier: threading.Barrier, index: Path, version: int, workload: str, seed: int, seconds: float
) -> tuple[int, int, float]:
    from culver.matching import Index, warm_up

    warm_up()
    whole = named(workload).event_batch(BATCH * _BATCHES, seed)
    batches = [whole.slice(at * BATCH, BATCH) for at in range(_BATCHES)]
    with Index.open(index, version) as opened:
        for batch in batches:
            opened.match(batch)
        barrier.wait()
        events = matches = 0
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            batch = batches[(events // BATCH) % _BATCHES]
            matches += len(opened.match(batch).numbers)
            events += BATCH
    return events, matches, elapsed
