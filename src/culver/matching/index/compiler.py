"""From predicates to a clause table.

Ranges, equalities and prefixes become terms. An `IN` over few values becomes one clause per value, so that
each can be found by its value; a clause of its own costs less than a set test on every event. All else
(other patterns, negations, large sets, presence, lists, arithmetic) is a need, kept as text in the pool.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from culver.matching.index.bounds import (
    EMPTY,
    Interval,
    after_prefix,
    move_string_bounds,
    number_intervals,
    number_point,
    string_interval,
)
from culver.matching.index.codec import constraint_to_text
from culver.matching.index.table import ClauseTable, Dimension, sort_terms, starts
from culver.model.predicate import Clause, Constraint, OneOf, Pattern, PatternShape, Predicate, Range
from culver.model.values import Domain, Timestamp

_MAX_ALTERNATIVES = 16  # clauses that the IN lists of one clause may become

Bounds = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A registration: its number, what it asks for, and the log position from which it is in effect."""

    number: int
    predicate: Predicate
    since: int = 0


def compile_entries(entries: Iterable[Entry]) -> ClauseTable:
    """The clauses of all entries. The numbers must be distinct."""
    builder = _Builder()
    ordered = sorted(entries, key=lambda entry: entry.number)
    for place, entry in enumerate(ordered):
        for clause in entry.predicate.clauses:
            builder.add(place, clause)
    return builder.table(ordered)


class _Builder:
    """Collects clauses; dimensions and literals take their first-seen places until `table` sorts them."""

    def __init__(self) -> None:
        self._dimensions: dict[Dimension, int] = {}
        self._literals: dict[bytes, int] = {}
        self._pool: dict[str, int] = {}
        self._owners: list[int] = []
        self._term_counts: list[int] = []
        self._term_dimensions: list[int] = []
        self._bounds: list[Bounds] = []
        self._need_counts: list[int] = []
        self._needs: list[int] = []

    def add(self, place: int, clause: Clause) -> None:
        terms: dict[int, list[Bounds]] = {}
        needs: set[int] = set()
        alternatives = 1
        for constraint in clause:
            options = self._options(constraint)
            if options is not None and alternatives * len(options[1]) <= _MAX_ALTERNATIVES:
                dimension, bounds = options
                # A second constraint on a dimension (the normal form merges what it can) stays as it is.
                if dimension not in terms:
                    terms[dimension] = bounds
                    alternatives *= len(bounds)
                    continue
            # The text, not the constraint, is the key: 1 equals 1.0 in Python, but not in arithmetic.
            needs.add(self._pool.setdefault(constraint_to_text(constraint), len(self._pool)))
        for combination in itertools.product(*terms.values()):
            self._owners.append(place)
            self._term_counts.append(len(terms))
            self._term_dimensions.extend(terms)
            self._bounds.extend(combination)
            self._need_counts.append(len(needs))
            self._needs.extend(needs)

    def table(self, ordered: list[Entry]) -> ClauseTable:
        dimensions, literals = sorted(self._dimensions), sorted(self._literals)
        dimension_place = np.empty(len(dimensions), np.int64)
        for place, dimension in enumerate(dimensions):
            dimension_place[self._dimensions[dimension]] = place
        literal_place = np.empty(len(literals), np.int64)
        for place, literal in enumerate(literals):
            literal_place[self._literals[literal]] = place
        term_dimension = dimension_place[np.array(self._term_dimensions, np.int64)]
        bounds = np.array(self._bounds, np.int64).reshape(-1, 4)
        is_string = np.array([domain is Domain.STRING for _, domain in dimensions], np.bool_)
        strings = np.flatnonzero(is_string[term_dimension])
        if len(strings):
            moved = move_string_bounds(bounds[strings, 0], bounds[strings, 1], literal_place)
            bounds[strings, 0], bounds[strings, 1] = moved
        return sort_terms(
            ClauseTable(
                numbers=np.array([entry.number for entry in ordered], np.int64),
                since=np.array([entry.since for entry in ordered], np.int64),
                clause_registration=np.array(self._owners, np.int64),
                term_start=starts(np.array(self._term_counts, np.int64)),
                term_dimension=term_dimension,
                term_bounds=bounds,
                need_start=starts(np.array(self._need_counts, np.int64)),
                needs=np.array(self._needs, np.int64),
                dimensions=tuple(dimensions),
                literals=tuple(literals),
                pool=tuple(self._pool),
            )
        )

    def _options(self, constraint: Constraint) -> tuple[int, list[Bounds]] | None:
        """The dimension and the intervals, one of which must hold; None: not to be said with intervals."""
        match constraint:
            case Range(attribute, domain, low, low_closed, high, high_closed):
                if domain is Domain.STRING:
                    places = self._literal(low), self._literal(high)
                    bounds = _single(string_interval(places[0], low_closed, places[1], high_closed))
                elif domain is Domain.TIMESTAMP:
                    moments = _microseconds(low), _microseconds(high)
                    bounds = _single(number_intervals(moments[0], low_closed, moments[1], high_closed)[0])
                else:
                    assert not isinstance(low, str | tuple | Timestamp)
                    assert not isinstance(high, str | tuple | Timestamp)
                    integers, reals = number_intervals(low, low_closed, high, high_closed)
                    bounds = (*integers, *reals)
                return self._dimension(attribute, domain), [bounds]
            case OneOf(attribute, domain, values, negated):
                if domain is Domain.BOOLEAN:
                    allowed = [flag for flag in (False, True) if (flag in values) is not negated]
                    return self._dimension(attribute, domain), [_single((flag, flag)) for flag in allowed]
                if negated or len(values) > _MAX_ALTERNATIVES:
                    return None
                return self._dimension(attribute, domain), [self._point(value) for value in values]
            case Pattern(attribute, PatternShape.PREFIX, text, negated=False):
                low_place = self._literal(text)
                high_place = self._place(after_prefix(text.encode()))
                interval = string_interval(low_place, True, high_place, False)
                return self._dimension(attribute, Domain.STRING), [_single(interval)]
        return None

    def _point(self, value: int | float | str | Timestamp) -> Bounds:
        if isinstance(value, str):
            place = self._literal(value)
            return _single(string_interval(place, True, place, True))
        if isinstance(value, Timestamp):
            return _single(number_point(value.microseconds)[0])
        integers, reals = number_point(value)
        return (*integers, *reals)

    def _dimension(self, attribute: str, domain: Domain) -> int:
        return self._dimensions.setdefault((attribute, domain), len(self._dimensions))

    def _literal(self, value: object) -> int | None:
        return self._place(value.encode()) if isinstance(value, str) else None

    def _place(self, literal: bytes) -> int:
        return self._literals.setdefault(literal, len(self._literals))


def _single(interval: Interval) -> Bounds:
    return (*interval, *EMPTY)


def _microseconds(value: object) -> int | None:
    return value.microseconds if isinstance(value, Timestamp) else None
