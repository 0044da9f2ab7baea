"""Interleaved rounds of matching (A B C A B C ...), so that a noisy machine is equally noisy for all.

Each contestant gets as many events as fit into its share of a round: the first events of a common pool, in batches
as the pipeline makes them. Its best round counts.
"""

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from culver.bench.bench_frame import BenchmarkFailed, Tell
from culver.bench.matching.contestants import Contestant

BATCH_EVENTS = 8_192
_MAX_PAIRS = 1 << 25  # in the answer to one batch; with more, batches get smaller
_FEWEST_EVENTS = 16


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long to measure."""

    count: int
    seconds: float  # per contestant and round, about


@dataclass(frozen=True, slots=True)
class RoundShare:
    """The work of one contestant in a round."""

    events: int
    batch_events: int


@dataclass(frozen=True, slots=True)
class RoundResult:
    share: RoundShare
    seconds: float
    pairs: int

    @property
    def events_per_second(self) -> float:
        return self.share.events / self.seconds

    @property
    def pairs_per_second(self) -> float:
        return self.pairs / self.seconds

    @property
    def matches_per_event(self) -> float:
        return self.pairs / self.share.events


def run_rounds(
    contestants: Mapping[str, Contestant], pool: pa.RecordBatch, rounds: Rounds, tell: Tell
) -> dict[str, RoundResult]:
    """Measure contestants that are already loaded. Raises BenchmarkFailed if one returns other pairs than the
    first."""
    shares = {name: _share(contestant, pool, rounds) for name, contestant in contestants.items()}
    _check(contestants, shares, pool)
    best: dict[str, RoundResult] = {}
    gc.collect()
    for number in range(1, rounds.count + 1):
        told = []
        for name, contestant in contestants.items():
            result = _round(contestant, pool, shares[name])
            if name not in best or result.seconds < best[name].seconds:
                best[name] = result
            told.append(f"{name} {result.events_per_second:,.0f}")
        tell(f"  round {number} of {rounds.count}, events/s: {', '.join(told)}")
    return best


def _share(contestant: Contestant, pool: pa.RecordBatch, rounds: Rounds) -> RoundShare:
    """Try more and more events to find out how many fit into a round. This also warms up the contestant."""
    tried = min(_FEWEST_EVENTS, pool.num_rows)
    while True:
        contestant.match(pool.slice(0, tried))  # so that values seen for the first time do not count
        started = time.perf_counter()
        pairs = len(contestant.match(pool.slice(0, tried)))
        seconds = time.perf_counter() - started
        batch = max(1, min(BATCH_EVENTS, pool.num_rows, _MAX_PAIRS * tried // max(1, pairs)))
        if seconds > rounds.seconds / 4 or tried >= batch:
            break
        tried = min(4 * tried, batch)
    fitting = int(rounds.seconds * tried / seconds)
    if fitting >= batch // 4:  # better a longer round than a smaller batch
        fitting = max(fitting, batch)
    events = min(pool.num_rows, max(fitting, min(tried, batch)))
    if events > batch:
        events -= events % batch
    return RoundShare(events, min(batch, events))


def _round(contestant: Contestant, pool: pa.RecordBatch, share: RoundShare) -> RoundResult:
    pairs = 0
    started = time.perf_counter()
    for first in range(0, share.events, share.batch_events):
        pairs += len(contestant.match(pool.slice(first, min(share.batch_events, share.events - first))))
    return RoundResult(share, time.perf_counter() - started, pairs)


def _check(
    contestants: Mapping[str, Contestant], shares: Mapping[str, RoundShare], pool: pa.RecordBatch
) -> None:
    """Check that each contestant returns the same pairs as the first, on all events that it is measured with."""
    names = list(contestants)
    for name in names[1:]:
        expected = _pairs(contestants[names[0]], pool, shares[name])
        found = _pairs(contestants[name], pool, shares[name])
        if found != expected:
            raise BenchmarkFailed(
                f"{name} and {names[0]} do not agree: on the same {shares[name].events:,} events they give "
                f"{found[0]:,} and {expected[0]:,} pairs, or those of other subscriptions"
            )


def _pairs(contestant: Contestant, pool: pa.RecordBatch, share: RoundShare) -> tuple[int, int]:
    """The number of pairs, and the sum of their subscription numbers."""
    count = total = 0
    for first in range(0, share.events, share.batch_events):
        numbers = contestant.match(pool.slice(first, min(share.batch_events, share.events - first)))
        count += len(numbers)
        total += int(numbers.sum())
    return count, total
