"""Points at a place in a text: shows its line, and a caret beneath."""

import unicodedata

# Columns. A longer line is cut to the part around the place, with so many columns before it.
_WIDTH = 100
_LEAD = 40
_CUT = "..."


def point_at(text: str, position: int) -> list[str]:
    """Two lines: the line of `text` that holds the character at `position` (from 0), and the caret. The end
    of the text is a place too."""
    position = max(0, min(position, len(text)))
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : len(text) if end < 0 else end]
    before, after = _printable(line[: position - start]), _printable(line[position - start :])
    if _columns(before) + _columns(after) > _WIDTH:
        if len(before) > _LEAD:
            before = _CUT + before[-_LEAD:]
        room = _WIDTH - _columns(before)
        if len(after) > room:
            after = after[:room] + _CUT
    return [(before + after).rstrip(), " " * _columns(before) + "^"]


def _printable(text: str) -> str:
    """Control characters, tabs among them, take one blank column each."""
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


def _columns(text: str) -> int:
    """How many columns a terminal gives the text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
