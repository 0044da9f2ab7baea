"""Writes clauses as filter text, which `parse` turns into the same clauses."""

import re

from culver.model.language.patterns import write_pattern
from culver.model.language.predicate import (
    Arithmetic,
    Attribute,
    Between,
    Clause,
    Comparison,
    Computed,
    Constraint,
    Contains,
    Literal,
    OneOf,
    Operand,
    Pattern,
    Presence,
)
from culver.model.timestamps import format_timestamp
from culver.model.values import Timestamp, Value

RESERVED_WORDS = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"}
)
_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*")

_SUM, _PRODUCT, _SIGNED, _ATOM = range(4)
_PRECEDENCE = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}


def clause_text(clause: Clause) -> str:
    """The conjunction as text; TRUE for a clause without constraints."""
    return " AND ".join(constraint_text(constraint) for constraint in clause) or "TRUE"


def constraint_text(constraint: Constraint) -> str:
    match constraint:
        case Between():
            return _range_text(constraint)
        case OneOf(attribute, _, (value,), negated):
            return f"{name_text(attribute)} {'<>' if negated else '='} {value_text(value)}"
        case OneOf(attribute, _, values, negated):
            listed = ", ".join(value_text(value) for value in values)
            return f"{name_text(attribute)} {'NOT IN' if negated else 'IN'} ({listed})"
        case Pattern():
            pattern, escape = write_pattern(constraint.parts, constraint.kinds)
            text = f"{name_text(constraint.attribute)} {'NOT LIKE' if constraint.negated else 'LIKE'} "
            text += value_text(pattern)
            return text if escape is None else f"{text} ESCAPE {value_text(escape)}"
        case Contains(attribute, value, negated):
            return f"{value_text(value)} {'NOT IN' if negated else 'IN'} {name_text(attribute)}"
        case Presence(attribute, present):
            return f"{name_text(attribute)} {'IS NOT NULL' if present else 'IS NULL'}"
        case Computed(Comparison(operator, left, right)):
            return f"{_operand_text(left, _SUM)} {operator.value} {_operand_text(right, _SUM)}"


def name_text(name: str) -> str:
    """An attribute's name, in double quotes where it needs them."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED_WORDS and name.upper() != "TIMESTAMP":
        return name
    return '"' + name.replace('"', '""') + '"'


def value_text(value: Value) -> str:
    """The literal of a value; a list has none."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case Timestamp():
            return f"TIMESTAMP '{format_timestamp(value)}'"
        case _:
            return repr(value)


def _range_text(bounds: Between) -> str:
    name = name_text(bounds.attribute)
    if bounds.low is not None and bounds.high is not None and bounds.low_closed and bounds.high_closed:
        return f"{name} BETWEEN {value_text(bounds.low)} AND {value_text(bounds.high)}"
    sides = []
    if bounds.low is not None:
        sides.append(f"{name} {'>=' if bounds.low_closed else '>'} {value_text(bounds.low)}")
    if bounds.high is not None:
        sides.append(f"{name} {'<=' if bounds.high_closed else '<'} {value_text(bounds.high)}")
    return " AND ".join(sides)


def _operand_text(operand: Operand, context: int) -> str:
    """The text of `operand` at a place that takes at least the precedence `context`, with no more parentheses than
    needed, because they count as nesting when the text is parsed again."""
    match operand:
        case Attribute(name):
            return name_text(name)
        case Literal(value):
            return value_text(value)
    own = _precedence(operand)
    if own is _SIGNED:
        text = operand.operator + " " + _operand_text(operand.right, _SIGNED)
    else:
        left = _operand_text(operand.left, own)
        text = f"{left} {operand.operator} {_operand_text(operand.right, own + 1)}"
    return f"({text})" if own < context else text


def _precedence(operand: Operand) -> int:
    if not isinstance(operand, Arithmetic):
        return _ATOM
    unary = operand.operator in ("+", "-") and operand.left == Literal(0)
    if unary and _precedence(operand.right) >= _SIGNED:
        return _SIGNED
    return _PRECEDENCE[operand.operator]
