"""The inner loops of divided dimensions: which sets hold a registration, and whose segment an event is in.

Marks go straight into the matrix (registrations, sets); what must not stay is taken out again in `keep_members`.
"""

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, compiled

MUCH = 1 << 30  # what a term covers that reaches everything
Held = NDArray[np.bool_]


@compiled
def count_up_to(ascending: Integers, key: int) -> int:
    """How many are at or below the key."""
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
    """Hot. `steps` are cuts and ticks together, so that a key is looked for once; entry i of `segment_of` and
    `tick_of` is for keys that have i steps at or below them. Marks owners from column `base` on, and counts for each
    registration its terms and the spaces between ticks that they reach."""
    for row in range(len(registration)):
        one = registration[row]
        begin, end = count_up_to(steps, low[row]), count_up_to(steps, high[row])
        first = segment_of[begin]
        held[one, base + owners[first]] = True  # also for an empty interval: it must be somewhere
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
    """Hot. As `mark_ranges`; what is no equality reaches every bucket."""
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
    """Hot. `terms` and `covered` are (dimensions, registrations). Registrations that are narrow in all dimensions,
    and not taken by a layer before, are taken, and marked in the backup sets of slices that they have a mark for in
    every dimension; the marks of the others are removed."""
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
    """Hot. The owner of each event's segment into column `place`, -1 where there is no key."""
    for row in range(len(keys)):
        choice[row, place] = owners[count_up_to(cuts, keys[row])] if there[row] != 0 else -1


@compiled
def owners_of_hashes(
    hashes: NDArray[np.uint64], there: Bytes, shift: int, owners: Integers, place: int, choice: Integers
) -> None:
    """Hot. The same by buckets."""
    for row in range(len(hashes)):
        choice[row, place] = owners[hashes[row] >> np.uint64(shift)] if there[row] != 0 else -1


@compiled
def make_choice(choice: Integers, dimensions: int, base: int, slices: int) -> None:
    """Hot. Turn owners into the numbers of sets: no candidate at all where one is missing, and the backup set, if
    there is a column for it, where all candidates are of one slice."""
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
