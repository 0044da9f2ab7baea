"""Hot: what is done for every row or registration of a range, without the interpreter's lock."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.arrays import compiled

Integers = NDArray[np.int64]
Rows = NDArray[np.uint16]
N = TypeVar("N", bound=np.generic)


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    none, few = np.zeros(0, np.int64), np.zeros(0, np.uint16)
    gather(none, none, few, few, np.zeros(1, np.int64), few.copy())
    find(constant(none), none, none, none)
    count(none, constant(none), constant(few), none, 0, 0, none, none, none, none)


def constant(array: NDArray[N]) -> NDArray[N]:
    """A view that cannot be written through: to Numba, arrays in a mapped file and in memory are alike then."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def find(wanted: Integers, known: Integers, values: Integers, found: Integers) -> None:
    """For each of the wanted numbers, which ascend, the value of the same known number, or -1.

    Known numbers ascend too, mostly without holes. So the place of one is guessed from the number alone, less the
    holes met so far, and does not wait for the place of the one before."""
    low, origin = 0, known[0] if len(known) > 0 else 0
    for i in range(len(wanted)):
        number = wanted[i]
        guess = number - origin
        if 0 <= guess < len(known) and known[guess] == number:
            found[i] = values[guess]
            low = guess + 1
            continue
        high = len(known)
        while low < high:
            middle = (low + high) // 2
            if known[middle] < number:
                low = middle + 1
            else:
                high = middle
        found[i] = -1
        if low < len(known) and known[low] == number:
            found[i] = values[low]
            origin = number - low


@compiled
def count(
    slots: Integers,
    bounds: Integers,
    rows: Rows,
    largest: Integers,
    base: int,
    start: int,
    floor: Integers,
    pending: Integers,
    size: Integers,
    oldest: Integers,
) -> None:
    """Add the rows of a file to the mailboxes in `slots`, one for each of its registrations, or -1. Row r stands for
    offset base + r; those below `start`, or below the mailbox's floor, do not count. Looks at registrations, never at
    every row, so the bytes are those of the largest 0, 1, 2, ... events there are."""
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0:
            continue
        lowest = max(start, floor[slot]) - base
        first, end = bounds[i], bounds[i + 1]
        if lowest > 0:
            high = end
            while first < high:
                middle = (first + high) // 2
                if rows[middle] < lowest:
                    first = middle + 1
                else:
                    high = middle
        if first < end:
            pending[slot] += end - first
            size[slot] += largest[end - first]
            if oldest[slot] > base:  # ranges come in order: of most mailboxes no row need be looked at
                oldest[slot] = min(oldest[slot], base + rows[first])


@compiled
def gather(
    group: Integers,
    lengths: Integers,
    shifts: Rows,
    rows: Rows,
    bounds: Integers,
    gathered: Rows,
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
