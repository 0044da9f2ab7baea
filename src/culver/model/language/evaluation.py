"""The meaning of filters, written plainly: the reference that everything faster must equal.

A result is True, False, or None for SQL's unknown. It is unknown where an attribute is missing or has a type that the
operator does not take.
"""

import math
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from culver.model.event import Event
from culver.model.language.patterns import like, parse_pattern
from culver.model.language.predicate import (
    And,
    Attribute,
    Between,
    Comparison,
    Computed,
    Condition,
    Constant,
    Constraint,
    Contains,
    In,
    IsNull,
    Like,
    Literal,
    Member,
    Not,
    OneOf,
    Operand,
    Operator,
    Or,
    Pattern,
    Predicate,
    Presence,
)
from culver.model.values import Domain, Value, domain_of

Lookup = Callable[[str], Value | None]

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_CALCULATE: dict[str, Callable[[Any, Any], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_parts_of = lru_cache(maxsize=1024)(parse_pattern)


# --- the tree -------------------------------------------------------------------------------------------


def evaluate(condition: Condition, event: Event) -> bool | None:
    """Whether `condition` holds for `event`."""
    return _evaluate(condition, event.value)


def _evaluate(condition: Condition, lookup: Lookup) -> bool | None:
    match condition:
        case Comparison():
            return compute(condition, lookup)
        case And(conditions):
            return _not(_any(_not(_evaluate(inner, lookup)) for inner in conditions))
        case Or(conditions):
            return _any(_evaluate(inner, lookup) for inner in conditions)
        case Not(inner):
            return _not(_evaluate(inner, lookup))
        case In(Attribute(name), values):
            # x IN (1, 2) is x = 1 OR x = 2
            value = lookup(name)
            return _any(compare(Operator.EQUAL, value, each) for each in values)
        case Like(Attribute(name), pattern, escape):
            value = lookup(name)
            return like(*_parts_of(pattern, escape), value) if isinstance(value, str) else None
        case Member(text, Attribute(name)):
            value = lookup(name)
            return text in value if isinstance(value, tuple) else None
        case IsNull(Attribute(name)):
            return lookup(name) is None
        case Constant(truth):
            return truth


def _not(result: bool | None) -> bool | None:
    return None if result is None else not result


def _any(results: Iterable[bool | None]) -> bool | None:
    """The disjunction; results after the first true one are not asked for."""
    unknown = False
    for result in results:
        if result:
            return True
        unknown = unknown or result is None
    return None if unknown else False


def compute(comparison: Comparison, lookup: Lookup) -> bool | None:
    """The result of one comparison; `lookup` gives the value of an attribute, or None where it is missing."""
    return compare(comparison.operator, _operand(comparison.left, lookup), _operand(comparison.right, lookup))


def compare(comparison: Operator, left: Value | None, right: Value | None) -> bool | None:
    """Compare two values of one domain. Lists never compare, and booleans have no order."""
    if left is None or right is None:
        return None
    domain = domain_of(left)
    if domain is not domain_of(right) or domain is Domain.STRINGS:
        return None
    if domain is Domain.BOOLEAN and comparison not in (Operator.EQUAL, Operator.NOT_EQUAL):
        return None
    return _COMPARE[comparison](left, right)


def _operand(operand: Operand, lookup: Lookup) -> Value | None:
    match operand:
        case Attribute(name):
            return lookup(name)
        case Literal(value):
            return value
        case _:
            return calculate(
                operand.operator, _operand(operand.left, lookup), _operand(operand.right, lookup)
            )


def calculate(sign: str, left: Value | None, right: Value | None) -> int | float | None:
    """Arithmetic on two numbers: exact between integers (except for /, which is real division), 64-bit floating point
    otherwise. None where an operand is no number or the result is not finite."""
    if type(left) not in (int, float) or type(right) not in (int, float):
        return None
    try:
        result = _CALCULATE[sign](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return result if type(result) is int or math.isfinite(result) else None


# --- the clauses ----------------------------------------------------------------------------------------


def matching_clause(predicate: Predicate, event: Event) -> int | None:
    """The index of the first clause whose constraints all hold, or None."""
    for index, clause in enumerate(predicate.clauses):
        if all(satisfies(constraint, event) is True for constraint in clause):
            return index
    return None


def satisfies(constraint: Constraint, event: Event) -> bool | None:
    """Whether one constraint holds for `event`."""
    if isinstance(constraint, Computed):
        return compute(constraint.comparison, event.value)
    return constraint_holds_for_value(constraint, event.value(constraint.attribute))


def constraint_holds_for_value(
    constraint: Between | OneOf | Pattern | Contains | Presence, value: Value | None
) -> bool | None:
    """Whether a constraint on one attribute holds for that attribute's value; a value of None is a missing one."""
    match constraint:
        case Presence():
            return (value is not None) is constraint.present
        case Between():
            if value is None or domain_of(value) is not constraint.domain:
                return None
            return _lies_between(constraint, value)
        case OneOf():
            if value is None or domain_of(value) is not constraint.domain:
                return None
            return (value in constraint.values) is not constraint.negated
        case Pattern():
            if not isinstance(value, str):
                return None
            return like(constraint.parts, constraint.kinds, value) is not constraint.negated
        case Contains():
            if not isinstance(value, tuple):
                return None
            return (constraint.value in value) is not constraint.negated


def _lies_between(bounds: Between, value: Any) -> bool:
    low: Any = bounds.low
    high: Any = bounds.high
    if low is not None and not (value > low or (bounds.low_closed and value == low)):
        return False
    return high is None or value < high or (bounds.high_closed and value == high)
