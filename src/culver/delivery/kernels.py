"""Hot: bringing the rows of many ranges together, without the interpreter's lock."""

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.arrays import compiled


def load() -> None:
    """Load the kernel, or compile it where it never was, before events wait for it."""
    nothing, none = np.zeros(0, np.int64), np.zeros(0, np.uint16)
    gather(nothing, nothing, none, none, np.zeros(1, np.int64), none.copy())
    mapped = none.copy()
    mapped.flags.writeable = False
    for rows in (none, mapped):
        count_from(rows, nothing, nothing, nothing)


@compiled
def gather(
    group: NDArray[np.int64],
    lengths: NDArray[np.int64],
    shifts: NDArray[np.uint16],
    rows: NDArray[np.uint16],
    bounds: NDArray[np.int64],
    gathered: NDArray[np.uint16],
) -> None:
    """Runs of rows, one after another in `rows`, are put together by group, each run's rows raised by its shift.

    Run i has `lengths[i]` rows and belongs to `group[i]`. Fills `bounds` (one entry more than there are groups)
    and `gathered`. Runs of a group keep their order."""
    for run in range(len(group)):
        bounds[group[run] + 1] += lengths[run]
    for at in range(1, len(bounds)):
        bounds[at] += bounds[at - 1]
    free = bounds[:-1].copy()
    at = 0
    for run in range(len(group)):
        into = free[group[run]]
        for i in range(lengths[run]):
            gathered[into + i] = rows[at + i] + shifts[run]
        at += lengths[run]
        free[group[run]] = into + lengths[run]


@compiled
def count_from(
    rows: NDArray[np.uint16], begin: NDArray[np.int64], end: NDArray[np.int64], low: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where, in each ascending run `rows[begin[i]:end[i]]`, the rows at or above `low[i]` begin."""
    found = np.empty(len(begin), np.int64)
    for run in range(len(begin)):
        left, right = begin[run], end[run]
        while left < right:
            middle = (left + right) // 2
            if rows[middle] < low[run]:
                left = middle + 1
            else:
                right = middle
        found[run] = left
    return found
