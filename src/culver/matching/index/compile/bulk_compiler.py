"""Many subscriptions of one form at once: a prepared filter and a column of values for each parameter.

    a >= ? AND a < ? AND s = ?             clause 0: (a, numbers)    lower: column 0   upper: column 1
                                                     (s, strings)    lower: column 2   upper: column 2

A conjunction of comparisons, or a disjunction of those, is worked out column by column: each bound becomes
keys, several bounds on one side of an attribute become their maximum or minimum, and all rows have the same
clauses with the same dimensions. Whatever may come out differently from that (a bound beyond 2^53, a range
that is empty, two clauses that are equal, the empty string as a bound) is left to `Prepared.bind` and the
compiler, row by row; so are all rows of any other filter.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.errors import InvalidFilter, TooLarge
from culver.matching.index.compile.bulk_columns import Values, column_of
from culver.matching.index.compile.bulk_plan import Plan, Rows, Term, plan_of
from culver.matching.index.compile.clause_table import ClauseTable, concatenate, select_registrations
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import INT64_MAX, INT64_MIN
from culver.model.language import Predicate, Prepared

_CHUNK = 1 << 15  # rows worked on at a time, so that what lies between input and output stays in the cache


def compile_rows(
    prepared: Prepared,
    numbers: NDArray[np.int64],
    columns: Sequence[Values],
    since: NDArray[np.int64] | int = 0,
) -> ClauseTable:
    """The clauses of the registrations `numbers` (distinct, in any order), the i-th of which is `prepared`
    with the values `columns[0][i]`, `columns[1][i]`, ...; the same as `compile_entries` gives for them.

    A column holds reals, integers, booleans, strings or moments (`datetime64`, or Arrow timestamps with a time
    zone), as an array of either kind or as a sequence. Raises as `Prepared.bind` does, with `row` in the details.
    """
    numbers = np.asarray(numbers, np.int64)
    count = len(numbers)
    if len(columns) != prepared.parameters:
        number = min(len(columns), prepared.parameters) + 1
        raise InvalidFilter(
            f"parameter {number}: {len(columns)} columns for {prepared.parameters} parameters",
            field="filter",
            parameter=number,
        )
    if any(len(column) != count for column in columns):
        raise ValueError(f"every column must have {count} values, one for each number")
    starting = np.broadcast_to(np.asarray(since, np.int64), count)
    sources = [column_of(column) for column in columns]

    def one_by_one(rows: NDArray[np.int64]) -> ClauseTable:
        values = (
            zip(*(source.originals(rows) for source in sources), strict=True) if sources else [()] * len(rows)
        )
        return compile_entries(
            Entry(number, _bind(prepared, row, place), position)
            for place, number, position, row in zip(
                rows.tolist(), numbers[rows].tolist(), starting[rows].tolist(), values, strict=True
            )
        )

    plan = plan_of(prepared, sources)
    if plan is None:
        return one_by_one(np.arange(count))
    order = None if np.all(numbers[1:] > numbers[:-1]) else np.argsort(numbers)
    table, odd = _vectorised(plan, numbers, starting, order)
    regular = np.flatnonzero(~odd)
    if len(regular):
        # A row that is like all the others: what the settings refuse, they refuse here.
        row = regular[:1] if order is None else order[regular[:1]]
        _bind(prepared, [source.originals(row)[0] for source in sources], int(row[0]))
    if len(regular) < count:
        rows = np.flatnonzero(odd) if order is None else order[odd]
        return concatenate([select_registrations(table, ~odd), one_by_one(rows)])[0]
    return concatenate([table])[0] if plan.may_leave_literals else table


def _bind(prepared: Prepared, values: Sequence[Any], row: int) -> Predicate:
    try:
        return prepared.bind(values)
    except (InvalidFilter, TooLarge) as exc:
        raise type(exc)(exc.message, field=exc.field, **exc.details, row=row) from exc


def _vectorised(
    plan: Plan, numbers: NDArray[np.int64], since: NDArray[np.int64], order: NDArray[np.int64] | None
) -> tuple[ClauseTable, NDArray[np.bool_]]:
    """The table of all rows taken in `order`, and which of its registrations are odd: their clauses are wrong.

    The clauses lie one row after another, first of all the first clauses, then the second ones, and so on.
    """
    count = len(numbers)
    widths = [len(clause) for clause in plan.clauses]
    bounds = np.empty((count * sum(widths), 2), np.int64)
    term_dimension = np.empty(len(bounds), np.int64)
    term_start = np.empty(count * len(widths) + 1, np.int64)
    blocks = []
    begin = 0
    for place, (clause, width) in enumerate(zip(plan.clauses, widths, strict=True)):
        end = begin + count * width
        blocks.append(bounds[begin:end].reshape(count, width, 2))
        term_dimension[begin:end].reshape(count, width)[:] = [term.dimension for term in clause]
        term_start[place * count : (place + 1) * count] = np.arange(begin, end, width)
        begin = end
    term_start[-1] = begin
    odd = np.zeros(count, np.bool_)
    for first in range(0, count, _CHUNK):
        chunk = slice(first, min(first + _CHUNK, count))
        rows = chunk if order is None else order[chunk]
        _fill(plan, rows, [block[chunk] for block in blocks], odd[chunk])
    table = ClauseTable(
        numbers=numbers.copy() if order is None else numbers[order],
        since=since.copy() if order is None else since[order],
        clause_registration=np.arange(count) if len(widths) == 1 else np.tile(np.arange(count), len(widths)),
        term_start=term_start,
        term_dimension=term_dimension,
        term_bounds=bounds,
        need_start=np.zeros(len(term_start), np.int64),
        needs=np.empty(0, np.int64),
        dimensions=plan.dimensions,
        literals=plan.literals,
        pool=(),
    )
    return table, odd


def _fill(plan: Plan, rows: Rows, blocks: list[NDArray[np.int64]], odd: NDArray[np.bool_]) -> None:
    """The bounds of each clause, in an array of shape (rows, terms, 2), and the odd rows."""
    for source in plan.sources:
        odd |= source.odd_rows(rows)
    for clause, block in zip(plan.clauses, blocks, strict=True):
        for place, term in enumerate(clause):
            low, high = _bounds(term, rows)
            block[:, place, 0], block[:, place, 1] = low, high
            odd |= low > high
    for one, other in combinations(range(len(blocks)), 2):
        if [term.dimension for term in plan.clauses[one]] == [term.dimension for term in plan.clauses[other]]:
            odd |= (blocks[one] == blocks[other]).all(axis=(1, 2))


def _bounds(term: Term, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lows = [source.lower(rows, closed) for source, closed in term.lower]
    highs = [source.upper(rows, closed) for source, closed in term.upper]
    low = reduce(np.maximum, lows) if lows else np.array([INT64_MIN])
    high = reduce(np.minimum, highs) if highs else np.array([INT64_MAX])
    return low, high
