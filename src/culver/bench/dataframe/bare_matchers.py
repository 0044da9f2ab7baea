"""`culver.Matcher` without Spark: Arrow batches in a process on each core, and single dictionaries."""

import os
import threading
import time
from statistics import median

import pyarrow.parquet as pq

from culver import Matcher
from culver.bench.child_processes import side_by_side
from culver.bench.dataframe.dataframe_plan import PROBE, MatchingRate, Task

_BATCH = 10_000  # as many as Spark hands on at a time
_BATCHES = 8


def arrow_batches(task: Task) -> MatchingRate:
    """Each process matches batches of as many events as Spark's, for the same time."""
    cores = len(os.sched_getaffinity(0))
    rates = side_by_side(_match_batches, [(task,)] * cores)
    with Matcher.open(task.filters) as matcher:
        pairs = matcher.match_pairs(pq.read_table(task.events(PROBE))).num_rows
    return MatchingRate(pairs, _BATCH, sum(rates))


def _match_batches(barrier: threading.Barrier, task: Task) -> float:
    table = pq.read_table(task.events(task.sizes[-1])).slice(0, _BATCH * _BATCHES).combine_chunks()
    batches = [table.slice(begin, _BATCH).to_batches()[0] for begin in range(0, table.num_rows, _BATCH)]
    with Matcher.open(task.filters) as matcher:
        for batch in batches:
            matcher.match(batch)
        barrier.wait()
        rates = []
        for _ in range(task.rounds):
            events, started = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - started) < task.seconds:
                batch = batches[events // _BATCH % len(batches)]
                matcher.match(batch)
                events += batch.num_rows
            rates.append(events / elapsed)
    return median(rates)


def dictionaries(task: Task) -> MatchingRate:
    """One event after another, in one thread."""
    events = pq.read_table(task.events(PROBE)).to_pylist()
    with Matcher.open(task.filters) as matcher:
        pairs = sum(len(matcher.match(event)) for event in events)
        rates = []
        for _ in range(task.rounds):
            done, started = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - started) < task.seconds:
                matcher.match(events[done % len(events)])
                done += 1
            rates.append(done / elapsed)
    return MatchingRate(pairs, len(events), median(rates))
