"""Reads JSON text strictly: it refuses what two readers could take in two ways.

It refuses text that is not UTF-8, a key that an object has twice, NaN, Infinity and numbers that overflow to them,
integers beyond 64 bit, lone surrogates, anything after the value, and nesting beyond a limit. It ignores a byte
order mark at the start, as RFC 8259 permits.

There are two ways through a text, and both give the same values:

    plain    `read_plain`: msgspec reads a text that has nothing unusual in it,
             in about half the time.
    careful  `read_value`, then `check_value`: the standard library reads any text, and the walk over the tree raises
             with the path of what is wrong. The library reports a repeated key without its place, so an object
             with one becomes a `Repeated` until the walk finds it.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from culver.errors import InvalidEvent

SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**63 - 1

T = TypeVar("T")

_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_SHOWN_NAME = 256

# How the standard library's error about a string without an end begins. Its position is where the string begins.
_UNTERMINATED = "Unterminated"

# In characters: more than any token has, except a string or a number.
_WINDOW_MARGIN = 64

# In characters: far beyond 64 bit, and far below the length that Python refuses to convert.
_LONGEST_INTEGER = 40

# Far below what any number of strings makes up for.
_NEVER = -(2**62)

OVERSIZED = object()


class Repeated(dict[str, Any]):
    """An object in which a key stands twice. It never leaves this package as a value: `refuse_repeated` raises."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.repeated: list[str] = []
        for key, value in pairs:
            if key in self:
                self.repeated.append(key)
            self[key] = value


def strict_json(body: bytes | str, max_depth: int) -> Any:
    """The value of a JSON text. Raises InvalidEvent: `field` is the path of the member at fault where there is one,
    and for a syntax error `details` holds `position`, `line` and `column` (in characters).

    A list or object counts as one level of depth, so `{"a": [1]}` has two."""
    text = decode_text(body)
    value = read_plain(text, msgspec.json.decode)
    try:
        # The reader may go deeper than the two that walk through what it has read.
        if isinstance(value, dict | list) and 2 * _strings_in(value, max_depth) == text.count('"'):
            return value
        value = read_value(text)
        check_value(value, "", 1, max_depth)
    except RecursionError:
        raise too_deep("", max_depth) from None
    return value


def read_plain(text: str, decode: Callable[[str], T]) -> T | None:
    """The value of a text that has nothing wrong and nothing unusual in it; None for any other text, right or wrong.

    msgspec refuses everything that strict reading refuses, with two exceptions. It reads integers of any size, so the
    caller checks those. And it takes the last of repeated keys. Because nothing is escaped, every quote begins
    or ends a string: the caller compares the quotes of the text with those of the strings that it got, keys
    included. If there are more in the text, a key was repeated."""
    if "\\" in text:
        return None
    try:
        return decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _strings_in(value: Any, levels: int) -> int:
    """Count the strings of a tree with its keys; below zero where it is too deep or an integer too large."""
    if levels == 0:
        return _NEVER
    count, members = (len(value), value.values()) if type(value) is dict else (0, value)
    for member in members:
        kind = type(member)
        if kind is str:
            count += 1
        elif kind is dict or kind is list:
            count += _strings_in(member, levels - 1)
        elif kind is int and not SMALLEST_INTEGER <= member <= LARGEST_INTEGER:
            return _NEVER
    return count


def decode_text(body: bytes | str) -> str:
    """The characters of a body, without a byte order mark. Raises InvalidEvent unless it is UTF-8."""
    if isinstance(body, str):
        text = body
    else:
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise InvalidEvent(f"the text is not UTF-8, see byte {exc.start}", byte=exc.start) from None
    return text[1:] if text.startswith("\ufeff") else text


def read_value(text: str) -> Any:
    """The one value of a text, unchecked: it may hold `Repeated` objects, numbers that no event may have and lone
    surrogates. Raises InvalidEvent where the text is not JSON."""
    start = skip_space(text, 0)
    try:
        value, end = _decode(text, start)
    except json.JSONDecodeError as exc:
        raise _decoding_error(text, start, exc.pos, exc.msg) from None
    _expect_end(text, end)
    return value


def find_member(text: str, name: str) -> Any:
    """A member, unchecked, of the object in a text that strict reading refused; None unless there is one."""
    try:
        value = read_value(decode_text(text))
    except InvalidEvent:
        return None
    if not isinstance(value, dict) or (isinstance(value, Repeated) and name in value.repeated):
        return None
    return value.get(name)


