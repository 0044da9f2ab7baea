"""Errors about filters that do not parse: where, what the parser expected, and a hint."""

from collections.abc import Iterable
from typing import Any

from culver.errors import InvalidFilter
from culver.model.language.rendering import RESERVED_WORDS

# A phrase for each terminal, in the order in which an error lists them.
_PHRASES = {
    "NAME": "an attribute name",
    "NUMBER": "a literal",
    "STRING": "a string in single quotes",
    "COMPARISON": "a comparison operator",
    "BETWEEN": "BETWEEN",
    "IN": "IN",
    "LIKE": "LIKE",
    "IS": "IS",
    "NULL": "NULL",
    "NOT": "NOT",
    "PLUS": "an arithmetic operator",
    "ESCAPE": "ESCAPE",
    "AND": "AND",
    "OR": "OR",
    "LPAR": "(",
    "COMMA": ",",
    "RPAR": ")",
    "$END": "end of the filter",
}
_HINTS = {
    "&": "the conjunction is written AND",
    "|": "the disjunction is written OR",
    "!": "negation is written NOT",
    "'": "the string that starts here is never closed; a quote within a string is written ''",
    '"': "a name in double quotes must not be empty and must be closed; strings take single quotes",
}


def syntax_error(text: str, exc: Any) -> InvalidFilter:
    """The error for Lark's UnexpectedInput `exc`."""
    accepted: set[str] = exc.interactive_parser.accepts()
    expected = _phrases(accepted)
    token = getattr(exc, "token", None)
    if not text.strip():
        return located(text, 0, "the filter is empty; to get every event, write TRUE", expected)
    if token is None:
        position = exc.pos_in_stream
        found, hint = repr(text[position]), _HINTS.get(text[position])
    elif token.type == "$END":
        position, found, hint = len(text), "the end of the filter", None
    else:
        position = token.start_pos
        word = token.value if len(token.value) <= 40 else token.value[:37] + "..."
        found, hint = repr(word), _HINTS.get(word)
        if token.type == "NULL":
            hint = "nothing equals NULL: for absence write IS NULL, for presence IS NOT NULL"
        elif word == "=" and text[position - 1 : position] == "=":
            hint = "equality is written with one ="
        elif token.type in RESERVED_WORDS and "NAME" in accepted:
            hint = f'to use a reserved word as a name, write "{word}" in double quotes'
    message = f"expected {_listed(expected)}, found {found}"
    return located(text, position, f"{message}; {hint}" if hint else message, expected)


def _phrases(accepted: set[str]) -> list[str]:
    accepted = accepted - {"STRING"} if "NUMBER" in accepted else accepted
    # Where an operand may start, + and - are its signs, which an error need not mention.
    accepted = accepted - {"PLUS"} if "NAME" in accepted else accepted
    return [phrase for terminal, phrase in _PHRASES.items() if terminal in accepted]


def _listed(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " or " + phrases[-1]


def located(text: str, position: int, message: str, expected: Iterable[str]) -> InvalidFilter:
    """An error at a position, which it also gives as line and column, from 1."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return InvalidFilter(
        f"line {line}, column {column}: {message}",
        field="filter",
        position=position,
        line=line,
        column=column,
        expected=list(expected),
    )
