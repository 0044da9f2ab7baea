"""Hot: what is done for every row or registration of a range, without the interpreter's lock."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, Masks, Shorts, compiled, read_only
from culver.matching import count_pairs, finish, lay_out

Rows = NDArray[np.uint16]
Sizes = NDArray[np.uint32]
N = TypeVar("N", bound=np.generic)


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    none, few = np.zeros(0, np.int64), np.zeros(0, np.uint16)
    room = np.zeros(0, np.int32)
    tally(read_only(none), 0, read_only(none), room)
    allot(0, room, none, np.zeros(1, np.int64))
    gather(read_only(none), 0, read_only(none), read_only(few), 0, room, few)
    find(read_only(none), none, none, none)
    copy_kept(np.zeros(0, np.bool_), read_only(none), read_only(few), few)
    meet(read_only(none), read_only(none), none)
    note_pairs(read_only(none), read_only(np.zeros(1, np.int64)), read_only(few), 0, 0, none, few)
    group_pairs(none, few, 0, room, np.zeros(0, np.uint64), none, np.zeros(1, np.int64), few)
    arrays = read_only(none), read_only(few), np.zeros(0, np.uint32)
    count(read_only(none), none, none, *arrays, 0, 0, np.zeros((0, 4), np.int64))


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
def meet(numbers: Integers, others: Integers, places: Integers) -> int:
    """Where the numbers stand that are among the others too; both ascend. Fills `places`, and returns how many there
    are."""
    few, many = (others, numbers) if len(others) < len(numbers) else (numbers, others)
    found = low = 0
    for i in range(len(few)):
        high = len(many)
        while low < high:
            middle = (low + high) // 2
            if many[middle] < few[i]:
                low = middle + 1
            else:
                high = middle
        if low < len(many) and many[low] == few[i]:
            places[found] = low if len(others) < len(numbers) else i
            found += 1
    return found


@compiled
def count(
    numbers: Integers,
    known: Integers,
    values: Integers,
    bounds: Integers,
    rows: Rows,
    sizes: Sizes,
    base: int,
    start: int,
    counted: Integers,
) -> None:
    """Add the rows of a file's registrations to their mailboxes, the slots of which are among `values`, as `find` has
    it; `counted` are the figures of the slots, as `Columns` has them. Row r stands for offset base + r; those below
    `start`, or below the mailbox's floor, do not count. Looks at registrations, never at every row, so the bytes are
    those of the largest 0, 1, 2, ... events there are: `sizes` ascend."""
    slots = np.empty(len(numbers), np.int64)
    find(numbers, known, values, slots)
    largest = np.zeros(len(sizes) + 1, np.int64)
    for i in range(len(sizes)):
        largest[i + 1] = largest[i] + sizes[len(sizes) - 1 - i]
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0:
            continue
        lowest = max(start, counted[slot, 0]) - base
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
            counted[slot, 1] += end - first
            counted[slot, 2] += largest[end - first]
            if counted[slot, 3] > base:  # ranges come in order: of most mailboxes no row need be looked at
                counted[slot, 3] = min(counted[slot, 3], base + rows[first])


@compiled
def tally(group: Integers, low: int, bounds: Integers, room: Shorts) -> int:
    """Count the rows of each registration i of a file for its group: `room[group[i] - low]`. Returns how many groups
    have some now that had none."""
    added = 0
    for i in range(len(group)):
        at, rows = group[i] - low, bounds[i + 1] - bounds[i]
        added += (room[at] == 0) & (rows > 0)
        room[at] += rows
    return added


@compiled
def allot(low: int, room: Shorts, used: Integers, bounds: Integers) -> None:
    """Name the groups that have rows, and where the rows of each begin; that stands in their `room` too, then."""
    into = at = 0
    for i in range(len(room)):
        rows = room[i]
        bounds[into] = room[i] = at
        if rows > 0:
            used[into] = low + i
            into += 1
            at += rows
    bounds[into] = at


@compiled
def gather(
    group: Integers, low: int, bounds: Integers, rows: Rows, shift: int, room: Shorts, gathered: Rows
) -> None:
    """Put the rows of each registration of a file, raised by `shift`, to where its group has room, and note where
    that goes on."""
    raised = np.uint16(shift)
    for i in range(len(group)):
        into = room[group[i] - low]
        for at in range(bounds[i], bounds[i + 1]):
            gathered[into] = rows[at] + raised
            into += 1
        room[group[i] - low] = into


@compiled
def copy_kept(keep: NDArray[np.bool_], bounds: Integers, rows: Rows, into: Rows) -> None:
    """The rows of those registrations of a file that are to be kept, one after another."""
    at = 0
    for i in range(len(keep)):
        if keep[i]:
            for row in range(bounds[i], bounds[i + 1]):
                into[at] = rows[row]
                at += 1


@compiled
def note_pairs(
    numbers: Integers,
    bounds: Integers,
    rows: Rows,
    shift: int,
    at: int,
    into_numbers: Integers,
    into_rows: Rows,
) -> None:
    """Put down a file's pairs of a number and a row, raised by `shift`, from place `at` on."""
    raised = np.uint16(shift)
    for i in range(len(numbers)):
        for row in range(bounds[i], bounds[i + 1]):
            into_numbers[at] = numbers[i]
            into_rows[at] = rows[row] + raised
            at += 1


@compiled
def group_pairs(
    numbers: Integers,
    rows: Rows,
    low: int,
    counts: Shorts,
    marks: Masks,
    distinct: Integers,
    bounds: Integers,
    grouped: Rows,
) -> int:
    """Group pairs by number, those of each in the order in which they stand. `counts` and `marks` are for the numbers
    from `low` on, zero, and zero again afterwards; the last three are filled. Returns how many numbers there are."""
    count_pairs(numbers, -low, counts, marks)
    groups = lay_out(low, counts, marks, distinct, bounds)
    for at in range(len(numbers)):
        place = np.uintp(numbers[at] - low)
        grouped[counts[place]] = rows[at]
        counts[place] += 1
    finish(distinct[:groups], bounds, low, False, counts, grouped)
    return groups
