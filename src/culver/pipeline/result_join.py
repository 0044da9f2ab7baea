"""The exit point's join: the partial results of several slices, or of the segments of one, become one.

slice 0   registration 3: 0 5      7: 1               a registration may be in several slices, but an event is
slice 1   registration 3: 2        9: 1 2             matched against it in one of them only, so nothing is
joined    registration 3: 0 2 5    7: 1    9: 1 2     there twice
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.jit import compiled
from culver.matching import MOST_EVENTS, Found, Grouping, Groups, Listed, Rows, Runs, result_buffer

LAST = np.iinfo(np.int64).max
_FEW_ROWS = 16  # of a registration in a part, on the average


class Collection:
    """What is found in a block, in one slice or in several, until all of it is grouped at once."""

    def __init__(self) -> None:
        self.groups: list[Groups] = []
        self._runs: list[Runs] = []
        # Not among the runs yet: most blocks of few events find nothing else.
        self._latest: Listed | None = None

    def add(self, found: Found) -> int:
        """Before the next is asked for. Returns how many pairs it has."""
        if isinstance(found, Listed) and found.is_narrow:
            self._pack_latest()
            self._latest = found
            return found.pairs
        self.groups.append(found.groups())
        return len(self.groups[-1].rows)

    @property
    def runs(self) -> list[Runs]:
        self._pack_latest()
        return self._runs

    def _pack_latest(self) -> None:
        if self._latest is not None:
            self._runs.append(self._latest.runs())
            self._latest = None

    @property
    def pairs(self) -> int:
        return sum(len(each.numbers) for each in self.runs) + sum(len(each.rows) for each in self.groups)

    def take(self, other: "Collection") -> None:
        """What another task found in the same block."""
        self.groups += other.groups
        self.runs.extend(other.runs)

    def grouped(self, grouping: Grouping) -> Groups:
        if self._latest is not None and not self._runs and not self.groups:
            return self._latest.groups(grouping)
        if not self.runs:
            return join(self.groups, grouping)
        if not self.groups or _is_sparse(self.groups):
            return grouping.group(self.runs, self.groups)
        return join([*self.groups, grouping.group(self.runs)], grouping)


def join(parts: Sequence[Groups], grouping: Grouping | None = None) -> Groups:
    """The groups of all parts, which are over the same events."""
    parts = [part for part in parts if len(part.numbers)]
    if not parts:
        return Groups(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.uint16))
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda part: int(part.numbers[0]))
    numbers = np.concatenate([part.numbers for part in parts])
    if all(one.numbers[-1] < other.numbers[0] for one, other in itertools.pairwise(parts)):
        pairs = sum(len(part.rows) for part in parts)
        rows = result_buffer(-(-pairs // 4)).view(np.uint16)[:pairs]
        np.concatenate([part.rows for part in parts], out=rows)
        bounds = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(np.concatenate([np.diff(part.bounds) for part in parts]), out=bounds[1:])
        return Groups(numbers, bounds, rows)
    if _is_sparse(parts):
        return (grouping or Grouping()).group([], parts)
    runs = np.cumsum([0, *(len(part.numbers) for part in parts)])
    begin = np.concatenate([part.bounds[:-1] for part in parts])
    lengths = np.concatenate([np.diff(part.bounds) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    begin += np.repeat(
        np.cumsum([0, *(len(part.rows) for part in parts[:-1])]), [len(part.numbers) for part in parts]
    )
    distinct = np.empty(len(numbers), np.int64)
    bounds = np.empty(len(numbers) + 1, np.int64)
    joined = result_buffer(-(-len(rows) // 4)).view(np.uint16)[: len(rows)]
    count = put_together(runs, numbers, begin, lengths, rows, distinct, bounds, joined)
    return Groups(distinct[:count], bounds[: count + 1], joined)


def _is_sparse(parts: Sequence[Groups]) -> bool:
    """Whether registrations have few rows: then it is quicker to put each into its place than to merge them."""
    return sum(len(part.rows) for part in parts) <= _FEW_ROWS * sum(len(part.numbers) for part in parts)


def load_join() -> None:
    """Load the kernel, or compile it where it never was."""
    one, none, rows = np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint16)
    put_together(one, none, none, none, rows, none.copy(), one.copy(), rows.copy())


@compiled
def put_together(
    runs: NDArray[np.int64],
    numbers: NDArray[np.int64],
    begin: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: Rows,
    distinct: NDArray[np.int64],
    bounds: NDArray[np.int64],
    joined: Rows,
) -> int:
    """Hot: run r is `numbers[runs[r]:runs[r + 1]]`, ascending, and entry i of all has the rows
    `rows[begin[i]:begin[i] + lengths[i]]`. Fills `distinct`, `bounds` and `joined`, ascending all of them; returns
    how many distinct numbers there are."""
    heads, ends = runs[:-1].copy(), runs[1:]
    aside = np.empty(MOST_EVENTS, np.uint16)
    count = into = 0
    while True:
        least = LAST
        for run in range(len(heads)):
            if heads[run] < ends[run] and numbers[heads[run]] < least:
                least = numbers[heads[run]]
        if least == LAST:
            break
        distinct[count], bounds[count] = least, into
        count += 1
        start = into
        for run in range(len(heads)):
            entry = heads[run]
            if entry == ends[run] or numbers[entry] != least:
                continue
            heads[run] = entry + 1
            at, end = begin[entry], begin[entry] + lengths[entry]
            # What is there is merged with the next run; of the two, the smaller row is taken without a branch.
            held = into - start
            if held:
                aside[:held] = joined[start:into]
                into = start
            i = 0
            while i < held and at < end:
                one, other = aside[np.uintp(i)], rows[np.uintp(at)]
                smaller = one < other
                joined[np.uintp(into)] = one if smaller else other
                i += smaller
                at += not smaller
                into += 1
            for left in range(i, held):
                joined[np.uintp(into)] = aside[np.uintp(left)]
                into += 1
            for left in range(at, end):
                joined[np.uintp(into)] = rows[np.uintp(left)]
                into += 1
    bounds[count] = into
    return count
