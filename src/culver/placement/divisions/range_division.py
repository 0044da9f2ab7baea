"""A dimension divided into ranges by cuts; see `division`."""

import datetime
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from culver.jit import Integers, Shorts, read_only
from culver.matching import (
    BatchColumns,
    Dimension,
    KeyLine,
    event_keys,
    real_keys,
    real_of_key,
    reals_of_keys,
)
from culver.model import EARLIEST, LATEST
from culver.placement.divisions.division import Spans, nearest_to_half
from culver.placement.divisions.division_kernels import Held, mark_ranges, owners_of_keys
from culver.placement.placement import State

TICKS = 128
# A registration that covers more than this part of the ticks is not narrow.
_WIDEST = 0.5
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, eq=False)
class RangeDivision:
    """Cuts ascend. There is one owner more than there are cuts, and neighbours differ. Ticks are ascending keys that
    bound equal shares of the load; several may be equal."""

    kind: ClassVar[str] = "ranges"

    dimension: Dimension
    cuts: Integers
    owners: Integers
    ticks: Integers

    @cached_property
    def limit(self) -> int:
        return max(1, int((len(np.unique(self.ticks)) + 1) * _WIDEST))

    @cached_property
    def _steps(self) -> tuple[Integers, Integers, Integers]:
        ticks = np.unique(self.ticks)
        steps = np.union1d(self.cuts, ticks)
        counts = [np.searchsorted(steps, each, "left") for each in (self.cuts, ticks)]
        segment_of, tick_of = (np.cumsum(np.bincount(each + 1, minlength=len(steps) + 1)) for each in counts)
        return steps, segment_of, tick_of

    def mark(self, spans: Spans, base: int, held: Held, terms: Shorts, covered: Shorts) -> None:
        low, high = spans.bounds
        mark_ranges(spans.registration, low, high, *self._steps, self.owners, base, held, terms, covered)

    def owners_of_events(self, columns: BatchColumns, place: int, choice: Integers) -> None:
        found = event_keys(columns, self.dimension)
        if found is None:
            choice[:, place] = -1
        else:
            keys, there = read_only(found[0]), read_only(found[1])
            owners_of_keys(keys, there, self.cuts, self.owners, place, choice)

    def turned(self, by: int, slices: int) -> Self:
        return self._with(self.cuts, (self.owners + by) % slices)

    def split(self, loaded: int, new: int) -> Self:
        pivot = self._pivot(np.flatnonzero(self.owners == loaded))
        if pivot is None:
            return self
        cuts, owners = self._cut_at(pivot)
        owners[(owners == loaded) & (np.arange(len(owners)) > np.searchsorted(cuts, pivot))] = new
        return self._with(cuts, owners)

    def without(self, gone: int, slices: int) -> Self:
        now = self
        while len(lost := np.flatnonzero(now.owners == gone)):
            now = now._given_away(int(lost[0]), (gone + 1) % slices)
        return now._with(now.cuts, now.owners - (now.owners > gone))

    def part(self, own: int) -> list[tuple[int | None, int | None]]:
        cuts = [None, *self.cuts.tolist(), None]
        return [(cuts[each], cuts[each + 1]) for each in np.flatnonzero(self.owners == own).tolist()]

    def to_state(self) -> State:
        return {
            "kind": self.kind,
            "attribute": self.dimension[0],
            "line": str(self.dimension[1]),
            "cuts": self.cuts.tolist(),
            "owners": self.owners.tolist(),
            "ticks": self.ticks.tolist(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        cuts, owners, ticks = (np.array(state[name], np.int64) for name in ("cuts", "owners", "ticks"))
        return cls((str(state["attribute"]), KeyLine(state["line"])), cuts, owners, ticks)

    def describe(self, slices: int) -> list[dict[str, Any]]:
        values = [None, *(shown(key, self.dimension[1]) for key in self.cuts.tolist()), None]
        return [
            {"slice": owner, "from": values[place], "below": values[place + 1]}
            for place, owner in enumerate(self.owners.tolist())
        ]

    def _given_away(self, segment: int, otherwise: int) -> Self:
        """Halve a segment between the owners of those beside it, or give it to the only one there is."""
        owner, last = self.owners, len(self.owners) - 1
        if segment == 0 or segment == last:
            beside = [owner[each] for each in (segment - 1, segment + 1) if 0 <= each <= last]
            owners = owner.copy()
            owners[segment] = beside[0] if beside else otherwise
            return self._with(self.cuts, owners)
        pivot = self._pivot(np.array([segment]))
        cuts, owners = self._cut_at(pivot) if pivot is not None else (self.cuts, owner.copy())
        owners[segment] = owners[segment - 1]
        if pivot is not None:
            owners[segment + 1] = owners[segment + 2]
        return self._with(cuts, owners)

    def _pivot(self, segments: Integers) -> int | None:
        """The key that halves the load of these segments: a tick within one, or the begin of one."""
        where = np.searchsorted(self.cuts, self.ticks, "right")
        inside = self.ticks[np.isin(where, segments)]
        begins = self.cuts[segments[segments > 0] - 1]
        later = self.cuts[segments[1:] - 1]  # the first begin halves nothing
        pivots = np.union1d(np.setdiff1d(inside, begins), later)
        if not len(pivots):
            return None
        below = np.searchsorted(inside, pivots, "left")
        return int(pivots[nearest_to_half(below.tolist(), len(inside))])

    def _cut_at(self, pivot: int) -> tuple[Integers, Integers]:
        if pivot in self.cuts:
            return self.cuts, self.owners.copy()
        place = int(np.searchsorted(self.cuts, pivot))
        return np.insert(self.cuts, place, pivot), np.insert(self.owners, place, self.owners[place])

    def _with(self, cuts: Integers, owners: Integers) -> Self:
        """The same division with other segments; neighbours of one owner become one."""
        kept = owners[1:] != owners[:-1]
        return type(self)(self.dimension, cuts[kept], owners[np.concatenate([[True], kept])], self.ticks)


def divide_at_quantiles(
    dimension: Dimension, points: Integers, weights: Integers, slices: int
) -> RangeDivision:
    """Divide a dimension so that each segment has the same weight of points, which ascend."""
    if not len(points):
        return RangeDivision(dimension, np.empty(0, np.int64), np.zeros(1, np.int64), points)
    total = np.cumsum(weights)

    def quantiles(count: int) -> Integers:
        shares = np.arange(1, count) * (int(total[-1]) / count)
        return points[np.minimum(np.searchsorted(total, shares, "right"), len(points) - 1)]

    cuts = np.unique(quantiles(slices))
    return RangeDivision(dimension, cuts, np.arange(len(cuts) + 1), quantiles(TICKS + 1))


def divide_at_equal_widths(dimension: Dimension, points: Integers, slices: int) -> RangeDivision:
    """Divide a dimension into equal widths between the lowest and the highest point, as the paper does."""
    if not len(points):
        return RangeDivision(dimension, points, np.zeros(1, np.int64), points)
    low, high = int(points[0]), int(points[-1])
    is_real = dimension[1] in (KeyLine.NUMBERS, KeyLine.REALS)

    def equal(count: int) -> Integers:
        shares = np.arange(1, count) / count
        if is_real:
            first, last = reals_of_keys(np.array([low, high]))
            return real_keys(first * (1 - shares) + last * shares)
        return np.array([low + (high - low) * each // count for each in range(1, count)], np.int64)

    cuts = np.unique(equal(slices))
    return RangeDivision(dimension, cuts, np.arange(len(cuts) + 1), equal(TICKS + 1))


def shown(key: int, line: KeyLine) -> Any:
    """The value of a key, rounded for people: a key may be the next above a bound."""
    match line:
        case KeyLine.NUMBERS | KeyLine.REALS:
            return float(f"{real_of_key(key):.12g}")
        case KeyLine.STRINGS:
            head = (key ^ -(1 << 63)) & ((1 << 64) - 1)
            return head.to_bytes(8, "big").rstrip(b"\0").decode(errors="replace")
        case KeyLine.TIMESTAMPS:
            return (_EPOCH + datetime.timedelta(microseconds=min(max(key, EARLIEST), LATEST))).isoformat()
        case KeyLine.BOOLEANS:
            return bool(key)
        case _:
            return key
