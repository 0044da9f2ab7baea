"""The inner loops of the counting filter; `counting` draws the tables."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.kernels import Bytes, Integers, Shorts, compiled

BLOCK = 64  # counters looked at together


class CountingArrays(NamedTuple):
    """All read-only. Three tables for each dimension: =, >= and <=."""

    numbers: Integers  # per registration
    registration: Shorts  # per clause
    missing: NDArray[Any]  # per clause, as an event begins; bytes where these suffice, a multiple of BLOCK
    table_start: Integers
    bounds: Integers
    bound_start: Integers
    bound_clauses: Shorts
    met_start: Integers  # need -> the clauses that want it met
    met_clauses: Shorts
    unmet_start: Integers  # need -> the clauses that want it not met
    unmet_clauses: Shorts


@compiled
def _first_from(bounds: Integers, low: int, high: int, value: int) -> int:
    """The first place in bounds[low:high] whose bound is at least `value`; `high` where there is none."""
    while low < high:
        middle = (low + high) >> 1
        if bounds[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _tick(missing: NDArray[Any], clauses: Shorts, step: int) -> None:
    # Hot: nearly all of the time is spent here.
    for i in range(len(clauses)):
        missing[clauses[i]] += step


@compiled
def count(
    arrays: CountingArrays,
    rows: int,
    values: Integers,
    there: Bytes,
    held_start: Integers,
    held_needs: Shorts,
) -> tuple[Integers, Integers]:
    """Match a batch: offsets per row, and the numbers of the registrations, distinct for each row.

    `values` and `there` are rows x dimensions: a key, and 0 where the event has none. A row meets the needs
    held_needs[held_start[row] : held_start[row + 1]].
    """
    dimensions = (len(arrays.table_start) - 1) // 3
    bound_start = arrays.bound_start
    bound_clauses = arrays.bound_clauses
    clauses = len(arrays.registration)
    missing = np.empty_like(arrays.missing)
    last_row = np.full(len(arrays.numbers), -1, np.int32)  # in which each registration has matched
    offsets = np.zeros(rows + 1, np.int64)
    numbers = np.empty(max(256, 4 * rows), np.int64)
    found = 0
    for row in range(rows):
        missing[:] = arrays.missing
        for dimension in range(dimensions):
            at = row * dimensions + dimension
            if there[at] == 0:
                continue
            value = values[at]
            equal = arrays.table_start[3 * dimension]
            lower = arrays.table_start[3 * dimension + 1]
            upper = arrays.table_start[3 * dimension + 2]
            end = arrays.table_start[3 * dimension + 3]
            place = _first_from(arrays.bounds, equal, lower, value)
            if place < lower and arrays.bounds[place] == value:
                _tick(missing, bound_clauses[bound_start[place] : bound_start[place + 1]], -1)
            place = _first_from(arrays.bounds, lower, upper, value)
            if place < upper and arrays.bounds[place] == value:
                place += 1
            _tick(missing, bound_clauses[bound_start[lower] : bound_start[place]], -1)
            place = _first_from(arrays.bounds, upper, end, value)
            _tick(missing, bound_clauses[bound_start[place] : bound_start[end]], -1)
        for i in range(held_start[row], held_start[row + 1]):
            need = held_needs[i]
            _tick(missing, arrays.met_clauses[arrays.met_start[need] : arrays.met_start[need + 1]], -1)
            _tick(missing, arrays.unmet_clauses[arrays.unmet_start[need] : arrays.unmet_start[need + 1]], 1)

        for first in range(0, len(missing), BLOCK):
            block = missing[first : first + BLOCK]
            nothing = 0
            for i in range(BLOCK):  # without a branch, so that it is vectorised
                nothing |= block[i] == 0
            if nothing == 0:
                continue
            if found + BLOCK > len(numbers):
                larger = np.empty(2 * len(numbers), np.int64)
                larger[:found] = numbers[:found]
                numbers = larger
            for i in range(min(BLOCK, clauses - first)):
                if block[i] == 0:
                    registration = arrays.registration[first + i]
                    if last_row[registration] != row:
                        last_row[registration] = row
                        numbers[found] = arrays.numbers[registration]
                        found += 1
        offsets[row + 1] = found
    return offsets, numbers[:found]
