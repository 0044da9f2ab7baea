"""Hot: the work on every row or registration of a range, without the GIL."""

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, compiled, read_only
from culver.matching import Rows

Sizes = NDArray[np.uint32]


def load_kernels() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    none, few, start = np.zeros(0, np.int64), np.zeros(0, np.uint16), np.zeros(1, np.int64)
    numbers, rows = read_only(none), read_only(few)
    find(numbers, none, none, none)
    meet(numbers, numbers, none)
    count(numbers, none, none, numbers, rows, np.zeros(0, np.uint32), 0, 0, np.zeros((0, 4), np.int64))
    copy_kept(np.zeros(0, np.bool_), numbers, numbers, rows, 0, none, start, few)
    gather(numbers, numbers, rows, none, none, 0, 0, 0, few, none)
    take_out(numbers, numbers, rows, read_only(np.zeros(0, np.uint32)), none, none, np.zeros(0, np.bool_), 0, 0, 0,
             np.zeros((0, 4), np.int64))  # fmt: skip


@compiled
def search(values: Integers | Rows, wanted: int, low: int, high: int) -> int:
    """Find the first place from `low` on whose value is not below `wanted`, or `high`. The values ascend."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def find(wanted: Integers, known: Integers, values: Integers, found: Integers) -> None:
    """Find the value of each wanted number, -1 where the number is not known. Both kinds of numbers ascend.

    Known numbers have few holes. So a guess from the number alone, less the holes met so far, mostly gives the place,
    and does not wait for the place of the number before."""
    low, origin = 0, known[0] if len(known) > 0 else 0
    for i in range(len(wanted)):
        number = wanted[i]
        guess = number - origin
        if 0 <= guess < len(known) and known[guess] == number:
            found[i] = values[guess]
            low = guess + 1
            continue
        low = search(known, number, low, len(known))
        found[i] = -1
        if low < len(known) and known[low] == number:
            found[i] = values[low]
            origin = number - low


@compiled
def meet(numbers: Integers, others: Integers, places: Integers) -> int:
    """Fill `places` with those of the numbers that are among the others too, and return how many. Both ascend."""
    few, many = (others, numbers) if len(others) < len(numbers) else (numbers, others)
    found = low = 0
    for i in range(len(few)):
        low = search(many, few[i], low, len(many))
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
    """Add the rows of a range's registrations to their mailboxes. `known` and `values` give the slot of a
    registration, as `find` has it; `counted` has the counters of each slot, see `MailboxColumns`.

    Row r stands for offset base + r. Rows below `start`, or below the mailbox's floor, do not count. Looks at
    registrations, never at every row, so the bytes are those of the largest 0, 1, 2, ... events: `sizes` ascend."""
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
            first = search(rows, lowest, first, end)
        if first < end:
            counted[slot, 1] += end - first
            counted[slot, 2] += largest[end - first]
            # Ranges come in order: most mailboxes hold something older, and no row need be read.
            if counted[slot, 3] > base:
                counted[slot, 3] = min(counted[slot, 3], base + rows[first])


@compiled
def copy_kept(
    keep: NDArray[np.bool_],
    numbers: Integers,
    bounds: Integers,
    rows: Rows,
    skip: int,
    kept_numbers: Integers,
    kept_bounds: Integers,
    kept_rows: Rows,
) -> int:
    """Copy the registrations to keep that have rows from `skip` on, with these less `skip`. Returns how many."""
    count = into = 0
    for i in range(len(keep)):
        kept_bounds[count] = into
        if keep[i]:
            for at in range(bounds[i], bounds[i + 1]):
                if rows[at] >= skip:
                    kept_rows[into] = rows[at] - skip
                    into += 1
            if into > kept_bounds[count]:
                kept_numbers[count] = numbers[i]
                count += 1
    kept_bounds[count] = into
    return count


@compiled
def gather(
    numbers: Integers,
    bounds: Integers,
    rows: Rows,
    members: Integers,
    floors: Integers,
    base: int,
    low: int,
    high: int,
    found_rows: Rows,
    found_at: Integers,
) -> int:
    """List the rows in `[low, high)` that a range has for members, each with the member's place. Returns how many
    there are; those that exceed the room are not listed. Members ascend, and one may be there several times. Row r
    stands for offset base + r, and rows below the floor of a member do not count."""
    found = low_member = low_number = 0
    few_numbers = len(numbers) < len(members)
    for k in range(len(numbers) if few_numbers else len(members)):
        if few_numbers:
            i = k
            low_member = search(members, numbers[i], low_member, len(members))
            first = low_member
        else:
            first = k
            low_number = search(numbers, members[k], low_number, len(numbers))
            i = low_number
            if i == len(numbers):
                break
        j = first
        while j < len(members) and members[j] == numbers[i]:
            begin = search(rows, max(low, floors[j] - base), bounds[i], bounds[i + 1])
            at = begin
            while at < bounds[i + 1] and rows[at] < high:
                if found < len(found_rows):
                    found_rows[found] = rows[at]
                    found_at[found] = j
                found += 1
                at += 1
            j += 1
            if not few_numbers:
                break
    return found


@compiled
def take_out(
    numbers: Integers,
    bounds: Integers,
    rows: Rows,
    sizes: Sizes,
    known: Integers,
    values: Integers,
    chosen: NDArray[np.bool_],
    base: int,
    start: int,
    end: int,
    counted: Integers,
) -> None:
    """Take the rows of a range out of the counters of chosen mailboxes, from their floors and offset `start` up to
    `end`. `known` and `values` give the slot of a registration; `counted` is as `count` has it."""
    slots = np.empty(len(numbers), np.int64)
    find(numbers, known, values, slots)
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0 or not chosen[slot]:
            continue
        at = search(rows, max(start, counted[slot, 0]) - base, bounds[i], bounds[i + 1])
        while at < bounds[i + 1] and rows[at] < end - base:
            counted[slot, 1] -= 1
            counted[slot, 2] -= sizes[rows[at]]
            at += 1
