"""Runs the benchmark: one comparison on one core for each workload and number of subscriptions.

A record has the figures of one filter in one comparison; a figure that a baseline does not have is None.
"""

import contextlib
import functools
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from culver.bench.bench_frame import BenchmarkFailed, Record, Tell
from culver.bench.line_plot import LinePlot
from culver.bench.matching.change_rates import changed_per_second
from culver.bench.matching.contestants import KINDS, Contestant, ContestantKind
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.matching.first_match import first_match_seconds
from culver.bench.matching.rounds import BATCH_EVENTS, Rounds, run_rounds
from culver.bench.workloads import Workload

SIZES: Mapping[str, tuple[int, ...]] = {
    "W1": (40_000, 100_000, 1_000_000),
    "W2": (100_000,),
    "W3": (10_000,),
}
"""Numbers of subscriptions, by workload, unless told otherwise."""

SCALE = (*(step * 10**exponent for exponent in range(3, 7) for step in (1, 5)), 10_000_000)
"""Numbers of subscriptions over which the cost of an event is plotted."""

_SEED = 1
_ROUNDS = Rounds(7, 0.5)
_WARM_UP_SUBSCRIPTIONS = 300
_WARM_UP_EVENTS = 64


@dataclass(frozen=True, slots=True)
class MatchingPlan:
    comparisons: Sequence[tuple[Workload, int]]  # in this order
    filters: Sequence[str]
    rounds: Rounds = _ROUNDS
    pool_events: int = 8 * BATCH_EVENTS  # a round goes through as many different events as this, at most
    first_match_attempts: int = 2
    change_seconds: float = 2.0
    kinds: Mapping[str, ContestantKind] = field(default_factory=lambda: KINDS)


def run(plan: MatchingPlan, tell: Tell) -> list[Record]:
    """Return one record for each filter of each comparison. Raises BenchmarkFailed if filters disagree or none
    can take part."""

    @functools.cache
    def first(name: str, workload: Workload) -> float | None:
        if not plan.kinds[name].plugged:
            return None
        tell(f"{workload.name}: the first match of {name} in a new process ...")
        return round(first_match_seconds(name, workload, _SEED, plan.first_match_attempts), 3)

    @functools.cache
    def changed(name: str, workload: Workload) -> float | None:
        if name != "columnar":  # the others do not support change
            return None
        tell(f"{workload.name}: subscriptions come and go one by one ...")
        return round(changed_per_second(workload, _SEED, plan.change_seconds), 1)

    with one_core():
        return [
            {
                **record,
                "first_match_seconds": first(str(record["filter"]), workload),
                "changed_per_second": changed(str(record["filter"]), workload),
            }
            for workload, count in plan.comparisons
            for record in _compare(plan, workload, count, tell)
        ]


def save_plot(records: Sequence[Record], path: Path) -> None:
    """Draw the cost of an event over the number of subscriptions, a line for each filter."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        count, rate = record["subscriptions"], record["events_per_second"]
        assert isinstance(count, int)
        assert isinstance(rate, float)
        lines.setdefault(str(record["filter"]), []).append((count, 1e6 / rate))
    title = f"Cost of an event on one core, {records[0]['workload']}"
    LinePlot(path.stem, title, "subscriptions", "µs per event", lines, linear=False).save(path)


def _compare(plan: MatchingPlan, workload: Workload, count: int, tell: Tell) -> Iterator[Record]:
    what = f"{workload.name}, {count:,} subscriptions"
    tell(f"{what}: drawing them ...")
    subscriptions = draw(workload, count, _SEED)
    warm_up = draw(workload, min(count, _WARM_UP_SUBSCRIPTIONS), _SEED)
    few_events = workload.event_batch(_WARM_UP_EVENTS, _SEED)
    with contextlib.ExitStack() as stack:
        loaded: dict[str, Contestant] = {}
        compiled: dict[str, float] = {}
        for name in [each for each in plan.kinds if each in plan.filters]:
            hindrance = plan.kinds[name].hindrance(count, bool(subscriptions.forms))
            if hindrance is not None:
                tell(f"{what}: {name} is left out: {hindrance}")
                continue
            with contextlib.closing(plan.kinds[name].make()) as trial:
                trial.load(warm_up)
                trial.match(few_events)
            tell(f"{what}: {name} takes them in ...")
            loaded[name] = stack.enter_context(contextlib.closing(plan.kinds[name].make()))
            gc.collect()
            compiled[name] = loaded[name].load(subscriptions)
        if not loaded:
            raise BenchmarkFailed(f"{what}: no filter of those that were asked for can be measured there")
        tell(f"{what}: matching, {BATCH_EVENTS:,} events in a batch at most ...")
        pool = workload.event_batch(plan.pool_events, _SEED)
        results = run_rounds(loaded, pool, plan.rounds, tell)
        for name, contestant in loaded.items():
            size, result = contestant.stored_bytes(), results[name]
            yield {
                "workload": workload.name,
                "subscriptions": count,
                "filter": name,
                "events_per_second": round(result.events_per_second, 1),
                "pairs_per_second": round(result.pairs_per_second, 1),
                "matches_per_event": round(result.matches_per_event, 2),
                "batch_events": result.share.batch_events,
                "compiled_per_second": round(count / compiled[name], 1),
                "bytes_per_subscription": None if size is None else round(size / count, 1),
            }


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread, and all threads and processes that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})  # the first cores get most interrupts
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
