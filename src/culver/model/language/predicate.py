"""A filter in its two forms, the condition as written (a tree) and its clauses (what indexes work on), and what they
mean.

A condition is true, false or unknown (None), as in SQL: unknown where an attribute is missing or has a type that the
operator does not take. The clauses mean the same: they are a disjunction of conjunctions of constraints on single
attributes, and an event matches when all constraints of some clause are true. The functions here are the reference
that everything faster must equal.
"""

import enum
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from culver.model.event import Event
from culver.model.language.patterns import PatternShape as PatternShape, like, parse_pattern
from culver.model.values import Domain, Scalar, Value, domain_of

Lookup = Callable[[str], Value | None]


class Operator(enum.StrEnum):
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


# --- the tree -------------------------------------------------------------------------------------------


class Attribute(msgspec.Struct, frozen=True):
    name: str


class Literal(msgspec.Struct, frozen=True, eq=False):
    """Equal only to a literal of the same type: `x * 1` and `x * 1.0` do not mean the same."""

    value: Scalar

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


class Parameter(msgspec.Struct, frozen=True):
    """The value of a literal that is not known yet; `number` is its place among the filter's parameters, from 0."""

    number: int


class Arithmetic(msgspec.Struct, frozen=True):
    """`operator` is one of + - * / %. Unary minus is 0 - operand, folded where the operand is a literal."""

    operator: str
    left: "Operand"
    right: "Operand"


Operand = Attribute | Literal | Arithmetic


class Comparison(msgspec.Struct, frozen=True):
    """`parse` puts a literal on the right, computes the comparison of two, and lets nothing order booleans."""

    operator: Operator
    left: Operand
    right: Operand


class In(msgspec.Struct, frozen=True):
    """`attribute IN (literals)`."""

    attribute: Attribute
    values: tuple[Scalar, ...]


class Like(msgspec.Struct, frozen=True):
    """`attribute LIKE pattern`: % is any run of characters, _ any one, unless `escape` stands before it."""

    attribute: Attribute
    pattern: str
    escape: str | None = None


class Member(msgspec.Struct, frozen=True):
    """`'value' IN attribute`: the list of strings holds the value."""

    value: str
    attribute: Attribute


class IsNull(msgspec.Struct, frozen=True):
    attribute: Attribute


class Constant(msgspec.Struct, frozen=True):
    value: bool


class Not(msgspec.Struct, frozen=True):
    condition: "Condition"


class And(msgspec.Struct, frozen=True):
    conditions: tuple["Condition", ...]


class Or(msgspec.Struct, frozen=True):
    conditions: tuple["Condition", ...]


Condition = Comparison | In | Like | Member | IsNull | Constant | Not | And | Or


# --- the clauses ----------------------------------------------------------------------------------------


class Between(msgspec.Struct, frozen=True):
    """The attribute lies between the bounds; None is no bound. `domain` is NUMBER, STRING or TIMESTAMP.

    It is never empty and has at least one bound; a point (`x = 5`) is a OneOf instead."""

    attribute: str
    domain: Domain
    low: Value | None
    low_closed: bool
    high: Value | None
    high_closed: bool


class OneOf(msgspec.Struct, frozen=True):
    """The attribute equals one of `values` (sorted, distinct, all of `domain`), or with `negated` none of them. It is
    unknown for an attribute of another domain. `domain` is NUMBER, STRING, BOOLEAN or TIMESTAMP."""

    attribute: str
    domain: Domain
    values: tuple[Scalar, ...]
    negated: bool = False


class Pattern(msgspec.Struct, frozen=True):
    """A string matches a LIKE pattern, or with `negated` does not.

    `parts` are literal texts and wildcards, and `kinds[i]` is True where `parts[i]` is a wildcard. `text` is the
    literal text of a PREFIX, SUFFIX or SUBSTRING and empty for a GENERAL pattern."""

    attribute: str
    shape: PatternShape
    text: str
    parts: tuple[str, ...]
    kinds: tuple[bool, ...]
    negated: bool = False


class Contains(msgspec.Struct, frozen=True):
    """The attribute is a list of strings that holds `value`, or with `negated` one that does not."""

    attribute: str
    value: str
    negated: bool = False


class Presence(msgspec.Struct, frozen=True):
    """The attribute is present (of any type), or with `present=False` absent."""

    attribute: str
    present: bool


class Computed(msgspec.Struct, frozen=True):
    """A comparison other than that of an attribute with a literal: of two attributes, or with arithmetic."""

    comparison: Comparison


Constraint = Between | OneOf | Pattern | Contains | Presence | Computed
Clause = tuple[Constraint, ...]


class Predicate(msgspec.Struct, frozen=True):
    """A parsed filter. Without clauses it matches nothing; with an empty clause it matches everything."""

    text: str
    condition: Condition
    clauses: tuple[Clause, ...]


# --- their meaning --------------------------------------------------------------------------------------

COMPARE: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def _remainder(left: int | float, right: int | float) -> int | float:
    """The remainder of `left` divided by `right`. It has the sign of `left`, as in
    SQL, C and Java."""
    if right == 0:
        raise ZeroDivisionError
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


CALCULATE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": _remainder,
}
_parts_of = lru_cache(maxsize=1024)(parse_pattern)


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
    result: bool = COMPARE[comparison](left, right)
    return result


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
        result: int | float = CALCULATE[sign](left, right)
    except (ZeroDivisionError, OverflowError, ValueError):  # the last is fmod's, for an infinity
        return None
    return result if type(result) is int or math.isfinite(result) else None


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


def domain_of_constraint(constraint: Between | OneOf | Pattern | Contains) -> Domain:
    """The domain of the values that a constraint is about."""
    match constraint:
        case Pattern():
            return Domain.STRING
        case Contains():
            return Domain.STRINGS
        case _:
            return constraint.domain


def domains_of(constraint: Constraint) -> Iterator[tuple[str, Domain | None]]:
    """The attributes of a constraint, each with the domain of the values that it is compared or computed with. None
    stands for any: the constraint is about presence, or compares two attributes."""
    match constraint:
        case Presence(attribute):
            yield attribute, None
        case Computed(comparison):
            for operand in (comparison.left, comparison.right):
                domain = None if isinstance(operand, Attribute) else Domain.NUMBER
                yield from ((name, domain) for name in attributes_in(operand))
        case _:
            yield constraint.attribute, domain_of_constraint(constraint)


def attributes_in(operand: Operand) -> Iterator[str]:
    """The attributes that an operand reads, each as often as it is written."""
    if isinstance(operand, Arithmetic):
        yield from attributes_in(operand.left)
        yield from attributes_in(operand.right)
    elif isinstance(operand, Attribute):
        yield operand.name
