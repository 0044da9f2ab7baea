"""The subscriptions of a workload without their texts: parsing a million filters would take minutes.

W1 and W2 are drawn as forms, subscriptions that differ only in their values:

    form        a >= ? AND a < ? AND ...         one for W1, five for W2
    numbers     0      1      2     ...          the numbers of the subscriptions
    columns     12.5   83.1   401.7 ...          one for each `?`

Filters take them as predicates or in columns; baselines put the columns into arrays and tables of their own. No two
subscriptions of W3 have the same form, so W3 is drawn as predicates only; each distinct constraint is parsed once.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.bench.workloads import Workload
from culver.bench.workloads.news import NewsWorkload
from culver.bench.workloads.quotes import QuotesWorkload, market
from culver.bench.workloads.uniform_ranges import ATTRIBUTES, RangesWorkload
from culver.errors import InvalidConfiguration
from culver.model import Domain
from culver.model.language import Between, Constant, Constraint, OneOf, Predicate, parse

_ANYTHING = Constant(True)


@dataclass(frozen=True, slots=True)
class Bound:
    """`attribute operator ?`; the operator is one of = >= < <=, and no attribute has two of one sort."""

    attribute: str
    operator: str
    values: NDArray[Any]  # one for each subscription of the form


@dataclass(frozen=True, slots=True)
class Form:
    numbers: NDArray[np.int64]
    bounds: tuple[Bound, ...]

    @property
    def text(self) -> str:
        return " AND ".join(f"{bound.attribute} {bound.operator} ?" for bound in self.bounds)

    @property
    def columns(self) -> list[NDArray[Any]]:
        return [bound.values for bound in self.bounds]

    def predicates(self) -> Iterator[tuple[int, Predicate]]:
        """Binding a prepared filter instead takes ten times as long, and leaves predicates so scattered in memory
        that `counting` takes in W2's 7 % more slowly."""
        attributes = sorted({bound.attribute for bound in self.bounds})
        columns = [_constraints([b for b in self.bounds if b.attribute == name]) for name in attributes]
        for number, *clause in zip(self.numbers.tolist(), *columns, strict=True):
            yield number, Predicate("", _ANYTHING, (tuple(clause),))


@dataclass(frozen=True, slots=True)
class DrawnSubscriptions:
    """Subscriptions numbered from 0. `predicates` have the clauses that parsing the workload's filters
    gives, but neither texts nor trees, which no index looks at."""

    forms: tuple[Form, ...]  # empty where there are none
    news: list[list[list[str]]] = field(default_factory=list)  # filter, clause, constraint

    def predicates(self) -> Iterator[tuple[int, Predicate]]:
        """In no particular order."""
        for form in self.forms:
            yield from form.predicates()
        yield from _news(self.news)


def draw(workload: Workload, count: int, seed: int) -> DrawnSubscriptions:
    """Draw the subscriptions that `workload.filters(count, seed)` describes."""
    match workload:
        case RangesWorkload():
            return DrawnSubscriptions((_ranges(workload, count, seed),))
        case QuotesWorkload():
            return DrawnSubscriptions(tuple(_quotes(workload, count, seed)))
        case NewsWorkload():
            return DrawnSubscriptions((), workload.clauses(count, seed))
    raise InvalidConfiguration(f"the filters of {workload.name} can only be had as texts", field="workload")


def _ranges(workload: RangesWorkload, count: int, seed: int) -> Form:
    low, high = workload.boxes(count, seed)
    bounds: list[Bound] = []
    for i, name in enumerate(ATTRIBUTES):
        bounds += [Bound(name, ">=", low[:, i].copy()), Bound(name, "<", high[:, i].copy())]
    return Form(np.arange(count), tuple(bounds))


_QUOTE_FORMS: tuple[tuple[tuple[str, str, str], ...], ...] = (
    (("symbol", "=", "symbol"), ("close", ">=", "upper_close")),
    (("symbol", "=", "symbol"), ("close", ">=", "band_low"), ("close", "<=", "band_high")),
    (("symbol", "=", "symbol"), ("volume", ">=", "upper_volume")),
    (("volume", ">=", "busy_volume"), ("high", ">=", "high_low"), ("high", "<=", "high_high")),
    (("symbol", "=", "symbol"), ("open", "<=", "opened_below"), ("close", ">=", "closed_above")),
)
"""Attribute, operator, and which of the drawn columns; in the order of the workload's forms."""


def _quotes(workload: QuotesWorkload, count: int, seed: int) -> Iterator[Form]:
    drawn = workload.drawn(count, seed)
    columns = {"symbol": np.array(market().symbols)[drawn.symbols], **drawn.values}
    for number, form in enumerate(_QUOTE_FORMS):
        rows = np.flatnonzero(drawn.forms == number)
        yield Form(rows, tuple(Bound(name, operator, columns[of][rows]) for name, operator, of in form))


def _constraints(bounds: list[Bound]) -> Iterator[Constraint]:
    """The constraint of each subscription on one attribute."""
    attribute = bounds[0].attribute
    by_operator = {bound.operator: bound.values.tolist() for bound in bounds}
    if "=" in by_operator:
        shared = {value: OneOf(attribute, Domain.STRING, (value,)) for value in set(by_operator["="])}
        yield from (shared[value] for value in by_operator["="])
        return
    nothing = [None] * len(bounds[0].values)
    closed = "<" not in by_operator
    lows, highs = by_operator.get(">=", nothing), by_operator.get("<=" if closed else "<", nothing)
    for low, high in zip(lows, highs, strict=True):
        yield Between(attribute, Domain.NUMBER, low, low is not None, high, closed and high is not None)


def _news(clauses_of_each: list[list[list[str]]]) -> Iterator[tuple[int, Predicate]]:
    constraint = functools.cache(lambda text: parse(text).clauses[0][0])
    for number, clauses in enumerate(clauses_of_each):
        # As in the normal form: constraints in the order of their attributes, and no clause twice.
        made = dict.fromkeys(tuple(map(constraint, sorted(clause))) for clause in clauses)
        yield number, Predicate("", _ANYTHING, tuple(made))
