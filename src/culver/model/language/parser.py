"""Parses the text of a filter.

Lark parses in time linear in the text (LALR). For each reduction it calls a method of `_Builder`, which makes a node
of the tree and checks what a grammar cannot: that operands are operands, conditions conditions, and types fit.
docs/filter-language.md specifies the language.
"""

import math
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from culver.config import FilterSettings
from culver.errors import TooLarge
from culver.model.language.normalisation import clauses_of
from culver.model.language.parse_errors import located, syntax_error
from culver.model.language.patterns import parse_pattern
from culver.model.language.predicate import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Member,
    Not,
    Operand,
    Operator,
    Or,
    Parameter,
    Predicate,
    calculate,
    compare,
)
from culver.model.text import normalise_text
from culver.model.timestamps import parse_timestamp
from culver.model.values import domain_of

# Whatever the settings: deeper trees would bring recursive functions near Python's own limit.
DEEPEST = 128

# Small results are remembered, because the same filters are registered again and again. With these bounds a
# hostile client can tie up some tens of megabytes at most.
_REMEMBERED = 2048
_REMEMBERED_LENGTH = 2048
_REMEMBERED_CONSTRAINTS = 64

_remembered: dict[tuple[str, FilterSettings], Predicate] = {}
_lock = threading.Lock()


def parse(text: str, settings: FilterSettings = FilterSettings()) -> Predicate:  # noqa: B008 (immutable)
    """The predicate that `text` means. Thread-safe; repeated small texts come from memory.

    Raises InvalidFilter with `position`, `line`, `column` and `expected`, or with `limit` where the filter
    is too complex; and TooLarge where the text is too long.
    """
    key = (text, settings)
    known = _remembered.get(key)
    if known is not None:
        return known
    condition, _ = parse_template(text, settings, parameters=False)
    predicate = Predicate(text, condition, clauses_of(condition, settings))
    if len(text) <= _REMEMBERED_LENGTH and sum(map(len, predicate.clauses)) <= _REMEMBERED_CONSTRAINTS:
        with _lock:
            if len(_remembered) >= _REMEMBERED:
                del _remembered[next(iter(_remembered))]
            _remembered[key] = predicate
    return predicate


def check_length(text: str, settings: FilterSettings) -> None:
    if len(text) > settings.max_length:
        raise TooLarge(
            f"the filter has {len(text)} characters; the limit (filters.max_length) is {settings.max_length}",
            field="filter",
            limit=settings.max_length,
        )


