"""The `ref` of a WebSocket message, by which a client knows which of its messages an answer is about."""

import json
import math
from typing import Any

from culver.errors import CulverError, InvalidRequest

Reference = str | int | float | None

MAX_LENGTH = 256
_INTEGERS = range(-(2**63), 2**63)
_LONGEST_INTEGER = 20  # characters of the longest one in 64 bit


def check_reference(value: Any) -> Reference:
    """The `ref` of a message that was read strictly. Raises InvalidRequest."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise InvalidRequest("ref must be a string or a number", field="ref")
    if isinstance(value, str) and len(value) > MAX_LENGTH:
        raise InvalidRequest(f"ref must not be longer than {MAX_LENGTH} characters", field="ref")
    return value


def find_reference(text: str) -> Reference:
    """The `ref` of a message that strict reading refused, or None where it has none that could be repeated.

    Never raises, and takes about as long as the strict reading did. A `ref` that is there twice is none."""
    try:
        message = _DECODER.decode(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, tuple):
        return None
    found = [value for name, value in message if name == "ref"]
    if len(found) != 1:
        return None
    try:
        reference = check_reference(found[0])
    except CulverError:
        return None
    return reference if _is_repeatable(reference) else None


def _is_repeatable(reference: Reference) -> bool:
    """Whether strict JSON has a form for it."""
    if isinstance(reference, str):
        return not any("\ud800" <= character <= "\udfff" for character in reference)
    if isinstance(reference, int):
        return reference in _INTEGERS
    return reference is None or math.isfinite(reference)


def _integer(digits: str) -> int | None:
    # Converting many digits is slow, and Python refuses it from some number of them on.
    return int(digits) if len(digits) <= _LONGEST_INTEGER else None


# An object becomes the tuple of its members, repeated ones included; only an object becomes a tuple.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_int=_integer)
