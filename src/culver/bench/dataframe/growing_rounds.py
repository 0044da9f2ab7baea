"""Finds out how many events a contestant can match in a given time, and measures with that many."""

import time
from collections.abc import Callable
from statistics import median

from culver.bench.dataframe.dataframe_plan import PROBE, MatchingRate, Task


def measure(task: Task, count_pairs: Callable[[int], int], match: Callable[[int], object]) -> MatchingRate:
    """Count the pairs of the probe, then time `match(count)`, which matches so many events."""
    pairs = count_pairs(PROBE)
    for count in task.sizes:
        match(count)  # the first time, there is something to load
        if _seconds(match, count) >= task.seconds:
            break
    return MatchingRate(pairs, count, count / median(_seconds(match, count) for _ in range(task.rounds)))


def _seconds(match: Callable[[int], object], count: int) -> float:
    started = time.perf_counter()
    match(count)
    return time.perf_counter() - started
