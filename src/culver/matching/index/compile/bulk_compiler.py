"""Many subscriptions of one form at once: a prepared filter and a column of values for each parameter.

    a >= ? AND a < ? AND s = ?             clause 0: (a, numbers)    lower: column 0   upper: column 1
                                                     (s, strings)    lower: column 2   upper: column 2

A conjunction of comparisons, or a disjunction of those, is worked out column by column: each bound becomes keys,
several bounds on one side of an attribute become their maximum or minimum, and all rows have the same clauses with
the same dimensions. Rows that may come out differently (a bound beyond 2^53, a range that is empty, two clauses that
are equal, the empty string as a bound) are odd: `Prepared.bind` and the compiler work them out one by one, as they do
every row of any other filter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.errors import InvalidFilter, TooLarge
from culver.jit import Integers, Reals
from culver.matching.index.compile.clause_table import ClauseTable, Dimension
from culver.matching.index.compile.compiler import LINE_OF_DOMAIN, Entry, compile_entries
from culver.matching.index.compile.key_lines import EXACT, HIGHEST_KEY, LOWEST_KEY, lower_keys, upper_keys
from culver.matching.index.compile.parameter_columns import ParameterColumn, Values, column_of
from culver.model import EARLIEST, LATEST, Domain, normalise_text
from culver.model.language import (
    And,
    Attribute,
    Comparison,
    Condition,
    Literal,
    Operator,
    Or,
    Parameter,
    Predicate,
    Prepared,
)

# Rows worked on at a time, so that what lies between input and output stays in the cache.
_ROWS_AT_A_TIME = 1 << 15

Rows = slice | Integers

_LOWER = {Operator.EQUAL: True, Operator.GREATER_OR_EQUAL: True, Operator.GREATER: False}
_UPPER = {Operator.EQUAL: True, Operator.LESS_OR_EQUAL: True, Operator.LESS: False}

# The characters that a value takes in the text of a filter, with a space on each side.
_LONGEST = {Domain.NUMBER: 26, Domain.BOOLEAN: 7, Domain.TIMESTAMP: 44}


@dataclass(frozen=True, slots=True)
class KeySource:
    """The values of a parameter, or the one value of a literal, and how they become keys.

    For strings, `moved` has the places of the distinct ones among the literals of the table, and `odd` marks those
    that have none."""

    domain: Domain
    values: NDArray[Any]
    moved: Integers
    odd: NDArray[np.bool_]

    def lower(self, rows: Rows, closed: bool) -> Integers:
        if self.domain is Domain.NUMBER:
            return lower_keys(self._reals(rows), closed)
        return self._integers(rows) + (0 if closed else 1)

    def upper(self, rows: Rows, closed: bool) -> Integers:
        if self.domain is Domain.NUMBER:
            return upper_keys(self._reals(rows), closed)
        return self._integers(rows) - (0 if closed else 1)

    def odd_rows(self, rows: Rows) -> NDArray[np.bool_] | bool:
        """Mark the values that have no such keys, or none that can be trusted."""
        if self.domain is Domain.NUMBER:
            return np.logical_not(np.abs(self._reals(rows)) < EXACT)  # NaN is not below either
        if self.domain is Domain.STRING:
            return np.take(self.odd, self._at(rows))
        if self.domain is Domain.TIMESTAMP:
            moments = self._integers(rows)
            return (moments < EARLIEST) | (moments > LATEST)
        return False

    def _reals(self, rows: Rows) -> Reals:
        return self._at(rows).astype(np.float64, copy=False)

    def _integers(self, rows: Rows) -> Integers:
        """The keys of the values: those of strings leave one free on each side (see `bounds`)."""
        if self.domain is Domain.STRING:
            return 2 * np.take(self.moved, self._at(rows)) + 1
        return self._at(rows).astype(np.int64, copy=False)

    def _at(self, rows: Rows) -> NDArray[Any]:
        return self.values if len(self.values) == 1 else self.values[rows]


@dataclass(slots=True)
class TermPlan:
    """Bounds on one dimension, each with whether it is closed."""

    dimension: int
    lower: list[tuple[KeySource, bool]] = field(default_factory=list)
    upper: list[tuple[KeySource, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BulkPlan:
    dimensions: tuple[Dimension, ...]
    literals: tuple[bytes, ...]
    sources: list[KeySource]
    clauses: list[list[TermPlan]]
    """Terms ascend by dimension."""

    @property
    def may_leave_literals(self) -> bool:
        """Whether a literal may not be a bound in the end, because another one is narrower."""
        return bool(self.literals) and any(
            len(term.lower) > 1 or len(term.upper) > 1 for clause in self.clauses for term in clause
        )


def compiles_by_column(prepared: Prepared) -> bool:
    """Whether rows of this filter can be compiled together; otherwise each costs what a filter of its own does."""
    return _conjunctions(prepared.condition) is not None


def plan_of(prepared: Prepared, columns: list[ParameterColumn]) -> BulkPlan | None:
    """Plan how to work the rows out together; None where that cannot be done."""
    conjunctions = _conjunctions(prepared.condition)
    if conjunctions is None:
        return None
    longest = _longest_string(prepared, columns)
    if longest is None:
        return None
    known = list(columns)
    leaves: list[list[tuple[Dimension, Operator, int]]] = []  # the last is a place in `known`
    for conjunction in conjunctions:
        leaves.append([])
        for attribute, operator, value in conjunction:
            place = value.number if isinstance(value, Parameter) else len(known)
            if place == len(known):
                known.append(column_of([value]))
            domain = known[place].domain
            if domain is None or (domain is Domain.BOOLEAN and operator is not Operator.EQUAL):
                return None
            leaves[-1].append(((attribute, LINE_OF_DOMAIN[domain]), operator, place))
        lines = dict(dimension for dimension, _, _ in leaves[-1])
        if any(lines[attribute] is not line for (attribute, line), _, _ in leaves[-1]):
            return None  # one attribute compared with two types: no match, or something to refuse
    sources, literals = _sources(known, longest)
    dimensions = sorted({dimension for clause in leaves for dimension, _, _ in clause})
    clauses = []
    for clause in leaves:
        terms = {place: TermPlan(place) for place in sorted(dimensions.index(leaf[0]) for leaf in clause)}
        for dimension, operator, place in clause:
            term = terms[dimensions.index(dimension)]
            if operator in _LOWER:
                term.lower.append((sources[place], _LOWER[operator]))
            if operator in _UPPER:
                term.upper.append((sources[place], _UPPER[operator]))
        clauses.append(list(terms.values()))
    return BulkPlan(tuple(dimensions), literals, sources, clauses)


def _conjunctions(condition: Condition) -> list[list[tuple[str, Operator, Any]]] | None:
    """The comparisons of a disjunction of conjunctions; None where the condition is anything else."""
    result: list[list[tuple[str, Operator, Any]]] = []
    for alternative in condition.conditions if isinstance(condition, Or) else (condition,):
        result.append([])
        for part in alternative.conditions if isinstance(alternative, And) else (alternative,):
            match part:
                case Comparison(operator, Attribute(name), Literal(value)):
                    if operator is Operator.NOT_EQUAL:
                        return None
                    result[-1].append((name, operator, value))
                case _:
                    return None
    return result


def _longest_string(prepared: Prepared, columns: list[ParameterColumn]) -> int | None:
    """The length up to which strings keep every text within the limit; None where other values may exceed it."""
    room = prepared.settings.max_length - len(prepared.text)
    room -= sum(_LONGEST.get(column.domain, 0) for column in columns if column.domain is not None)
    strings = sum(column.domain is Domain.STRING for column in columns)
    if room < 0:
        return None
    return room if strings == 0 else (room // strings - 4) // 2  # every character may be a quote


def _sources(columns: list[ParameterColumn], longest: int) -> tuple[list[KeySource], tuple[bytes, ...]]:
    """The columns as sources, and the literals that they refer to, sorted. Strings that are empty (as bounds they
    have rules of their own) or longer than `longest` are odd."""
    encoded = [_encoded(column, longest) for column in columns]
    literals = sorted({text for texts in encoded for text in texts if text is not None})
    place = {text: i for i, text in enumerate(literals)}
    sources = []
    for column, texts in zip(columns, encoded, strict=True):
        assert column.domain is not None
        moved = np.array([0 if text is None else place[text] for text in texts], np.int64)
        odd = np.array([text is None for text in texts], np.bool_)
        sources.append(KeySource(column.domain, column.values, moved, odd))
    return sources, tuple(literals)


def _encoded(column: ParameterColumn, longest: int) -> list[bytes | None]:
    used = np.zeros(len(column.distinct), np.bool_)
    if column.distinct:
        used[column.values] = True
    texts = zip(column.distinct, used.tolist(), strict=True)
    return [_normal(text) if seen and 0 < len(text) <= longest else None for text, seen in texts]


def _normal(text: str) -> bytes | None:
    try:
        return normalise_text(text).encode()
    except ValueError:
        return None


def compile_rows(
    prepared: Prepared, numbers: Integers, columns: Sequence[Values], since: Integers | int = 0
) -> ClauseTable:
    """Compile the registrations `numbers` (distinct, in any order). The i-th is `prepared` with the values
    `columns[0][i]`, `columns[1][i]`, ...; the result is the one that `compile_entries` gives.

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

    def one_by_one(rows: Integers) -> ClauseTable:
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
        # Bind one of the regular rows: where the settings refuse it, they refuse all.
        row = regular[:1] if order is None else order[regular[:1]]
        _bind(prepared, [source.originals(row)[0] for source in sources], int(row[0]))
    if len(regular) < count:
        rows = np.flatnonzero(odd) if order is None else order[odd]
        return ClauseTable.joined([table.select_registrations(~odd), one_by_one(rows)])
    return ClauseTable.joined([table]) if plan.may_leave_literals else table


