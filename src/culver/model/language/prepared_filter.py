"""Filters with parameters, which are parsed once and bound to values often.

    prepared = prepare("symbol = ? AND price BETWEEN ? AND ?")
    prepared.bind(["ACME", 10, 20.5])  # as parse("symbol = 'ACME' AND price BETWEEN 10 AND 20.5")

A `?` stands for a value, never for a piece of text, so nothing in a value can change what a filter means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from culver.config import FilterSettings
from culver.errors import InvalidFilter, counted
from culver.model.language.normalisation import clauses_of
from culver.model.language.parser import check_length, parse_template
from culver.model.language.predicate import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    In,
    Like,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    Parameter,
    Predicate,
    attributes_in,
)
from culver.model.language.rendering import value_text
from culver.model.text import normalise_text
from culver.model.timestamps import EARLIEST, LATEST
from culver.model.values import Domain, Scalar, Timestamp, domain_of


@dataclass(frozen=True, slots=True)
class Prepared:
    """A filter whose parameters have no values yet; `parse_template` gives the parts."""

    text: str
    settings: FilterSettings
    condition: Condition
    positions: list[int]
    pairs: list[tuple[Any, Any]]

    @property
    def parameters(self) -> int:
        """The number of values that `bind` takes."""
        return len(self.positions)

    def bind(self, values: Sequence[Scalar]) -> Predicate:
        """The predicate that `parse` gives for the text with these values written in.

        Raises InvalidFilter, with `parameter` (from 1) in its details, for a value that cannot stand there, and
        otherwise raises as `parse` does."""
        if len(values) != len(self.positions):
            first = min(len(values), len(self.positions))
            what = "has no value" if len(values) == first else "is not in the filter"
            given, wanted = counted(len(values), "value"), counted(len(self.positions), "parameter")
            raise _refusal(first, f"{what}: {given} for {wanted}")
        checked = [_checked(number, value) for number, value in enumerate(values)]
        for pair in self.pairs:
            _check_pair(pair, checked)
        text = self._written(checked)
        check_length(text, self.settings)
        condition = _filled(self.condition, checked)
        return Predicate(text, condition, clauses_of(condition, self.settings))

    def written(self, values: Sequence[Scalar]) -> str:
        """The text with these values written in; `bind` has accepted them before."""
        return self._written([_checked(number, value) for number, value in enumerate(values)])

    def domains(self) -> list[Domain | None]:
        """The requirements of the filter for each parameter's values: they are compared with arithmetic, or with an
        attribute that the filter tests against literals of one domain elsewhere. None where it says nothing."""
        attributes: dict[str, set[Domain]] = {}
        operands: dict[int, Operand] = {}
        _gather(self.condition, attributes, operands)
        found: list[Domain | None] = []
        for number in range(self.parameters):
            operand = operands[number]
            if isinstance(operand, Attribute):
                known = attributes.get(operand.name, set())
                found.append(next(iter(known)) if len(known) == 1 else None)
            else:
                found.append(Domain.NUMBER)
        return found

    def _written(self, values: list[Scalar]) -> str:
        pieces: list[str] = []
        end = 0
        for position, value in zip(self.positions, values, strict=True):
            before, after = self.text[end:position], self.text[position + 1 : position + 2]
            end = position + 1
            pieces += before, " " * _is_word(before[-1:]), value_text(value), " " * _is_word(after)
        return "".join(pieces) + self.text[end:]


def prepare(text: str, settings: FilterSettings = FilterSettings()) -> Prepared:  # noqa: B008 (immutable)
    """Parse a filter in which `?` may stand for a value that is compared, for a bound of BETWEEN and for a value in
    the list of IN. Raises as `parse` does."""
    condition, parameters = parse_template(text, settings)
    return Prepared(text, settings, condition, *parameters)


def _is_word(character: str) -> bool:
    """Whether a literal beside the character needs a space between, as in `x>?AND y`."""
    return character.isalnum() or character in ("_", "$", ".")


# --- filling in -----------------------------------------------------------------------------------------


def _filled(condition: Condition, values: list[Scalar]) -> Condition:
    match condition:
        case And(conditions):
            return And(tuple(_filled(each, values) for each in conditions))
        case Or(conditions):
            return Or(tuple(_filled(each, values) for each in conditions))
        case Not(inner):
            return Not(_filled(inner, values))
        case In(attribute, listed):
            return In(attribute, tuple(_value_of(each, values) for each in listed))
        case Comparison(operator, left, Literal(right)) if isinstance(right, Parameter):
            value = values[right.number]
            if isinstance(value, bool) and operator not in (Operator.EQUAL, Operator.NOT_EQUAL):
                raise _refusal(right.number, "is a boolean, which has no order: compare it with = or <>")
            if isinstance(left, Arithmetic) and domain_of(value) is not Domain.NUMBER:
                raise _refusal(right.number, f"is compared with a number, and is a {domain_of(value)}")
            return Comparison(operator, left, Literal(value))
    return condition


def _value_of(value: Any, values: list[Scalar]) -> Scalar:
    result: Scalar = values[value.number] if isinstance(value, Parameter) else value
    return result


# --- what a filter says about its parameters ---------------------------------------------------------------


def _gather(condition: Condition, attributes: dict[str, set[Domain]], operands: dict[int, Operand]) -> None:
    """Collect the domains of the literals that attributes meet, and the operands that parameters meet."""

    def note(left: Operand, value: Any) -> None:
        if isinstance(value, Parameter):
            operands[value.number] = left
        elif isinstance(left, Attribute):
            attributes.setdefault(left.name, set()).add(domain_of(value))

    match condition:
        case And(conditions) | Or(conditions):
            for each in conditions:
                _gather(each, attributes, operands)
        case Not(inner):
            _gather(inner, attributes, operands)
        case In(attribute, listed):
            for value in listed:
                note(attribute, value)
        case Like(attribute):
            note(attribute, "")
        case Comparison(_, left, right):
            for operand in (left, right):
                if isinstance(operand, Arithmetic):
                    for name in attributes_in(operand):
                        attributes.setdefault(name, set()).add(Domain.NUMBER)
            if isinstance(right, Literal):
                note(left, right.value)


# --- checks ---------------------------------------------------------------------------------------------


def _checked(number: int, value: Any) -> Scalar:
    """The value in the form of a literal."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise _refusal(number, "does not fit in 64 bits; give it as a real if that will do")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(number, "is not a finite number")
        return float(value) + 0.0  # no negative zero
    if isinstance(value, Timestamp):
        if not EARLIEST <= value.microseconds <= LATEST:
            raise _refusal(number, "is a timestamp outside of the years 0001 to 9999 of UTC")
        return value
    if isinstance(value, str):
        try:
            return normalise_text(str(value))
        except ValueError as exc:
            raise _refusal(number, f"has {exc}") from None
    kind = type(value).__name__
    raise _refusal(number, f"is a {kind}; a number, a string, a boolean or a timestamp is wanted")


def _check_pair(pair: tuple[Any, Any], values: list[Scalar]) -> None:
    wanted, found = (domain_of(_value_of(each, values)) for each in pair)
    if wanted is not found:
        if not isinstance(pair[1], Parameter):
            pair, wanted, found = (pair[1], pair[0]), found, wanted
        raise _refusal(pair[1].number, f"is a {found}, and the other bound is a {wanted}")


def _refusal(number: int, what: str) -> InvalidFilter:
    return InvalidFilter(f"parameter {number + 1} {what}", field="filter", parameter=number + 1)
