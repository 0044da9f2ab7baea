"""Hot: bringing the rows of many ranges together, without the interpreter's lock."""

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.arrays import compiled


def load() -> None:
    """Load the kernel, or compile it where it never was, before events wait for it."""
    none = np.zeros(0, np.uint32)
    gather(np.zeros(0, np.int64), np.zeros(0, np.int64), none, none, np.zeros(1, np.int64), none.copy())


@compiled
def gather(
    group: NDArray[np.int64],
    lengths: NDArray[np.int64],
    shifts: NDArray[np.uint32],
    rows: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    gathered: NDArray[np.uint32],
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
