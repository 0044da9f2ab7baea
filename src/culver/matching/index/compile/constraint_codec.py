"""Constraints as JSON text, the form in which a segment keeps its needs.

The text is canonical: two constraints are equal exactly if their texts are.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from culver.model import Domain, Timestamp
from culver.model.language import (
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    Computed,
    Constraint,
    Contains,
    Literal,
    OneOf,
    Operand,
    Operator,
    Pattern,
    PatternShape,
    Presence,
)


def constraint_to_text(constraint: Constraint) -> str:
    return json.dumps(_pack_constraint(constraint), ensure_ascii=False, separators=(",", ":"))


def constraint_from_text(text: str) -> Constraint:
    return constraint_from_packed(json.loads(text))


def packed_constraints(texts: Sequence[str]) -> list[list[Any]]:
    """Decode many texts at once, each to its JSON list: ["pattern", attribute, shape, ...] as below."""
    packed: list[list[Any]] = json.loads(f"[{','.join(texts)}]")
    return packed


def attribute_of_text(text: str) -> str | None:
    """The attribute that a constraint is about, without decoding all of it; None where it computes."""
    _, kind, _, name, _ = text.split('"', 4)
    if kind == "computed":
        return None
    if "\\" in name:  # something is escaped, perhaps a quotation mark
        name = json.loads(text)[1]
    return name


def compared_domains(texts: Sequence[str]) -> Iterator[tuple[str, Domain | None]]:
    """Does as `domains_of`, for the texts of many constraints."""
    for packed in packed_constraints(texts):
        match packed:
            case ["presence", attribute, _]:
                yield attribute, None
            case ["pattern", attribute, *_]:
                yield attribute, Domain.STRING
            case ["contains", attribute, *_]:
                yield attribute, Domain.STRINGS
            case ["computed", _, left, right]:
                for operand in (left, right):
                    domain = None if operand[0] == "attribute" else Domain.NUMBER
                    yield from ((name, domain) for name in _attributes_of_operand(operand))
            case [_, attribute, domain, *_]:
                yield attribute, Domain(domain)


def _attributes_of_operand(packed: list[Any]) -> Iterator[str]:
    match packed:
        case ["attribute", name]:
            yield name
        case ["literal", _]:
            return
        case [_, left, right]:
            yield from _attributes_of_operand(left)
            yield from _attributes_of_operand(right)


def _pack_constraint(constraint: Constraint) -> list[Any]:
    match constraint:
        case Between(attribute, domain, low, low_closed, high, high_closed):
            return ["range", attribute, domain, _pack(low), low_closed, _pack(high), high_closed]
        case OneOf(attribute, domain, values, negated):
            return ["one of", attribute, domain, [_pack(value) for value in values], negated]
        case Pattern(attribute, shape, text, parts, kinds, negated):
            return ["pattern", attribute, shape, text, parts, kinds, negated]
        case Contains(attribute, value, negated):
            return ["contains", attribute, value, negated]
        case Presence(attribute, present):
            return ["presence", attribute, present]
        case Computed(comparison):
            operands = _pack_operand(comparison.left), _pack_operand(comparison.right)
            return ["computed", comparison.operator, *operands]


def constraint_from_packed(packed: list[Any]) -> Constraint:
    match packed:
        case ["range", attribute, domain, low, low_closed, high, high_closed]:
            return Between(attribute, Domain(domain), _unpack(low), low_closed, _unpack(high), high_closed)
        case ["one of", attribute, domain, values, negated]:
            return OneOf(attribute, Domain(domain), tuple(_unpack(value) for value in values), negated)
        case ["pattern", attribute, shape, text, parts, kinds, negated]:
            return Pattern(attribute, PatternShape(shape), text, tuple(parts), tuple(kinds), negated)
        case ["contains", attribute, value, negated]:
            return Contains(attribute, value, negated)
        case ["presence", attribute, present]:
            return Presence(attribute, present)
        case ["computed", operator, left, right]:
            return Computed(Comparison(Operator(operator), _unpack_operand(left), _unpack_operand(right)))
    raise ValueError(f"unknown constraint {packed!r}")


def _pack_operand(operand: Operand) -> list[Any]:
    match operand:
        case Attribute(name):
            return ["attribute", name]
        case Literal(value):
            return ["literal", _pack(value)]
        case Arithmetic(operator, left, right):
            return [operator, _pack_operand(left), _pack_operand(right)]


def _unpack_operand(packed: list[Any]) -> Operand:
    match packed:
        case ["attribute", name]:
            return Attribute(name)
        case ["literal", value]:
            return Literal(_unpack(value))
        case [operator, left, right]:
            return Arithmetic(operator, _unpack_operand(left), _unpack_operand(right))
    raise ValueError(f"unknown operand {packed!r}")


def _pack(value: object) -> Any:
    # JSON distinguishes 5 from 5.0 and true from 1; only a timestamp needs a mark.
    return {"us": value.microseconds} if isinstance(value, Timestamp) else value


def _unpack(value: Any) -> Any:
    return Timestamp(value["us"]) if isinstance(value, dict) else value
