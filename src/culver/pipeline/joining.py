"""The exit point's join: the partial results of several slices, or of the segments of one, become one.

slice 0   registration 3: 0 5      7: 1               a registration may be in several slices, but an event is
slice 1   registration 3: 2        9: 1 2             matched against it in one of them only, so nothing is
joined    registration 3: 0 2 5    7: 1    9: 1 2     there twice
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.matching.groups import MOST_EVENTS, Groups, Rows
from culver.matching.index.arrays import compiled
from culver.matching.index.rooms import room_for


def join(parts: Sequence[Groups]) -> Groups:
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
        rows = room_for(-(-pairs // 4)).view(np.uint16)[:pairs]
        np.concatenate([part.rows for part in parts], out=rows)
        bounds = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(np.concatenate([np.diff(part.bounds) for part in parts]), out=bounds[1:])
        return Groups(numbers, bounds, rows)
    begin = np.concatenate([part.bounds[:-1] for part in parts])
    lengths = np.concatenate([np.diff(part.bounds) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    begin += np.repeat(
        np.cumsum([0, *(len(part.rows) for part in parts[:-1])]), [len(part.numbers) for part in parts]
    )
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    bounds = np.zeros(len(first) + 1, np.int64)
    joined = room_for(-(-len(rows) // 4)).view(np.uint16)[: len(rows)]
    put_together(np.append(first, len(order)), begin[order], lengths[order], rows, bounds, joined)
    return Groups(ordered[first], bounds, joined)


def load() -> None:
    """Load the kernel, or compile it where it never was."""
    one, rows = np.zeros(1, np.int64), np.zeros(0, np.uint16)
    put_together(one, one[:0], one[:0], rows, one.copy(), rows.copy())


@compiled
def put_together(
    first: NDArray[np.int64],
    begin: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: Rows,
    bounds: NDArray[np.int64],
    joined: Rows,
) -> None:
    """Hot: group i is the runs `first[i]` up to `first[i + 1]`, run r being `rows[begin[r]:begin[r] + lengths[r]]`.
    Fills `bounds` and `joined`; rows ascend within a group."""
    into = 0
    aside = np.empty(MOST_EVENTS, np.uint16)
    for group in range(len(first) - 1):
        bounds[group] = start = into
        for run in range(first[group], first[group + 1]):
            at, end = begin[run], begin[run] + lengths[run]
            # What is there is merged with the next run; of the two, the smaller row is taken without a branch.
            held = into - start
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
    bounds[len(bounds) - 1] = into
