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
    tally(none, constant(none), none)
    gather(none, constant(none), constant(few), 0, none, few)
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
def tally(group: Integers, bounds: Integers, counts: Integers) -> None:
    """Count the rows of each registration i of a file for its group: `counts[group[i] + 1]`."""
    for i in range(len(group)):
        counts[group[i] + 1] += bounds[i + 1] - bounds[i]


@compiled
def gather(group: Integers, bounds: Integers, rows: Rows, shift: int, free: Integers, gathered: Rows) -> None:
    """Put the rows of each registration of a file, raised by `shift`, to where its group has room, and note what
    of that is left."""
    raised = np.uint16(shift)
    for i in range(len(group)):
        into = free[group[i]]
        for at in range(bounds[i], bounds[i + 1]):
            gathered[into] = rows[at] + raised
            into += 1
        free[group[i]] = into
