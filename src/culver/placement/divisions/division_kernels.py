"""The inner loops of divisions: which sets hold a registration, and whose segment an event is in.

Marks go straight into the matrix (registrations, sets); `keep_members` removes those that must not stay.
"""

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, compiled

MUCH = 1 << 30
"""What a term covers that reaches everything."""
Held = NDArray[np.bool_]


@compiled
def count_up_to(ascending: Integers, key: int) -> int:
    """Count the entries at or below the key."""
    base, left = 0, len(ascending)
    if left == 0:
        return 0
    while left > 1:
        half = left >> 1
        base += half if ascending[base + half - 1] <= key else 0
        left -= half
    return base + (1 if ascending[base] <= key else 0)


@compiled
def mark_ranges(
    registration: Integers,
    low: Integers,
    high: Integers,
    steps: Integers,
    segment_of: Integers,
    tick_of: Integers,
    owners: Integers,
    base: int,
    held: Held,
    terms: Shorts,
    covered: Shorts,
) -> None:
    """Hot. Mark owners from column `base` on, and count for each registration its terms and the spaces between ticks
    that they reach. `steps` are cuts and ticks together, so that each key is looked up once; entry i of `segment_of`
    and `tick_of` is for keys that have i steps at or below them."""
    for row in range(len(registration)):
        one = registration[row]
        begin, end = count_up_to(steps, low[row]), count_up_to(steps, high[row])
        first = segment_of[begin]
        held[one, base + owners[first]] = True  # also for an empty interval, which must be somewhere
        for segment in range(first + 1, segment_of[end] + 1):
            held[one, base + owners[segment]] = True
        terms[one] += 1
        covered[one] = min(MUCH, covered[one] + max(0, tick_of[end] - tick_of[begin]) + 1)


@compiled
def mark_buckets(
    registration: Integers,
    is_point: Held,
    buckets: Integers,
    owners: Integers,
    base: int,
    held: Held,
    terms: Shorts,
    covered: Shorts,
) -> None:
    """Hot. Do as `mark_ranges`, by hash buckets; a term that is no equality reaches all of them."""
    for row in range(len(registration)):
        one = registration[row]
        terms[one] += 1
        if is_point[row]:
            held[one, base + owners[buckets[row]]] = True
            covered[one] = min(MUCH, covered[one] + 1)
        else:
            covered[one] = MUCH


@compiled
def keep_members(
    clauses: Integers,
    terms: Shorts,
    covered: Shorts,
    limits: Integers,
    base: int,
    slices: int,
    has_backups: bool,
    held: Held,
    taken: Held,
) -> None:
    """Hot. Take the registrations that are narrow in all dimensions and that no earlier layer has taken, mark them in
    the backup sets of the slices that they reach in every dimension, and remove the marks of all others. `terms` and
    `covered` are (dimensions, registrations)."""
    dimensions = len(limits)
    for one in range(len(clauses)):
        member = not taken[one] and clauses[one] > 0
        for each in range(dimensions):
            member = member and terms[each, one] == clauses[one] and covered[each, one] <= limits[each]
        if not member:
            held[one, base : base + dimensions * slices] = False
            continue
        taken[one] = True
        if has_backups:
            for own in range(slices):
                everywhere = True
                for each in range(dimensions):
                    everywhere = everywhere and held[one, base + each * slices + own]
                held[one, base + dimensions * slices + own] = everywhere


@compiled
def owners_of_keys(
    keys: Integers, there: Bytes, cuts: Integers, owners: Integers, place: int, choice: Integers
) -> None:
    """Hot. Put the owner of each event's segment into column `place`; -1 where there is no key."""
    for row in range(len(keys)):
        choice[row, place] = owners[count_up_to(cuts, keys[row])] if there[row] != 0 else -1


@compiled
def owners_of_hashes(
    hashes: NDArray[np.uint64], there: Bytes, shift: int, owners: Integers, place: int, choice: Integers
) -> None:
    """Hot. Do as `owners_of_keys`, by hash buckets."""
    for row in range(len(hashes)):
        choice[row, place] = owners[hashes[row] >> np.uint64(shift)] if there[row] != 0 else -1


@compiled
def make_choice(choice: Integers, dimensions: int, base: int, slices: int) -> None:
    """Hot. Turn owners into numbers of sets. An event without an owner in some dimension has no candidate; one whose
    owners are all the same slice also has its backup set, if there is a column for it."""
    width = choice.shape[1]
    for row in range(len(choice)):
        complete, first = True, choice[row, 0]
        same = width > dimensions
        for each in range(dimensions):
            complete = complete and choice[row, each] >= 0
            same = same and choice[row, each] == first
        if complete:
            for each in range(dimensions):
                choice[row, each] += base + each * slices
            if width > dimensions:
                choice[row, dimensions] = base + dimensions * slices + first if same else -1
        else:
            choice[row] = -1
