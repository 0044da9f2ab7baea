"""What a prepared filter asks of the columns of its parameters; see `bulk`."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.bulk_columns import Column, column_of
from culver.matching.index.compile.clause_table import Dimension
from culver.matching.index.compile.compiler import LINE_OF_DOMAIN
from culver.matching.index.compile.key_lines import EXACT, lower_keys, upper_keys
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
    Prepared,
)

Rows = slice | NDArray[np.int64]

_LOWER = {Operator.EQUAL: True, Operator.GREATER_OR_EQUAL: True, Operator.GREATER: False}
_UPPER = {Operator.EQUAL: True, Operator.LESS_OR_EQUAL: True, Operator.LESS: False}

# How many characters a value takes in the text of a filter, with a space on each side.
_LONGEST = {Domain.NUMBER: 26, Domain.BOOLEAN: 7, Domain.TIMESTAMP: 44}


@dataclass(frozen=True, slots=True)
class Source:
    """The values of a parameter, or the one value of a literal, and how they become keys."""

    domain: Domain
    values: NDArray[Any]
    moved: NDArray[np.int64]  # of strings: the places of the distinct ones among the literals of the table
    odd: NDArray[np.bool_]  # of strings: which of the distinct ones have none

    def lower(self, rows: Rows, closed: bool) -> NDArray[np.int64]:
        """The least keys above the values."""
        if self.domain is Domain.NUMBER:
            return lower_keys(self._reals(rows), closed)
        return self._integers(rows) + (0 if closed else 1)

    def upper(self, rows: Rows, closed: bool) -> NDArray[np.int64]:
        """The greatest keys below the values."""
        if self.domain is Domain.NUMBER:
            return upper_keys(self._reals(rows), closed)
        return self._integers(rows) - (0 if closed else 1)

    def odd_rows(self, rows: Rows) -> NDArray[np.bool_] | bool:
        """Which values have no such keys, or none that can be trusted."""
        if self.domain is Domain.NUMBER:
            return np.logical_not(np.abs(self._reals(rows)) < EXACT)  # NaN is not below either
        if self.domain is Domain.STRING:
            return np.take(self.odd, self._at(rows))
        if self.domain is Domain.TIMESTAMP:
            moments = self._integers(rows)
            return (moments < EARLIEST) | (moments > LATEST)
        return False

    def _reals(self, rows: Rows) -> NDArray[np.float64]:
        return self._at(rows).astype(np.float64, copy=False)

    def _integers(self, rows: Rows) -> NDArray[np.int64]:
        """The keys of the values: those of strings leave one free on each side (see `bounds`)."""
        if self.domain is Domain.STRING:
            return 2 * np.take(self.moved, self._at(rows)) + 1
        return self._at(rows).astype(np.int64, copy=False)

    def _at(self, rows: Rows) -> NDArray[Any]:
        return self.values if len(self.values) == 1 else self.values[rows]


@dataclass(slots=True)
class Term:
    """Bounds on one dimension, each with whether it is closed."""

    dimension: int
    lower: list[tuple[Source, bool]] = field(default_factory=list)
    upper: list[tuple[Source, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    dimensions: tuple[Dimension, ...]
    literals: tuple[bytes, ...]
    sources: list[Source]
    clauses: list[list[Term]]  # ascending by dimension

    @property
    def may_leave_literals(self) -> bool:
        """Whether a literal may not be a bound in the end, because another one is narrower."""
        return bool(self.literals) and any(
            len(term.lower) > 1 or len(term.upper) > 1 for clause in self.clauses for term in clause
        )


def compiles_by_column(prepared: Prepared) -> bool:
    """Whether rows may be worked out together at all; otherwise each costs what a filter of its own does."""
    return _conjunctions(prepared.condition) is not None


def plan_of(prepared: Prepared, columns: list[Column]) -> Plan | None:
    """How to work the rows out together; None where it cannot be done."""
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
            return None  # compared with two types: nothing matches, or there is something to refuse
    sources, literals = _sources(known, longest)
    dimensions = sorted({dimension for clause in leaves for dimension, _, _ in clause})
    clauses = []
    for clause in leaves:
        terms = {place: Term(place) for place in sorted(dimensions.index(leaf[0]) for leaf in clause)}
        for dimension, operator, place in clause:
            term = terms[dimensions.index(dimension)]
            if operator in _LOWER:
                term.lower.append((sources[place], _LOWER[operator]))
            if operator in _UPPER:
                term.upper.append((sources[place], _UPPER[operator]))
        clauses.append(list(terms.values()))
    return Plan(tuple(dimensions), literals, sources, clauses)


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


def _longest_string(prepared: Prepared, columns: list[Column]) -> int | None:
    """The length up to which strings keep the text of every row within the limit; None where other values may
    exceed it already."""
    room = prepared.settings.max_length - len(prepared.text)
    room -= sum(_LONGEST.get(column.domain, 0) for column in columns if column.domain is not None)
    strings = sum(column.domain is Domain.STRING for column in columns)
    if room < 0:
        return None
    return room if strings == 0 else (room // strings - 4) // 2  # every character may be a quote


def _sources(columns: list[Column], longest: int) -> tuple[list[Source], tuple[bytes, ...]]:
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
        sources.append(Source(column.domain, column.values, moved, odd))
    return sources, tuple(literals)


def _encoded(column: Column, longest: int) -> list[bytes | None]:
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
