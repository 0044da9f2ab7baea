"""Parses, classifies and matches LIKE patterns.

A pattern is a tuple of parts: runs of literal text, `_` and `%`. Neighbouring wildcards have one order (`_` before
`%`, and only one `%`), so that patterns that mean the same are equal.

    'ab%%_c'  ->  parts ("ab", "_", "%", "c")   kinds (False, True, True, False)
"""

import enum
from itertools import groupby
from operator import itemgetter


class PatternShape(enum.StrEnum):
    """The shape of a LIKE pattern with a wildcard; without one it is a OneOf."""

    PREFIX = "prefix"
    SUFFIX = "suffix"
    SUBSTRING = "substring"
    GENERAL = "general"


def parse_pattern(pattern: str, escape: str | None) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """The parts of `pattern`, and for each whether it is a wildcard.

    Raises ValueError where the escape character stands before anything but `%`, `_` or itself."""
    characters: list[tuple[str, bool]] = []
    rest = iter(pattern)
    for character in rest:
        wild = character in "%_" and character != escape
        if character == escape:
            character = next(rest, "")
            if character not in ("%", "_", escape):
                raise ValueError(f"the escape character {escape!r} must stand before %, _ or itself")
        characters.append((character, wild))
    parts: list[str] = []
    kinds: list[bool] = []
    for wild, run in groupby(characters, itemgetter(1)):
        text = "".join(character for character, _ in run)
        own = "_" * text.count("_") + "%" * ("%" in text) if wild else [text]
        parts.extend(own)
        kinds.extend([wild] * len(own))
    return tuple(parts), tuple(kinds)


def shape_of(parts: tuple[str, ...], kinds: tuple[bool, ...]) -> tuple[PatternShape, str]:
    """The shape of a pattern with at least one wildcard, and the literal text that decides it."""
    if kinds == (False, True) and parts[1] == "%":
        return PatternShape.PREFIX, parts[0]
    if kinds == (True, False) and parts[0] == "%":
        return PatternShape.SUFFIX, parts[1]
    if kinds == (True, False, True) and parts[0] == parts[2] == "%":
        return PatternShape.SUBSTRING, parts[1]
    return PatternShape.GENERAL, ""


def like(parts: tuple[str, ...], kinds: tuple[bool, ...], text: str) -> bool:
    """Whether all of `text` matches.

    The pieces between two `%` have a fixed length: the first must stand at the start, the last at the end, and each
    of the others takes the leftmost place behind the one before. It never goes back, so no pattern takes long; a
    regular expression goes back exponentially often on '%a%a%a%a%b'."""
    pieces: list[_Piece] = [[]]
    for part, wild in zip(parts, kinds, strict=True):
        if wild and part == "%":
            pieces.append([])
        else:
            pieces[-1].append((part, wild))
    first, last = pieces[0], pieces[-1]
    start, end = _length(first), len(text) - _length(last)
    if len(pieces) == 1:
        return end == 0 and _stands_at(first, text, 0)
    if start > end or not _stands_at(first, text, 0) or not _stands_at(last, text, end):
        return False
    for piece in pieces[1:-1]:
        found = _find(piece, text, start, end)
        if found < 0:
            return False
        start = found + _length(piece)
    return True


_Piece = list[tuple[str, bool]]


def _length(piece: _Piece) -> int:
    return sum(len(part) for part, _ in piece)


def _stands_at(piece: _Piece, text: str, position: int) -> bool:
    for part, wild in piece:
        if not wild and not text.startswith(part, position):
            return False
        position += len(part)
    return True


def _find(piece: _Piece, text: str, start: int, end: int) -> int:
    """The leftmost place of `piece` in text[start:end], or -1."""
    if len(piece) == 1 and not piece[0][1]:
        return text.find(piece[0][0], start, end)
    # Shift-and: bit i of `state` says that the first i + 1 characters of the piece end here. It takes one integer
    # operation per character of the text, whatever the piece.
    characters = [None if wild else character for part, wild in piece for character in part]
    anything = sum(1 << i for i, character in enumerate(characters) if character is None)
    masks: dict[str, int] = {}
    for i, character in enumerate(characters):
        if character is not None:
            masks[character] = masks.get(character, anything) | 1 << i
    final = 1 << len(characters) - 1
    state = 0
    for position in range(start, end):
        state = (state << 1 | 1) & masks.get(text[position], anything)
        if state & final:
            return position - len(characters) + 1
    return -1


def write_pattern(parts: tuple[str, ...], kinds: tuple[bool, ...]) -> tuple[str, str | None]:
    """A pattern, and its escape character if it needs one, that parse to these parts."""
    if not any("%" in part or "_" in part for part, wild in zip(parts, kinds, strict=True) if not wild):
        return "".join(parts), None
    written = [
        part if wild else part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        for part, wild in zip(parts, kinds, strict=True)
    ]
    return "".join(written), "\\"
