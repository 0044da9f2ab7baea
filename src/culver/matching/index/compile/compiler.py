"""From predicates to a clause table.

Ranges, equalities and prefixes become terms. An `IN` over few values becomes one clause per value, so that each can
be found by its value; a clause of its own costs less than a set test on every event. Everything else (other patterns,
large sets, presence, lists, arithmetic) is a need, kept as text in the pool. A negation is the need that the
constraint does not hold, with a term that asks for a value of its type.

Most clauses of most filters are plain: every constraint is one term. One pass collects these, and the bounds of their
numbers become keys all together at the end.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace

from culver.jit import Integers
from culver.matching.index.compile.clause_table import ClauseTable, Dimension, run_starts, sort_terms
from culver.matching.index.compile.constraint_codec import constraint_to_text
from culver.matching.index.compile.key_lines import (
    EMPTY,
    EVERYTHING,
    EXACT,
    Interval,
    KeyLine,
    after_prefix,
    lower_keys,
    move_string_bounds,
    number_intervals,
    number_lines,
    real_key,
    string_interval,
    upper_keys,
)
from culver.model import COLUMNAR, Domain, Timestamp
from culver.model.language import (
    Between,
    Clause,
    Constraint,
    Contains,
    OneOf,
    Pattern,
    PatternShape,
    Predicate,
    Presence,
    domain_of_constraint,
)

# Clauses that the IN lists of one clause may become.
_MAX_ALTERNATIVES = 16

# For the hot loop: 2^53 as reals, because those compare fastest.
_LOWEST, _HIGHEST = -float(EXACT), float(EXACT)
_NUMBER, _PREFIX = Domain.NUMBER, PatternShape.PREFIX

LINE_OF_DOMAIN = {
    Domain.NUMBER: KeyLine.NUMBERS,
    Domain.STRING: KeyLine.STRINGS,
    Domain.BOOLEAN: KeyLine.BOOLEANS,
    Domain.TIMESTAMP: KeyLine.TIMESTAMPS,
    Domain.STRINGS: KeyLine.LISTS,
}

Term = tuple[int, Interval]  # dimension, bounds


@dataclass(frozen=True, slots=True)
class Entry:
    """A registration: its number, its predicate, the log position from which it is in effect, and the scheme that
    matches it. A scheme other than `columnar` keeps only `predicate.text`, and parses it again."""

    number: int
    predicate: Predicate
    since: int = 0
    scheme: str = COLUMNAR


def compile_entries(entries: Iterable[Entry]) -> ClauseTable:
    """Compile the clauses of all entries, whose numbers must be distinct."""
    builder = _Builder()
    ordered = sorted(entries, key=lambda entry: entry.number)
    for place, entry in enumerate(ordered):
        for clause in entry.predicate.clauses:
            builder.add(place, clause)
    return builder.table(ordered)


class _Builder:
    """Collects clauses. Dimensions and literals are numbered as they come, until `table` sorts them.

    term_dimensions    3    ~0    ~1     3     one for each term
    bounds          (7, 7)            (9, 9)   of terms with a dimension
    ranges               a >= 1  b < 2         of terms with a ~dimension, whose bounds `table` works out
    """

    def __init__(self) -> None:
        self._dimensions: dict[Dimension, int] = {}
        self._literals: dict[bytes, int] = {}
        self._pool: dict[str, int] = {}
        self._owners: list[int] = []
        self._term_counts: list[int] = []
        self._term_dimensions: list[int] = []
        self._bounds: list[Interval] = []
        self._ranges: list[Between] = []
        self._late_dimensions: dict[str, int] = {}  # ~dimension of an attribute on NUMBERS
        self._need_counts: list[int] = []
        self._needs: list[int] = []

    def add(self, place: int, clause: Clause) -> None:
        terms = len(self._term_dimensions), len(self._bounds), len(self._ranges)
        if self._add_plain(clause):
            self._owners.append(place)
            self._term_counts.append(len(clause))
            self._need_counts.append(0)
            return
        del self._term_dimensions[terms[0] :], self._bounds[terms[1] :], self._ranges[terms[2] :]
        self._add_any(place, clause)

    def _add_plain(self, clause: Clause) -> bool:
        """Hot. Add one term for each constraint; False, with some terms added, where the clause is not plain."""
        term_dimensions, ranges, late_dimensions = self._term_dimensions, self._ranges, self._late_dimensions
        last = None
        for constraint in clause:
            if isinstance(constraint, Between):
                attribute = constraint.attribute
                if constraint.domain is _NUMBER:
                    low: Any = constraint.low
                    high: Any = constraint.high
                    if (
                        attribute == last
                        or (low is not None and not _LOWEST < low < _HIGHEST)
                        or (high is not None and not _LOWEST < high < _HIGHEST)
                    ):
                        return False
                    last = attribute
                    dimension = late_dimensions.get(attribute)
                    if dimension is None:
                        dimension = late_dimensions[attribute] = ~self._dimension(attribute, KeyLine.NUMBERS)
                    term_dimensions.append(dimension)
                    ranges.append(constraint)
                    continue
                terms = self._range(constraint)
            elif isinstance(constraint, OneOf) and len(constraint.values) == 1 and not constraint.negated:
                attribute = constraint.attribute
                terms = self._point(attribute, constraint.values[0])
            elif isinstance(constraint, Pattern) and constraint.shape is _PREFIX and not constraint.negated:
                attribute = constraint.attribute
                terms = [self._prefix(attribute, constraint.text)]
            else:
                return False
            # A clause is sorted by attribute, so a second constraint on the same values comes next.
            if attribute == last or len(terms) != 1:
                return False
            last = attribute
            term_dimensions.append(terms[0][0])
            self._bounds.append(terms[0][1])
        return True

    def _add_any(self, place: int, clause: Clause) -> None:
        taken: dict[tuple[str, Domain], list[Term]] = {}
        needs: set[int] = set()
        alternatives = 1
        for constraint in clause:
            if (positive := _positive(constraint)) is not None:
                needs.add(~self._need(positive))
                continue
            options = self._options(constraint)
            if options is not None and alternatives * len(options[1]) <= _MAX_ALTERNATIVES:
                key, terms = options
                # A second constraint on the same values (the normal form merges what it can) is a need.
                if key not in taken:
                    taken[key] = terms
                    alternatives *= len(terms)
                    continue
            needs.add(self._need(constraint))
        for constraint in clause:
            # A negated constraint holds only where the attribute has a value of its type.
            if isinstance(constraint, OneOf | Pattern | Contains) and constraint.negated:
                key = constraint.attribute, domain_of_constraint(constraint)
                taken.setdefault(key, [(self._dimension(key[0], LINE_OF_DOMAIN[key[1]]), EVERYTHING)])
        for combination in itertools.product(*taken.values()):
            self._owners.append(place)
            self._term_counts.append(len(combination))
            for dimension, bounds in combination:
                self._term_dimensions.append(dimension)
                self._bounds.append(bounds)
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
        term_dimension = np.array(self._term_dimensions, np.int64)
        late = term_dimension < 0
        bounds = np.empty((len(term_dimension), 2), np.int64)
        bounds[late] = _number_bounds(self._ranges)
        bounds[~late] = np.array(self._bounds, np.int64).reshape(-1, 2)
        term_dimension = dimension_place[np.where(late, ~term_dimension, term_dimension)]
        is_string = np.array([line is KeyLine.STRINGS for _, line in dimensions], np.bool_)
        strings = np.flatnonzero(is_string[term_dimension])
        if len(strings):
            moved = move_string_bounds(bounds[strings, 0], bounds[strings, 1], literal_place)
            bounds[strings, 0], bounds[strings, 1] = moved
        return sort_terms(
            ClauseTable(
                numbers=np.array([entry.number for entry in ordered], np.int64),
                since=np.array([entry.since for entry in ordered], np.int64),
                clause_registration=np.array(self._owners, np.int64),
                term_start=run_starts(np.array(self._term_counts, np.int64)),
                term_dimension=term_dimension,
                term_bounds=bounds,
                need_start=run_starts(np.array(self._need_counts, np.int64)),
                needs=np.array(self._needs, np.int64),
                dimensions=tuple(dimensions),
                literals=tuple(literals),
                pool=tuple(self._pool),
            )
        )

    def _need(self, constraint: Constraint) -> int:
        # The text, not the constraint, is the key: 1 equals 1.0 in Python, but not in arithmetic.
        return self._pool.setdefault(constraint_to_text(constraint), len(self._pool))

    def _options(self, constraint: Constraint) -> tuple[tuple[str, Domain], list[Term]] | None:
        """The values that a constraint is about, and terms, one of which must hold; None: it is no interval."""
        match constraint:
            case Between(attribute, domain):
                return (attribute, domain), self._range(constraint)
            case OneOf(attribute, Domain.BOOLEAN as domain, values, negated):
                flags = [flag for flag in (False, True) if (flag in values) is not negated]
                return (attribute, domain), [term for flag in flags for term in self._point(attribute, flag)]
            case OneOf(attribute, domain, values):
                if len(values) > _MAX_ALTERNATIVES:
                    return None
                return (attribute, domain), [
                    term for value in values for term in self._point(attribute, value)
                ]
            case Pattern(attribute, PatternShape.PREFIX, text):
                return (attribute, Domain.STRING), [self._prefix(attribute, text)]
        return None

    def _range(self, constraint: Between) -> list[Term]:
        attribute, low, high = constraint.attribute, constraint.low, constraint.high
        closed = constraint.low_closed, constraint.high_closed
        if constraint.domain is Domain.STRING:
            places = self._literal(low), self._literal(high)
            interval = string_interval(places[0], closed[0], places[1], closed[1])
            return [(self._dimension(attribute, KeyLine.STRINGS), interval)]
        if constraint.domain is Domain.TIMESTAMP:
            interval, _ = number_intervals(_microseconds(low), closed[0], _microseconds(high), closed[1])
            return [(self._dimension(attribute, KeyLine.TIMESTAMPS), interval)]
        assert not isinstance(low, str | tuple | Timestamp)
        assert not isinstance(high, str | tuple | Timestamp)
        lines = number_lines(low, closed[0], high, closed[1])
        return [(self._dimension(attribute, line), interval) for line, interval in lines]

    def _point(self, attribute: str, value: int | float | str | bool | Timestamp) -> list[Term]:
        if isinstance(value, str):
            place = self._place(value.encode())
            return [(self._dimension(attribute, KeyLine.STRINGS), string_interval(place, True, place, True))]
        if isinstance(value, bool):
            return [(self._dimension(attribute, KeyLine.BOOLEANS), (int(value), int(value)))]
        if isinstance(value, Timestamp):
            moment = value.microseconds
            return [(self._dimension(attribute, KeyLine.TIMESTAMPS), (moment, moment))]
        if _LOWEST < value < _HIGHEST:
            key = real_key(value)
            return [(self._dimension(attribute, KeyLine.NUMBERS), (key, key))]
        lines = number_lines(value, True, value, True)
        return [(self._dimension(attribute, line), interval) for line, interval in lines]

    def _prefix(self, attribute: str, text: str) -> Term:
        first = text.encode()
        low, high = self._place(first), self._place(after_prefix(first))
        return self._dimension(attribute, KeyLine.STRINGS), string_interval(low, True, high, False)

    def _dimension(self, attribute: str, line: KeyLine) -> int:
        return self._dimensions.setdefault((attribute, line), len(self._dimensions))

    def _literal(self, value: object) -> int | None:
        return self._place(value.encode()) if isinstance(value, str) else None

    def _place(self, literal: bytes) -> int:
        return self._literals.setdefault(literal, len(self._literals))


def _number_bounds(ranges: list[Between]) -> Integers:
    """The bounds of ranges of numbers within 2^53, in keys."""
    # Integers within 2^53 are exact as reals, and None becomes NaN.
    lows = np.array([*map(attrgetter("low"), ranges)], np.float64)
    highs = np.array([*map(attrgetter("high"), ranges)], np.float64)
    bounds = np.empty((len(ranges), 2), np.int64)
    bounds[:, 0] = lower_keys(lows, np.array([*map(attrgetter("low_closed"), ranges)], np.bool_))
    bounds[:, 1] = upper_keys(highs, np.array([*map(attrgetter("high_closed"), ranges)], np.bool_))
    bounds[bounds[:, 0] > bounds[:, 1]] = EMPTY
    return bounds


def _positive(constraint: Constraint) -> Constraint | None:
    """The constraint that a negated one negates; None for the others."""
    match constraint:
        case OneOf(domain=Domain.BOOLEAN):
            return None  # it becomes the other value
        case OneOf(negated=True) | Pattern(negated=True) | Contains(negated=True):
            return replace(constraint, negated=False)
        case Presence(attribute, present=False):
            return Presence(attribute, True)
    return None


def _microseconds(value: object) -> int | None:
    return value.microseconds if isinstance(value, Timestamp) else None