def _bind(prepared: Prepared, values: Sequence[Any], row: int) -> Predicate:
    try:
        return prepared.bind(values)
    except (InvalidFilter, TooLarge) as exc:
        raise type(exc)(exc.message, field=exc.field, **exc.details, row=row) from exc


def _vectorised(
    plan: BulkPlan, numbers: Integers, since: Integers, order: Integers | None
) -> tuple[ClauseTable, NDArray[np.bool_]]:
    """The table of all rows taken in `order`, and which of its registrations are odd: their clauses are wrong.

    The first clauses of all rows come first, one row after another, then the second ones, and so on.
    """
    count = len(numbers)
    widths = [len(clause) for clause in plan.clauses]
    bounds = np.empty((count * sum(widths), 2), np.int64)
    term_dimension = np.empty(len(bounds), np.int64)
    term_start = np.empty(count * len(widths) + 1, np.int64)
    by_clause = []
    begin = 0
    for place, (clause, width) in enumerate(zip(plan.clauses, widths, strict=True)):
        end = begin + count * width
        by_clause.append(bounds[begin:end].reshape(count, width, 2))
        term_dimension[begin:end].reshape(count, width)[:] = [term.dimension for term in clause]
        term_start[place * count : (place + 1) * count] = np.arange(begin, end, width)
        begin = end
    term_start[-1] = begin
    odd = np.zeros(count, np.bool_)
    for first in range(0, count, _ROWS_AT_A_TIME):
        some = slice(first, min(first + _ROWS_AT_A_TIME, count))
        rows = some if order is None else order[some]
        _fill(plan, rows, [bounds[some] for bounds in by_clause], odd[some])
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


def _fill(plan: BulkPlan, rows: Rows, by_clause: list[Integers], odd: NDArray[np.bool_]) -> None:
    """Fill in the bounds of each clause, an array of the shape (rows, terms, 2), and mark the odd rows."""
    for source in plan.sources:
        odd |= source.odd_rows(rows)
    for clause, bounds in zip(plan.clauses, by_clause, strict=True):
        for place, term in enumerate(clause):
            low, high = _bounds(term, rows)
            bounds[:, place, 0], bounds[:, place, 1] = low, high
            odd |= low > high
    for one, other in combinations(range(len(by_clause)), 2):
        if [term.dimension for term in plan.clauses[one]] == [term.dimension for term in plan.clauses[other]]:
            odd |= (by_clause[one] == by_clause[other]).all(axis=(1, 2))


def _bounds(term: TermPlan, rows: Rows) -> tuple[Integers, Integers]:
    lows = [source.lower(rows, closed) for source, closed in term.lower]
    highs = [source.upper(rows, closed) for source, closed in term.upper]
    low = reduce(np.maximum, lows) if lows else np.array([LOWEST_KEY])
    high = reduce(np.minimum, highs) if highs else np.array([HIGHEST_KEY])
    return low, high