def parse_template(
    text: str, settings: FilterSettings, *, parameters: bool = True
) -> tuple[Condition, "Parameters"]:
    """The tree of a text with parameters. The value of a Literal, or one of the values of an In, may be a Parameter.
    Raises as `parse` does."""
    check_length(text, settings)
    try:
        normalise_text(text)
    except ValueError as exc:
        position = next((i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff"), 0)
        raise located(text, position, f"the filter has {exc}", ["Unicode text"]) from None
    parser, builder, lark = _parser()
    # The builder is shared and holds the state of the parse under way, hence the lock.
    with _lock:
        builder.settings, builder.takes_parameters = settings, parameters
        builder.parameters = Parameters([], [])
        try:
            return _condition(parser.parse(text)), builder.parameters
        except _Refusal as refusal:
            raise located(text, refusal.position, refusal.message, refusal.expected) from None
        except lark.exceptions.UnexpectedInput as exc:
            raise syntax_error(text, exc) from None


@cache
def _parser() -> tuple[Any, "_Builder", Any]:
    # The first parse, not the import of this module, pays for Lark: 40 ms to import it, 30 ms to build its tables.
    # (A lexer of our own, one regular expression over all terminals, would save only a quarter of the time to parse.)
    import lark

    builder = _Builder()
    grammar = Path(__file__).with_name("filter.lark").read_text(encoding="utf-8")
    parser = lark.Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        transformer=builder,
        keep_all_tokens=True,
        maybe_placeholders=False,
    )
    return parser, builder, lark


# --- building the tree ----------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """Where each parameter stands in the text, and the pairs of values that must be of one type."""

    positions: list[int]
    pairs: list[tuple[Any, Any]]


class _Refusal(Exception):
    """Raised by a reduction: an error at a position, not yet placed in lines and columns."""

    def __init__(self, position: int, message: str, *expected: str) -> None:
        self.position = position
        self.message = message
        self.expected = expected


class _Built(NamedTuple):
    """The node of a part of the text, the part's start, and how deeply it nests parentheses, NOT and arithmetic."""

    node: Operand | Condition
    position: int
    depth: int


_OPERATORS = {each.value: each for each in Operator} | {"!=": Operator.NOT_EQUAL}
_FLIPPED = {
    Operator.LESS: Operator.GREATER,
    Operator.LESS_OR_EQUAL: Operator.GREATER_OR_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_OR_EQUAL: Operator.LESS_OR_EQUAL,
    Operator.EQUAL: Operator.EQUAL,
    Operator.NOT_EQUAL: Operator.NOT_EQUAL,
}
_OPERANDS = (Attribute, Literal, Arithmetic)
_TRUE = Literal(True)
_ZERO = Literal(0)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def _negated(built: _Built) -> _Built:
    return _Built(Not(_condition(built)), built.position, built.depth)


def _without_not(
    build: Callable[["_Builder", list[Any]], _Built],
) -> Callable[["_Builder", list[Any]], _Built]:
    return lambda self, parts: _negated(build(self, [parts[0], *parts[2:]]))


class _Builder:
    """Lark's callbacks: for a terminal its token, for a rule the list of its parts."""

    settings = FilterSettings()
    takes_parameters = False
    parameters = Parameters([], [])

    # -- terminals

    def NAME(self, token: Any) -> _Built:  # noqa: N802 (named after the terminal)
        name = token.value
        if name[0] == '"':
            name = name[1:-1].replace('""', '"')
        return _Built(Attribute(normalise_text(name)), token.start_pos, 0)

    def STRING(self, token: Any) -> _Built:  # noqa: N802
        text = token.value[1:-1].replace("''", "'")
        return _Built(Literal(normalise_text(text)), token.start_pos, 0)

    def NUMBER(self, token: Any) -> _Built:  # noqa: N802
        text, position = token.value, token.start_pos
        if text.isdigit():
            # One more than the highest passes here, because -9223372036854775808 may become of it.
            # Leading zeros go first: Python refuses to read thousands of digits.
            digits = text.lstrip("0") or "0"
            if len(digits) > 19 or int(digits) > _HIGHEST + 1:
                _refuse_integer(position)
            return _Built(Literal(int(digits)), position, 0)
        real = float(text)
        if math.isinf(real):
            raise _Refusal(position, "the number is too large for a 64-bit real", "a finite number")
        return _Built(Literal(real), position, 0)

    def TRUE(self, token: Any) -> _Built:  # noqa: N802
        return _Built(_TRUE, token.start_pos, 0)

    def FALSE(self, token: Any) -> _Built:  # noqa: N802
        return _Built(Literal(False), token.start_pos, 0)

    def PARAMETER(self, token: Any) -> _Built:  # noqa: N802
        if not self.takes_parameters:
            raise _Refusal(
                token.start_pos, "parameters (?) are only for prepared filters: write the value", "a literal"
            )
        value: Any = Parameter(len(self.parameters.positions))
        self.parameters.positions.append(token.start_pos)
        return _Built(Literal(value), token.start_pos, 0)

    def timestamp(self, parts: list[Any]) -> _Built:
        keyword, text = parts
        try:
            return _Built(Literal(parse_timestamp(text.node.value)), keyword.start_pos, 0)
        except ValueError as exc:
            raise _Refusal(text.position, str(exc), "an RFC 3339 timestamp with an offset") from None

    # -- conditions

    def conjunction(self, parts: list[Any]) -> _Built:
        return _joined(And, parts[::2])

    def disjunction(self, parts: list[Any]) -> _Built:
        return _joined(Or, parts[::2])

    def negation(self, parts: list[Any]) -> _Built:
        keyword, inner = parts
        return _Built(Not(_condition(inner)), keyword.start_pos, self._deeper(keyword.start_pos, inner.depth))

    def group(self, parts: list[Any]) -> _Built:
        bracket, inner, _ = parts
        return _Built(inner.node, bracket.start_pos, self._deeper(bracket.start_pos, inner.depth))

    def comparison(self, parts: list[Any]) -> _Built:
        left, sign, right = parts
        node = _compared(_OPERATORS[sign.value], left, right, sign.start_pos)
        return _Built(node, left.position, max(left.depth, right.depth))

    def between(self, parts: list[Any]) -> _Built:
        value, keyword, low, _, high = parts
        if _is_parameter(low.node) or _is_parameter(high.node):
            if isinstance(low.node, Literal) and isinstance(high.node, Literal):
                self.parameters.pairs.append((low.node.value, high.node.value))
        else:
            _check_same_type(low, high)
        above = _compared(Operator.GREATER_OR_EQUAL, value, low, keyword.start_pos)
        below = _compared(Operator.LESS_OR_EQUAL, value, high, keyword.start_pos)
        return _Built(And((above, below)), value.position, max(value.depth, low.depth, high.depth))

    def one_of(self, parts: list[Any]) -> _Built:
        left, values = parts[0], parts[3::2]
        attribute = _attribute(left, "the left side of IN ( ... )")
        limit = self.settings.max_values
        if len(values) > limit:
            raise _Refusal(
                values[limit].position,
                f"the list has {len(values)} values; the limit (filters.max_values) is {limit}",
                f"at most {limit} values",
            )
        return _Built(
            In(attribute, tuple(_constant(value).value for value in values)), left.position, left.depth
        )

    def member(self, parts: list[Any]) -> _Built:
        left, _, name = parts
        if not (isinstance(left.node, Literal) and isinstance(left.node.value, str)):
            raise _Refusal(
                left.position,
                "only a string can be looked for in a list attribute; for a list of values write "
                "attribute IN (value, ...)",
                "a string in single quotes",
            )
        return _Built(Member(left.node.value, name.node), left.position, left.depth)

    def like(self, parts: list[Any]) -> _Built:
        attribute = _attribute(parts[0], "the left side of LIKE")
        pattern = parts[2]
        escape = parts[4] if len(parts) > 4 else None
        if escape is not None and len(escape.node.value) != 1:
            raise _Refusal(escape.position, "ESCAPE takes exactly one character", "a string of one character")
        sign = None if escape is None else escape.node.value
        try:
            parse_pattern(pattern.node.value, sign)
        except ValueError as exc:
            raise _Refusal(pattern.position, str(exc), "a pattern") from None
        return _Built(Like(attribute, pattern.node.value, sign), parts[0].position, parts[0].depth)

    def is_null(self, parts: list[Any]) -> _Built:
        return _Built(IsNull(_attribute(parts[0], "the left side of IS")), parts[0].position, parts[0].depth)

    # `x NOT op ...` is `NOT x op ...`, but counts as no nesting.

    not_between = _without_not(between)
    not_one_of = _without_not(one_of)
    not_member = _without_not(member)
    not_like = _without_not(like)

    def is_not_null(self, parts: list[Any]) -> _Built:
        return _negated(self.is_null(parts))

    # -- arithmetic

    def arithmetic(self, parts: list[Any]) -> _Built:
        left, sign, right = parts
        first, second = _number(left), _number(right)
        if isinstance(first, Literal) and isinstance(second, Literal):
            return _Built(_folded(sign, first, second), left.position, max(left.depth, right.depth))
        _check_range(left)
        _check_range(right)
        depth = self._deeper(sign.start_pos, max(left.depth, right.depth))
        return _Built(Arithmetic(sign.value, first, second), left.position, depth)

    def signed(self, parts: list[Any]) -> _Built:
        sign, operand = parts
        node = _number(operand)
        if isinstance(node, Literal):
            return _Built(_folded(sign, _ZERO, node), sign.start_pos, operand.depth)
        depth = self._deeper(sign.start_pos, operand.depth)
        return _Built(Arithmetic(sign.value, _ZERO, node), sign.start_pos, depth)

    def _deeper(self, position: int, depth: int) -> int:
        limit = min(self.settings.max_depth, DEEPEST)
        if depth >= limit:
            raise _Refusal(
                position,
                f"the filter is nested too deeply; the limit (filters.max_depth) is {limit}",
                f"at most {limit} levels of parentheses, NOT and arithmetic",
            )
        return depth + 1


def _joined(kind: type[And] | type[Or], parts: list[_Built]) -> _Built:
    conditions: list[Condition] = []
    for part in parts:
        condition = _condition(part)
        if isinstance(condition, kind):
            conditions.extend(condition.conditions)
        else:
            conditions.append(condition)
    return _Built(kind(tuple(conditions)), parts[0].position, max(part.depth for part in parts))


def _compared(operator: Operator, left: _Built, right: _Built, position: int) -> Condition:
    first, second = _operand(left), _operand(right)
    if isinstance(first, Literal):
        _check_range(left)
        if isinstance(second, Literal):
            _check_range(right)
            for built in (left, right):
                if _is_parameter(built.node):
                    raise _Refusal(
                        built.position, "a parameter is to be compared with an attribute", "an attribute name"
                    )
            _check_same_type(left, right)
            _check_order(operator, second, position)
            return Constant(compare(operator, first.value, second.value) is True)
        left, right = right, left
        first, second = second, first
        operator = _FLIPPED[operator]
    if isinstance(second, Literal):
        _check_range(right)
        _check_order(operator, second, position)
        if isinstance(first, Arithmetic) and not _is_parameter(second):
            _number(right)
    return Comparison(operator, first, second)


def _folded(sign: Any, left: Literal, right: Literal) -> Literal:
    result = calculate(sign.value, left.value, right.value)
    if result is None:
        what = "the result is not a finite number: it is too large for a 64-bit real"
        if sign.value in ("/", "%") and right.value == 0:
            what = "a division by zero has no result"
        raise _Refusal(sign.start_pos, what, "arithmetic with a finite result")
    return Literal(result if result else abs(result))  # no negative zero


# --- checks ---------------------------------------------------------------------------------------------


def _is_parameter(node: Operand | Condition) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, Parameter)


