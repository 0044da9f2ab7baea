"""A dimension divided by hash buckets of its values; see `division`."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from culver.jit import Integers, Shorts, read_only
from culver.matching import BatchColumns, Dimension, KeyLine, event_hashes
from culver.placement.divisions.division import Spans
from culver.placement.divisions.division_kernels import Held, mark_buckets, owners_of_hashes
from culver.placement.placement import State

HASH_BUCKETS = 1024
# The upper 10 bits of a 64-bit hash number a bucket.
_SHIFT = 54
# A narrow registration asks for so many values at most; more of them would be on most slices.
_MOST_VALUES = 8


@dataclass(frozen=True, eq=False)
class HashDivision:
    """`owners` and `weights` have the slice and the load of each hash bucket."""

    kind: ClassVar[str] = "buckets"

    dimension: Dimension
    owners: Integers
    weights: Integers

    @cached_property
    def limit(self) -> int:
        return max(1, min(_MOST_VALUES, int(np.count_nonzero(self.weights)) // 2))

    def mark(self, spans: Spans, base: int, held: Held, terms: Shorts, covered: Shorts) -> None:
        is_point, hashes = spans.points
        buckets = (hashes >> np.uint64(_SHIFT)).view(np.int64)
        mark_buckets(spans.registration, is_point, buckets, self.owners, base, held, terms, covered)

    def owners_of_events(self, columns: BatchColumns, place: int, choice: Integers) -> None:
        found = event_hashes(columns, self.dimension)
        if found is None:
            choice[:, place] = -1
        else:
            hashes, there = read_only(found[0]), read_only(found[1])
            owners_of_hashes(hashes, there, _SHIFT, self.owners, place, choice)

    def turned(self, by: int, slices: int) -> Self:
        return self._with((self.owners + by) % slices)

    def split(self, loaded: int, new: int) -> Self:
        return self._dealt_out(np.flatnonzero(self.owners == loaded), [loaded, new])

    def without(self, gone: int, slices: int) -> Self:
        beside = sorted({(gone - 1) % slices, (gone + 1) % slices} - {gone})
        left = self._dealt_out(np.flatnonzero(self.owners == gone), beside)
        return left._with(left.owners - (left.owners > gone))

    def part(self, own: int) -> list[int]:
        found: list[int] = np.flatnonzero(self.owners == own).tolist()
        return found

    def to_state(self) -> State:
        return {
            "kind": self.kind,
            "attribute": self.dimension[0],
            "line": str(self.dimension[1]),
            "owners": self.owners.tolist(),
            "weights": self.weights.tolist(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        owners, weights = (np.array(state[name], np.int64) for name in ("owners", "weights"))
        if not len(owners) == len(weights) == HASH_BUCKETS:
            raise ValueError(f"there are {HASH_BUCKETS} buckets")
        return cls((str(state["attribute"]), KeyLine(state["line"])), owners, weights)

    def describe(self, slices: int) -> list[dict[str, Any]]:
        counts = np.bincount(self.owners, minlength=slices)
        shares = np.bincount(self.owners, self.weights, slices) / max(1, int(self.weights.sum()))
        return [
            {"slice": own, "buckets": int(counts[own]), "share": round(float(shares[own]), 4)}
            for own in range(slices)
        ]

    def _dealt_out(self, buckets: Integers, takers: list[int]) -> Self:
        """Deal buckets out to takers, the heaviest first, each to the one with least so far; empty ones in turn."""
        owners, load = self.owners.copy(), np.zeros(len(takers), np.int64)
        for turn, bucket in enumerate(buckets[np.argsort(-self.weights[buckets], kind="stable")].tolist()):
            weight = int(self.weights[bucket])
            taker = int(np.argmin(load)) if weight else turn % len(takers)
            owners[bucket] = takers[taker]
            load[taker] += weight
        return self._with(owners)

    def _with(self, owners: Integers) -> Self:
        return type(self)(self.dimension, owners, self.weights)


def divide_by_hash(spans: Spans, dimension: Dimension, slices: int) -> HashDivision:
    """Divide a dimension so that each slice has as many equalities."""
    is_point, hashes = spans.points
    buckets = (hashes[is_point] >> np.uint64(_SHIFT)).astype(np.int64)
    weights = np.bincount(buckets, minlength=HASH_BUCKETS)
    empty = HashDivision(dimension, np.zeros(HASH_BUCKETS, np.int64), weights)
    return empty._dealt_out(np.arange(HASH_BUCKETS), list(range(slices)))
