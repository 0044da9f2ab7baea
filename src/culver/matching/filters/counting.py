"""The counting algorithm of SIENA, as StreamHub uses it (section 4.2.1): the published baseline.

    attribute -> table        =    value -> predicates             a dictionary
                              > >= (value, openness) ascending     those up to the event's value hold
                              < <= (value, openness) ascending     those from the event's value on hold
                              rest predicates tested one by one    patterns, negations, lists, presence
    predicate -> clauses      equal predicates are stored once
    clause    -> counter      matches when as many of its predicates hold as it has

A range counts as two predicates, one for each bound, as in the paper. A subscription matches when one of
its clauses does. For each event only the tables of its own attributes are walked.
"""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from culver.matching.filter import Matches, matches_of
from culver.model.batch import event_at
from culver.model.evaluate import compute, constraint_holds_for_value
from culver.model.event import Event
from culver.model.predicate import (
    Clause,
    Computed,
    Contains,
    OneOf,
    Pattern,
    Predicate,
    Presence,
    Range,
)
from culver.model.values import Domain, Value, domain_of

_AT, _BESIDE = 0, 1  # whether a bound takes in its own value or only what lies beside it

_OfValue = Range | OneOf | Pattern | Contains | Presence
_Bound = tuple[Any, int]


@dataclass(frozen=True, slots=True)
class _Elements:
    """A clause taken apart into predicates that the tables hold; each counts once."""

    equal: list[OneOf]
    lower: list[tuple[Range, _Bound]]
    upper: list[tuple[Range, _Bound]]
    rest: set[_OfValue]
    computed: dict[str, Computed]

    @property
    def count(self) -> int:
        return len(self.equal) + len(self.lower) + len(self.upper) + len(self.rest) + len(self.computed)


def _take_apart(clause: Clause) -> _Elements:
    elements = _Elements([], [], [], set(), {})
    taken: set[tuple[str, str, Domain]] = set()
    for constraint in clause:
        match constraint:
            # A table counts a clause once per event, so a second bound of the same sort is tested apart.
            case Range(attribute, domain) if ("range", attribute, domain) not in taken:
                taken.add(("range", attribute, domain))
                if constraint.low is not None:
                    bound = constraint.low, _AT if constraint.low_closed else _BESIDE
                    elements.lower.append((constraint, bound))
                if constraint.high is not None:
                    bound = constraint.high, _AT if constraint.high_closed else -_BESIDE
                    elements.upper.append((constraint, bound))
            case OneOf(attribute, domain, negated=False) if ("equal", attribute, domain) not in taken:
                taken.add(("equal", attribute, domain))
                elements.equal.append(constraint)
            case Computed(comparison):
                # By its text: literals 1 and 1.0 are equal in Python, but not in arithmetic.
                elements.computed[repr(comparison)] = constraint
            case _:
                elements.rest.add(constraint)
    return elements


@dataclass(slots=True)
class _Sorted:
    """Predicates with one bound, sorted by it, and the clauses of each."""

    bounds: list[_Bound] = field(default_factory=list)
    clauses: list[set[int]] = field(default_factory=list)

    def add(self, bound: _Bound, clause: int) -> None:
        at = bisect.bisect_left(self.bounds, bound)
        if at == len(self.bounds) or self.bounds[at] != bound:
            self.bounds.insert(at, bound)
            self.clauses.insert(at, set())
        self.clauses[at].add(clause)

    def remove(self, bound: _Bound, clause: int) -> None:
        at = bisect.bisect_left(self.bounds, bound)
        self.clauses[at].discard(clause)
        if not self.clauses[at]:
            del self.bounds[at], self.clauses[at]


@dataclass(slots=True)
class _Table:
    """The predicates on one attribute and one domain."""

    equal: dict[Value, set[int]] = field(default_factory=dict)
    lower: _Sorted = field(default_factory=_Sorted)  # x > a is (a, BESIDE), x >= a is (a, AT)
    upper: _Sorted = field(default_factory=_Sorted)  # x < a is (a, -BESIDE), x <= a is (a, AT)

    def satisfied(self, value: Value) -> list[set[int]]:
        """The clauses of each predicate that holds for `value`."""
        found = [self.equal[value]] if value in self.equal else []
        if self.lower.bounds:
            found += self.lower.clauses[: bisect.bisect_right(self.lower.bounds, (value, _AT))]
        if self.upper.bounds:
            found += self.upper.clauses[bisect.bisect_left(self.upper.bounds, (value, _AT)) :]
        return found


