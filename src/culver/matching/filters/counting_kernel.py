"""The inner loops of the counting filter; `counting` draws the tables."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, compiled

CHUNK = 1 << 15  # clauses whose counters are worked on together: they stay in the first cache
BLOCK = 64  # counters looked at together; divides CHUNK

Places = NDArray[np.uint16]  # of clauses in their chunk


class CountingArrays(NamedTuple):
    """All read-only. For each chunk, three tables per dimension: =, >= and <=; and the needs of the pool."""

    numbers: Integers  # per registration
    registration: Shorts  # per clause
    missing: NDArray[Any]  # per clause, as an event begins; bytes where these suffice, a multiple of BLOCK
    table_start: Integers
    bounds: Integers
    bound_start: Integers
    bound_clauses: Places
    met_start: Integers  # need -> the clauses that want it met
    met_clauses: Places
    unmet_start: Integers  # need -> the clauses that want it not met
    unmet_clauses: Places


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
def _copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    # To Numba, an assignment to a slice is something else, and ten times slower.
    for i in range(len(target)):
        target[i] = source[i]


@compiled
def _any(words: NDArray[np.uint64]) -> bool:
    together = words[0]
    for i in range(1, len(words)):
        together |= words[i]
    return bool(together != 0)


@compiled
def _tick(missing: NDArray[Any], clauses: Places, step: int) -> None:
    # Hot: nearly all of the time is spent here. The places are unsigned, which spares a test for negative ones.
    for i in range(len(clauses)):
        missing[clauses[i]] += step


@compiled
def _tick_values(
    arrays: CountingArrays,
    chunk: int,
    row: int,
    rows: int,
    values: Integers,
    there: Bytes,
    missing: NDArray[Any],
) -> None:
    """Count the predicates on the values of one event that hold."""
    start = arrays.bound_start
    dimensions = len(values) // rows
    for dimension in range(dimensions):
        if there[dimension * rows + row] == 0:
            continue
        value = values[dimension * rows + row]
        table = 3 * (chunk * dimensions + dimension)
        equal = arrays.table_start[table]
        lower = arrays.table_start[table + 1]
        upper = arrays.table_start[table + 2]
        end = arrays.table_start[table + 3]
        place = _first_from(arrays.bounds, equal, lower, value)
        if place < lower and arrays.bounds[place] == value:
            _tick(missing, arrays.bound_clauses[start[place] : start[place + 1]], -1)
        place = _first_from(arrays.bounds, lower, upper, value)
        if place < upper and arrays.bounds[place] == value:
            place += 1
        _tick(missing, arrays.bound_clauses[start[lower] : start[place]], -1)
        place = _first_from(arrays.bounds, upper, end, value)
        _tick(missing, arrays.bound_clauses[start[place] : start[end]], -1)


@compiled
def count(
    arrays: CountingArrays,
    pool: int,
    rows: int,
    values: Integers,
    there: Bytes,
    held_start: Integers,
    held_needs: Shorts,
) -> tuple[Integers, Integers]:
    """Match a batch: offsets per row, and the numbers of the registrations, distinct for each row.

    `values` and `there` are dimensions x rows: a key, and 0 where the event has none. A row meets the needs
    held_needs[held_start[row] : held_start[row + 1]], out of a pool of `pool`.
    """
    clauses = len(arrays.registration)
    chunks = (clauses + CHUNK - 1) // CHUNK
    buffer = np.empty(min(CHUNK, len(arrays.missing)), arrays.missing.dtype)
    full = np.zeros(BLOCK, np.uint8)
    full_words = full.view(np.uint64)
    last_row = np.full(len(arrays.numbers), -1, np.int32)  # in which each registration has matched
    offsets = np.zeros(rows + 1, np.int64)
    numbers = np.empty(max(256, 4 * rows), np.int64)
    found = 0
    for row in range(rows):
        for chunk in range(chunks):
            first_clause = chunk * CHUNK
            missing = buffer[: min(CHUNK, len(arrays.missing) - first_clause)]
            _copy(arrays.missing[first_clause : first_clause + len(missing)], missing)
            _tick_values(arrays, chunk, row, rows, values, there, missing)
            for i in range(held_start[row], held_start[row + 1]):
                need = chunk * pool + held_needs[i]
                met = arrays.met_clauses[arrays.met_start[need] : arrays.met_start[need + 1]]
                _tick(missing, met, -1)
                unmet = arrays.unmet_clauses[arrays.unmet_start[need] : arrays.unmet_start[need + 1]]
                _tick(missing, unmet, 1)
            for first in range(0, len(missing), BLOCK):
                block = missing[first : first + BLOCK]
                for i in range(BLOCK):  # without a branch, so that it is vectorised
                    full[i] = block[i] == 0
                if not _any(full_words):
                    continue
                if found + BLOCK > len(numbers):
                    larger = np.empty(2 * len(numbers), np.int64)
                    larger[:found] = numbers[:found]
                    numbers = larger
                for i in range(BLOCK):
                    if full[i] != 0:
                        registration = arrays.registration[first_clause + first + i]
                        if last_row[registration] != row:
                            last_row[registration] = row
                            numbers[found] = arrays.numbers[registration]
                            found += 1
        offsets[row + 1] = found
    return offsets, numbers[:found]
