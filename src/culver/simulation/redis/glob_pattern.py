"""Patterns of channels as Redis matches them, with all its habits."""

import re
from functools import lru_cache


def matches_glob(pattern: bytes, name: bytes) -> bool:
    """Whether PSUBSCRIBE with this pattern covers a channel: ``*``, ``?``, ``[a-z]``, ``[^a]`` and a backslash.

    An unclosed bracket ends with the pattern, and only the empty pattern matches the empty name.
    """
    if not name:
        return not pattern
    return _compile(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1_000)
def _compile(pattern: bytes) -> re.Pattern[bytes]:
    parts: list[bytes] = []
    position = 0
    while position < len(pattern):
        character = pattern[position : position + 1]
        position += 1
        if character == b"*":
            if not parts or parts[-1] != b".*":
                parts.append(b".*")
        elif character == b"?":
            parts.append(b".")
        elif character == b"[":
            characters, position = _read_class(pattern, position)
            parts.append(characters)
        else:
            if character == b"\\" and position < len(pattern):
                character = pattern[position : position + 1]
                position += 1
            parts.append(re.escape(character))
    return re.compile(b"".join(parts), re.DOTALL)


def _read_class(pattern: bytes, position: int) -> tuple[bytes, int]:
    """The class that begins behind a bracket, as a regular expression, and the position behind it."""
    negated = pattern[position : position + 1] == b"^"
    if negated:
        position += 1
    wanted: set[int] = set()
    while position < len(pattern) and pattern[position : position + 1] != b"]":
        left = len(pattern) - position
        if left >= 2 and pattern[position : position + 1] == b"\\":
            wanted.add(pattern[position + 1])
            position += 2
        elif left >= 3 and pattern[position + 1 : position + 2] == b"-":
            low, high = sorted((_signed(pattern[position]), _signed(pattern[position + 2])))
            wanted |= {byte for byte in range(256) if low <= _signed(byte) <= high}
            position += 3
        else:
            wanted.add(pattern[position])
            position += 1
    allowed = [byte for byte in range(256) if (byte in wanted) != negated]
    # A class of nothing matches nothing.
    listed = b"".join(b"\\x%02x" % byte for byte in allowed)
    return (b"[" + listed + b"]" if listed else b"(?!)"), position + 1


def _signed(byte: int) -> int:
    """Redis compares characters of a range as signed numbers."""
    return byte - 256 if byte > 127 else byte
