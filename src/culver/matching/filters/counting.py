"""The counting algorithm of SIENA, as StreamHub uses it (section 4.2.1): the published baseline, compiled.

    attribute -> tables     =    values ascending    the one that equals the event's value holds
                            >=   bounds ascending    those up to the event's value hold
                            <=   bounds ascending    those from the event's value on hold
    need      -> clauses    evaluated once per distinct value, as the columnar filter does
    predicate -> clauses    equal predicates are stored once
    clause    -> counter    how many of its predicates are still missing; it matches at none

    bounds          12.5       40.0   83.1             of one table
    clauses       | 4 9 17 |   2    | 4 5 ...          after one another, so that the clauses of all
                  '------- 50.0 ------'                predicates that hold are one run

The paper calls one bound a predicate, and so does this module: a range counts as two. A subscription matches when one
of its clauses does. For each event only the tables of its own attributes are walked.

The algorithm is the published one, with two things that help the machine: counters count down, so that one pass over
bytes finds those at zero; and clauses are in sections with tables of their own, so that the counters of a section
stay in the first cache while predicates tick them all over.

The next match after a change rebuilds the tables.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, compiled, read_only
from culver.matching.filter import Matches
from culver.matching.index.compile.clause_table import ClauseTable, pack_texts, pool_places, run_starts
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import HIGHEST_KEY, LOWEST_KEY
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.key_kernels import Programs, literals_of
from culver.matching.index.needs.segment_needs import SegmentNeeds
from culver.model.language import Predicate

# Rows worked on at a time.
_MAX_ROWS = 8_192

# The tables of a dimension, in this order.
_EQUAL, _LOWER, _UPPER = 0, 1, 2
_NOTHING = compile_entries([])


SECTION = 1 << 15
"""Clauses with tables of their own: their counters stay in the first cache."""
# Counters that are looked at together; divides SECTION.
_TOGETHER = 64

# The places of clauses in their section.
Places = NDArray[np.uint16]


class CountingArrays(NamedTuple):
    """All read-only. For each section, three tables per dimension: =, >= and <=; and the needs of the pool."""

    numbers: Integers  # per registration
    registration: Shorts  # per clause
    # Per clause, as an event begins; bytes where these suffice, a multiple of _TOGETHER.
    missing: NDArray[Any]
    table_start: Integers
    bounds: Integers
    bound_start: Integers
    bound_clauses: Places
    met_start: Integers  # need -> the clauses that want it met
    met_clauses: Places
    unmet_start: Integers  # need -> the clauses that want it not met
    unmet_clauses: Places


class CountingFilter:
    def __init__(self) -> None:
        self._fresh: dict[int, Predicate] = {}  # not in the tables yet
        self._gone: set[int] = set()  # still in the tables
        self._table = _NOTHING
        self._stored: set[int] = set()  # the numbers in the tables that are neither removed nor replaced
        self._counting = _Counting(_NOTHING)

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        for number, predicate in subscriptions:
            self._drop(number)
            self._fresh[number] = predicate

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._drop(number)
            self._fresh.pop(number, None)

    def match(self, batch: pa.RecordBatch) -> Matches:
        self._settle()
        pieces = [
            self._counting.match(batch.slice(first, _MAX_ROWS))
            for first in range(0, batch.num_rows, _MAX_ROWS)
        ]
        if len(pieces) == 1:
            return pieces[0]
        lengths = [np.diff(piece.offsets) for piece in pieces]
        numbers = [piece.numbers for piece in pieces]
        nothing = np.empty(0, np.int64)
        return Matches(run_starts(np.concatenate([nothing, *lengths])), np.concatenate([nothing, *numbers]))

    @property
    def nbytes(self) -> int:
        return self._counting.nbytes

    def __len__(self) -> int:
        return len(self._stored) + len(self._fresh)

    def _drop(self, number: int) -> None:
        if number in self._stored:
            self._stored.remove(number)
            self._gone.add(number)

    def _settle(self) -> None:
        """Bring the tables up to date with what was added and removed."""
        if not self._fresh and not self._gone:
            return
        added = compile_entries(Entry(number, predicate) for number, predicate in self._fresh.items())
        if self._stored:
            gone = np.array(sorted(self._gone), np.int64)
            kept = self._table.select_registrations(np.isin(self._table.numbers, gone, invert=True))
            self._table = ClauseTable.joined([kept, added])
        else:
            self._table = added
        self._stored.update(self._fresh)
        self._fresh.clear()
        self._gone.clear()
        self._counting = _Counting(self._table)


class _Counting:
    """The tables and counters of some clauses; immutable."""

    def __init__(self, table: ClauseTable) -> None:
        self._programs = Programs(table.dimensions)
        self._needs = SegmentNeeds(table.pool)
        starts, data = pack_texts(table.literals)
        self._literals = literals_of(read_only(starts), read_only(data))
        clauses = len(table.clause_registration)
        of_table, bounds, of_clause = _predicates(table)
        sections = -(-clauses // SECTION)
        tables = _runs(sections, 3 * len(table.dimensions), of_table, bounds, of_clause)
        by_clause = np.repeat(np.arange(clauses), np.diff(table.need_start))
        wanted = table.needs >= 0
        places = pool_places(table.needs)
        met = _runs(sections, len(table.pool), places[wanted], places[wanted], by_clause[wanted])
        unmet = _runs(sections, len(table.pool), places[~wanted], places[~wanted], by_clause[~wanted])
        # A need that must not be met counts as missing only once it is met.
        missing = np.bincount(of_clause, minlength=clauses)
        missing += np.bincount(by_clause[wanted], minlength=clauses)
        # _TOGETHER counters are looked at together, so the last ones are filled up with clauses that never match.
        most = int((missing + np.bincount(by_clause[~wanted], minlength=clauses)).max(initial=0))
        counters = np.ones(-(-clauses // _TOGETHER) * _TOGETHER, np.uint8 if most < 2**8 else np.int64)
        counters[:clauses] = missing
        self._arrays = CountingArrays(
            numbers=read_only(table.numbers),
            registration=read_only(table.clause_registration.astype(np.int32)),
            missing=read_only(counters),
            table_start=read_only(tables.start),
            bounds=read_only(tables.keys),
            bound_start=read_only(tables.run_start),
            bound_clauses=read_only(tables.clauses),
            met_start=read_only(met.clause_start),
            met_clauses=read_only(met.clauses),
            unmet_start=read_only(unmet.clause_start),
            unmet_clauses=read_only(unmet.clauses),
        )

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    def match(self, batch: pa.RecordBatch) -> Matches:
        columns = BatchColumns(batch)
        values, there = columns.fill(self._programs, self._literals)
        held = self._needs.evaluate(columns)
        return Matches(
            *count(self._arrays, self._needs.count, columns.rows, values, there, held.start, held.needs)
        )


class _Runs(NamedTuple):
    """Clauses by key, keys by group, groups by section."""

    start: Integers  # group -> its first key; one more than there are groups
    keys: Integers  # distinct and ascending in each group
    run_start: Integers  # key -> its first clause; one more than there are keys
    clauses: NDArray[np.uint16]  # by their place in the section
    clause_start: Integers  # group -> its first clause; one more than there are groups


def _predicates(table: ClauseTable) -> tuple[Integers, Integers, Integers]:
    """The predicates of all terms: the table of each, its bound, and its clause."""
    low, high = table.term_bounds[:, 0], table.term_bounds[:, 1]
    clause = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
    equal = low == high
    upper = ~equal & (high != HIGHEST_KEY)
    lower = ~equal & ((low != LOWEST_KEY) | ~upper)  # also a term that any value satisfies
    chosen = ((_EQUAL, equal, low), (_LOWER, lower, low), (_UPPER, upper, high))
    return (
        np.concatenate([3 * table.term_dimension[rows] + sort for sort, rows, _ in chosen]),
        np.concatenate([bound[rows] for _, rows, bound in chosen]),
        np.concatenate([clause[rows] for _, rows, _ in chosen]),
    )


def _runs(sections: int, groups: int, group: Integers, key: Integers, clause: Integers) -> _Runs:
    group = clause // SECTION * groups + group
    order = np.lexsort((key, group))
    group, key = group[order], key[order]
    first = np.ones(len(group), np.bool_)
    first[1:] = (group[1:] != group[:-1]) | (key[1:] != key[:-1])
    at = np.flatnonzero(first)
    every = np.arange(sections * groups + 1)
    return _Runs(
        start=np.searchsorted(group[at], every),
        keys=key[at],
        run_start=np.append(at, len(group)),
        clauses=(clause[order] % SECTION).astype(np.uint16),
        clause_start=np.searchsorted(group, every),
    )


@compiled
def _first_from(bounds: Integers, low: int, high: int, value: int) -> int:
    """The first place in bounds[low:high] whose bound is at least `value`; `high` where there is none."""
    return low + int(np.searchsorted(bounds[low:high], value))


@compiled
def _copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    # In Numba, an assignment to a slice is ten times slower.
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
    # Hot: nearly all of the time is spent here. The places are unsigned, because Numba tests signed ones.
    for i in range(len(clauses)):
        missing[clauses[i]] += step


@compiled
def _tick_values(
    arrays: CountingArrays,
    section: int,
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
        table = 3 * (section * dimensions + dimension)
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
    sections = (clauses + SECTION - 1) // SECTION
    buffer = np.empty(min(SECTION, len(arrays.missing)), arrays.missing.dtype)
    full = np.zeros(_TOGETHER, np.uint8)
    full_words = full.view(np.uint64)
    last_row = np.full(len(arrays.numbers), -1, np.int32)  # in which each registration has matched
    offsets = np.zeros(rows + 1, np.int64)
    numbers = np.empty(max(256, 4 * rows), np.int64)
    found = 0
    for row in range(rows):
        for section in range(sections):
            first_clause = section * SECTION
            missing = buffer[: min(SECTION, len(arrays.missing) - first_clause)]
            _copy(arrays.missing[first_clause : first_clause + len(missing)], missing)
            _tick_values(arrays, section, row, rows, values, there, missing)
            for i in range(held_start[row], held_start[row + 1]):
                need = section * pool + held_needs[i]
                met = arrays.met_clauses[arrays.met_start[need] : arrays.met_start[need + 1]]
                _tick(missing, met, -1)
                unmet = arrays.unmet_clauses[arrays.unmet_start[need] : arrays.unmet_start[need + 1]]
                _tick(missing, unmet, 1)
            for first in range(0, len(missing), _TOGETHER):
                counters = missing[first : first + _TOGETHER]
                for i in range(_TOGETHER):  # without a branch, so that LLVM vectorises it
                    full[i] = counters[i] == 0
                if not _any(full_words):
                    continue
                if found + _TOGETHER > len(numbers):
                    larger = np.empty(2 * len(numbers), np.int64)
                    larger[:found] = numbers[:found]
                    numbers = larger
                for i in range(_TOGETHER):
                    if full[i] != 0:
                        registration = arrays.registration[first_clause + first + i]
                        if last_row[registration] != row:
                            last_row[registration] = row
                            numbers[found] = arrays.numbers[registration]
                            found += 1
        offsets[row + 1] = found
    return offsets, numbers[:found]
