"""Text of others on a terminal: filters, events, names and errors may hold characters that would steer it."""

import re

# Control characters but tabs and line breaks, line separators, and marks that reverse the direction of the text.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with such characters as `\\u001b`, which means the same in a JSON text."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
