"""Measures how many subscriptions come and go per second, one by one, while events are matched."""

import contextlib
import itertools
import time
from collections.abc import Callable

from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.workloads import Workload
from culver.matching import ColumnarFilter

_MOST_PRESENT = 20_000
_EVENTS = 64
_MATCH_EVERY_SECONDS = 0.01
_CHANGES_BETWEEN_LOOKS = 20  # at the clock


def changed_per_second(
    workload: Workload, seed: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Changes per second of a columnar filter. Subscriptions come and the oldest go in turn, and a batch of
    events is matched a hundred times a second; the time includes the matching."""
    present = min(_MOST_PRESENT, workload.subscriptions // 2)
    predicates = [predicate for _, predicate in draw(workload, 2 * present, seed).predicates()]
    batch = workload.event_batch(_EVENTS, seed)
    with contextlib.closing(ColumnarFilter()) as target:
        target.add(enumerate(predicates[:present]))
        target.match(batch)
        changes = 0
        started = matched = clock()
        for oldest in itertools.count():
            newest = oldest + present
            target.add([(newest, predicates[newest % len(predicates)])])
            target.remove([oldest])
            changes += 2
            if changes % _CHANGES_BETWEEN_LOOKS:
                continue
            now = clock()
            if now - matched >= _MATCH_EVERY_SECONDS:
                target.match(batch)
                matched = clock()
                if matched - started >= seconds:
                    break
        return changes / (matched - started)