def _condition(built: _Built) -> Condition:
    node = built.node
    if isinstance(node, Attribute):
        return Comparison(Operator.EQUAL, node, _TRUE)
    if isinstance(node, Literal) and isinstance(node.value, bool):
        return Constant(node.value)
    if isinstance(node, _OPERANDS):
        raise _Refusal(
            built.position,
            "a value alone is neither true nor false: compare it with something",
            "a condition",
        )
    return node


def _operand(built: _Built) -> Operand:
    node = built.node
    if isinstance(node, _OPERANDS):
        return node
    raise _Refusal(
        built.position, "a condition cannot stand where a value is needed", "an attribute name", "a literal"
    )


def _number(built: _Built) -> Operand:
    node = _operand(built)
    if _is_parameter(node):
        raise _Refusal(
            built.position,
            "arithmetic takes no parameters: calculate before the value is bound",
            "an attribute name",
            "a number",
        )
    if isinstance(node, Literal) and type(node.value) not in (int, float):
        kind = domain_of(node.value)
        raise _Refusal(
            built.position, f"arithmetic is for numbers, this is a {kind}", "an attribute name", "a number"
        )
    return node


def _attribute(built: _Built, where: str) -> Attribute:
    if isinstance(built.node, Attribute):
        return built.node
    raise _Refusal(built.position, f"{where} must be an attribute", "an attribute name")


def _constant(built: _Built) -> Literal:
    if not isinstance(built.node, Literal):
        raise _Refusal(built.position, "the list of IN takes literals only", "a literal")
    _check_range(built)
    return built.node


def _check_range(built: _Built) -> None:
    node = built.node
    if type(node) is Literal and type(node.value) is int and not _LOWEST <= node.value <= _HIGHEST:
        _refuse_integer(built.position)


def _refuse_integer(position: int) -> NoReturn:
    raise _Refusal(
        position,
        "the integer does not fit in 64 bits; write it as a real (with a decimal point) if that will do",
        f"an integer from {_LOWEST} to {_HIGHEST}",
    )


def _check_order(operator: Operator, literal: Literal, position: int) -> None:
    if type(literal.value) is bool and operator not in (Operator.EQUAL, Operator.NOT_EQUAL):
        raise _Refusal(position, "booleans have no order: compare them with = or <>", "=", "<>")


def _check_same_type(left: _Built, right: _Built) -> None:
    if isinstance(left.node, Literal) and isinstance(right.node, Literal):
        wanted, found = domain_of(left.node.value), domain_of(right.node.value)
        if wanted is not found:
            raise _Refusal(right.position, f"a {wanted} and a {found} do not compare", f"a {wanted}")
