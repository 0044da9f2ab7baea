"""The matcher alone on all cores at once: a process on each matches batches against the index of a site."""

import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from culver.bench.workloads import named

BATCH = 8_192
_BATCHES = 16  # different ones, in turn


@dataclass(frozen=True, slots=True)
class Bare:
    events_per_second: float  # of all cores together
    matches_per_event: float


def measure_bare(index: Path, version: int, workload: str, seed: int, seconds: float) -> Bare:
    """Match for that many seconds with as many processes as this one may use cores."""
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(cores), context.SimpleQueue()
    processes = [
        context.Process(
            target=_match, args=(index, version, workload, seed, seconds, barrier, answers), daemon=True
        )
        for _ in range(cores)
    ]
    for process in processes:
        process.start()
    measured = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return Bare(
        sum(events / elapsed for events, _, elapsed in measured),
        sum(matches for _, matches, _ in measured) / max(1, sum(events for events, _, _ in measured)),
    )


def _match(
    index: Path, version: int, workload: str, seed: int, seconds: float, barrier: Barrier, answers: Any
) -> None:
    from culver.matching import warm_up
    from culver.matching.index import Index

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
    answers.put((events, matches, elapsed))