def read_items(text: str, longest: int) -> Iterator[Any]:
    """Yield the items of an array, unchecked like the value of `read_value`, one by one, so that a caller may stop at
    its limit. An item of more than `longest` characters comes as OVERSIZED and is the last one.

    Raises InvalidEvent where the text stops being an array."""
    at = skip_space(text, skip_space(text, 0) + 1)
    if text[at : at + 1] == "]":
        _expect_end(text, at + 1)
        return
    # The decoder sees a window of the text, so that it does not read an item of many megabytes to its end: as a tree,
    # the item would take thirty times its size. A window shows more than `longest` characters.
    size = 4 * longest + _WINDOW_MARGIN
    base, window = at, text[at : at + size]
    while True:
        if at - base > 3 * longest and base + len(window) < len(text):
            base, window = at, text[at : at + size]
        try:
            item, end = _decode(window, at - base)
        except json.JSONDecodeError as exc:
            is_cut = base + len(window) < len(text)
            reaches_far = exc.msg.startswith(_UNTERMINATED) or base + exc.pos - at > longest
            if is_cut and reaches_far:
                yield OVERSIZED
                return
            raise _decoding_error(text, at, base + exc.pos, exc.msg) from None
        if base + end - at > longest:
            yield OVERSIZED
            return
        yield item
        at = skip_space(text, base + end)
        separator = text[at : at + 1]
        if separator == "]":
            _expect_end(text, at + 1)
            return
        if separator != ",":
            raise _syntax_error(text, at, "expected ',' or ']'")
        at = skip_space(text, at + 1)


def skip_space(text: str, at: int) -> int:
    """The position of the first character from `at` on that is not JSON's white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def check_value(value: Any, path: str, depth: int, max_depth: int) -> None:
    """Check a value and all that is in it; raises InvalidEvent with the path of what is wrong."""
    kind = type(value)
    if kind is str:
        if not value.isascii():
            refuse_surrogates(value, path)
    elif kind is int:
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise integer_too_large(path)
    elif kind is float:
        if not math.isfinite(value):
            raise not_finite(path)
    elif kind is list:
        if depth > max_depth:
            raise too_deep(path, max_depth)
        for index, item in enumerate(value):
            check_value(item, f"{path}[{index}]", depth + 1, max_depth)
    elif isinstance(value, dict):
        if depth > max_depth:
            raise too_deep(path, max_depth)
        prefix = path + "." if path else ""
        refuse_repeated(value, prefix)
        for key, item in value.items():
            inner = prefix + key
            if not key.isascii():
                refuse_surrogates(key, inner)
            check_value(item, inner, depth + 1, max_depth)
    elif kind is not bool and value is not None:
        raise fault(path, "has a value that is not JSON")


def refuse_repeated(members: dict[str, Any], prefix: str) -> None:
    if type(members) is Repeated:
        name = show(prefix + members.repeated[0])
        raise InvalidEvent(f"the key {name!r} is there twice; send it once", field=name)


def refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise fault(path, "holds half of a surrogate pair; send whole characters", "the text") from None


def integer_too_large(path: str) -> InvalidEvent:
    return fault(path, "is an integer beyond 64 bit; send it as a string or as a real", "the number")


def not_finite(path: str) -> InvalidEvent:
    return fault(path, "is not a finite number; leave it out instead", "the number")


def too_deep(path: str, max_depth: int) -> InvalidEvent:
    message = f"the nesting is deeper than {max_depth} levels; flatten it"
    return InvalidEvent(message, field=show(path) or None, limit=max_depth)


def fault(path: str, what: str, nameless: str = "the value") -> InvalidEvent:
    """The error about the member at `path`, which a text that is one value does not have."""
    name = show(path)
    return InvalidEvent(f"{name or nameless} {what}", field=name or None)


def show(name: str) -> str:
    """A name as an error may carry it: of bounded length, and encodable whatever was sent."""
    if len(name) > _LONGEST_SHOWN_NAME:
        name = name[: _LONGEST_SHOWN_NAME - 1] + "…"
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else Repeated(pairs)


def _integer(digits: str) -> int:
    # One integer beyond 64 bit stands for all that Python refuses to convert: `check_value` then refuses it.
    return int(digits) if len(digits) < _LONGEST_INTEGER else 2**64


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
_DECODER_OF_LONG_INTEGERS = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def _decode(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends. Raises JSONDecodeError and InvalidEvent."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _DECODER_OF_LONG_INTEGERS.raw_decode(text, at)
    except RecursionError:
        raise InvalidEvent("the nesting is far too deep; flatten it") from None


def _decoding_error(text: str, start: int, position: int, message: str) -> InvalidEvent:
    if start >= len(text):
        return _syntax_error(text, start, "a value is missing" if text else "the text is empty")
    return _syntax_error(text, position, message[:1].lower() + message[1:])


def _expect_end(text: str, at: int) -> None:
    at = skip_space(text, at)
    if at < len(text):
        raise _syntax_error(text, at, "there is more text after the value")


def _syntax_error(text: str, position: int, what: str) -> InvalidEvent:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    place = f"line {line}, column {column}" if "\n" in text else f"column {column}"
    return InvalidEvent(f"not valid JSON at {place}: {what}", position=position, line=line, column=column)
