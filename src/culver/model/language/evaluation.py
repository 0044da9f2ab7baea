"""The meaning of filters, written plainly: this is the reference that everything faster must equal.

Three values as in SQL: True, False, and None for unknown. An attribute that is missing, or of a type that
the operator does not take, makes the result unknown.
"""

import math
import operator
from collections.abc import Callable
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

_ORDER: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_parts_of = lru_cache(maxsize=1024)(parse_pattern)


# --- the tree -------------------------------------------------------------------------------------------


def evaluate(condition: Condition, event: Event) -> bool | None:
    """What `condition` says about `event`."""
    return _evaluate(condition, event.value)


def _evaluate(condition: Condition, lookup: Lookup) -> bool | None:
    match condition:
        case Comparison():
            return compute(condition, lookup)
        case And(conditions):
            unknown = False
            for inner in conditions:
                result = _evaluate(inner, lookup)
                if result is False:
                    return False
                unknown = unknown or result is None
            return None if unknown else True
        case Or(conditions):
            unknown = False
            for inner in conditions:
                result = _evaluate(inner, lookup)
                if result is True:
                    return True
                unknown = unknown or result is None
            return None if unknown else False
        case Not(inner):
            result = _evaluate(inner, lookup)
            return None if result is None else not result
        case In(Attribute(name), values):
            # x IN (1, 2) is x = 1 OR x = 2
            value = lookup(name)
            unknown = False
            for each in values:
                result = compare(Operator.EQUAL, value, each)
                if result is True:
                    return True
                unknown = unknown or result is None
            return None if unknown else False
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


def compute(comparison: Comparison, lookup: Lookup) -> bool | None:
    """One comparison, with `lookup` giving the value of an attribute or None where it is missing."""
    return compare(comparison.operator, _operand(comparison.left, lookup), _operand(comparison.right, lookup))


def compare(comparison: Operator, left: Value | None, right: Value | None) -> bool | None:
    """Compare two values of one domain. Lists never compare, and booleans have no order."""
    if left is None or right is None:
        return None
    domain = domain_of(left)
    if domain is not domain_of(right) or domain is Domain.STRINGS:
        return None
    if comparison is Operator.EQUAL:
        return left == right
    if comparison is Operator.NOT_EQUAL:
        return left != right
    if domain is Domain.BOOLEAN:
        return None
    return _ORDER[comparison](left, right)


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
    """Arithmetic on two numbers: exact between integers (but for /, which is real division), 64-bit
    floating point otherwise. None where an operand is no number or the result is no finite number."""
    if type(left) not in (int, float) or type(right) not in (int, float):
        return None
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    try:
        match sign:
            case "+":
                result = left + right
            case "-":
                result = left - right
            case "*":
                result = left * right
            case _:
                result = left / right
    except (ZeroDivisionError, OverflowError):
        return None
    return result if type(result) is int or math.isfinite(result) else None


# --- the clauses ----------------------------------------------------------------------------------------


def matching_clause(predicate: Predicate, event: Event) -> int | None:
    """The first clause of which every constraint holds, as an index, or None."""
    for index, clause in enumerate(predicate.clauses):
        if all(satisfies(constraint, event) is True for constraint in clause):
            return index
    return None


def satisfies(constraint: Constraint, event: Event) -> bool | None:
    """What one constraint says about `event`."""
    if isinstance(constraint, Computed):
        return compute(constraint.comparison, event.value)
    return constraint_holds_for_value(constraint, event.value(constraint.attribute))


def constraint_holds_for_value(
    constraint: Between | OneOf | Pattern | Contains | Presence, value: Value | None
) -> bool | None:
    """What a constraint on one attribute says about that attribute's value; None is a missing one."""
    match constraint:
        case Presence():
            return (value is not None) is constraint.present
        case Between():
            if value is None or domain_of(value) is not constraint.domain:
                return None
            return _above(constraint, value) and _below(constraint, value)
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


def _above(constraint: Between, value: Value) -> bool:
    if constraint.low is None:
        return True
    comparison = Operator.GREATER_OR_EQUAL if constraint.low_closed else Operator.GREATER
    return compare(comparison, value, constraint.low) is True


def _below(constraint: Between, value: Value) -> bool:
    if constraint.high is None:
        return True
    comparison = Operator.LESS_OR_EQUAL if constraint.high_closed else Operator.LESS
    return compare(comparison, value, constraint.high) is True