class CountingFilter:
    def __init__(self) -> None:
        self._predicates: dict[int, Predicate] = {}
        self._clauses_of: dict[int, range] = {}  # subscription -> its clauses
        self._owner: dict[int, int] = {}  # clause -> its subscription
        self._wanted: dict[int, int] = {}  # clause -> how many predicates it has
        self._unconditional: set[int] = set()  # clauses without any
        self._tables: dict[str, dict[Domain, _Table]] = {}
        self._rest: dict[str, dict[_OfValue, set[int]]] = {}
        self._computed: dict[str, tuple[Computed, set[int]]] = {}
        self._next_clause = 0

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        for number, predicate in subscriptions:
            self.remove((number,))
            first = self._next_clause
            self._next_clause += len(predicate.clauses)
            self._predicates[number] = predicate
            self._clauses_of[number] = range(first, self._next_clause)
            for clause, constraints in zip(self._clauses_of[number], predicate.clauses, strict=True):
                self._owner[clause] = number
                self._enter(clause, _take_apart(constraints))

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            predicate = self._predicates.pop(number, None)
            if predicate is None:
                continue
            for clause, constraints in zip(self._clauses_of.pop(number), predicate.clauses, strict=True):
                self._leave(clause, _take_apart(constraints))
                del self._owner[clause], self._wanted[clause]

    def match(self, batch: pa.RecordBatch) -> Matches:
        return matches_of([self._match_event(event_at(batch, row)) for row in range(batch.num_rows)])

    def __len__(self) -> int:
        return len(self._predicates)

    def _match_event(self, event: Event) -> list[int]:
        counters: dict[int, int] = {}
        matched = {self._owner[clause] for clause in self._unconditional}
        for clauses in self._satisfied(event):
            for clause in clauses:
                count = counters.get(clause, 0) + 1
                counters[clause] = count
                if count == self._wanted[clause]:
                    matched.add(self._owner[clause])
        return sorted(matched)

    def _satisfied(self, event: Event) -> list[set[int]]:
        """The clauses of each predicate that the event satisfies, predicate by predicate."""
        found: list[set[int]] = []
        for attribute, tables in self._tables.items():
            value = event.value(attribute)
            if value is not None and (table := tables.get(domain_of(value))) is not None:
                found += table.satisfied(value)
        for attribute, rest in self._rest.items():
            value = event.value(attribute)
            found += [
                clauses
                for constraint, clauses in rest.items()
                if constraint_holds_for_value(constraint, value) is True
            ]
        found += [
            clauses
            for computed, clauses in self._computed.values()
            if compute(computed.comparison, event.value) is True
        ]
        return found

    def _enter(self, clause: int, elements: _Elements) -> None:
        self._wanted[clause] = elements.count
        if elements.count == 0:
            self._unconditional.add(clause)
        for one_of in elements.equal:
            equal = self._table(one_of).equal
            for value in one_of.values:
                equal.setdefault(value, set()).add(clause)
        for constraint, bound in elements.lower:
            self._table(constraint).lower.add(bound, clause)
        for constraint, bound in elements.upper:
            self._table(constraint).upper.add(bound, clause)
        for other in elements.rest:
            self._rest.setdefault(other.attribute, {}).setdefault(other, set()).add(clause)
        for text, computed in elements.computed.items():
            self._computed.setdefault(text, (computed, set()))[1].add(clause)

    def _leave(self, clause: int, elements: _Elements) -> None:
        self._unconditional.discard(clause)
        for one_of in elements.equal:
            equal = self._table(one_of).equal
            for value in one_of.values:
                equal[value].discard(clause)
                if not equal[value]:
                    del equal[value]
        for constraint, bound in elements.lower:
            self._table(constraint).lower.remove(bound, clause)
        for constraint, bound in elements.upper:
            self._table(constraint).upper.remove(bound, clause)
        for other in elements.rest:
            rest = self._rest[other.attribute]
            rest[other].discard(clause)
            if not rest[other]:
                del rest[other]
        for text in elements.computed:
            self._computed[text][1].discard(clause)
            if not self._computed[text][1]:
                del self._computed[text]

    def _table(self, constraint: Range | OneOf) -> _Table:
        return self._tables.setdefault(constraint.attribute, {}).setdefault(constraint.domain, _Table())
