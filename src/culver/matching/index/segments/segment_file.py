"""Segments of any scheme: what goes into one, opening its file, and how an index version sees it.

A segment never changes, so a view notes beside it where registrations have ended:

    segment   numbers   3     4     7     9          until None: none of them has ended
    until               max   120   max   95         4 is in effect below position 120, 9 below 95
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from culver.jit import Integers
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.segments import columnar_segment, container, text_segment
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.text_segment import Texts, TextSegment, texts_of
from culver.model import COLUMNAR

FOREVER = 2**63 - 1
"""The end of a registration that has not ended."""

Content = ClauseTable | Texts
AnySegment = ColumnarSegment | TextSegment
S = TypeVar("S", ColumnarSegment, TextSegment)

_open: "weakref.WeakValueDictionary[tuple[str, int, int, int], AnySegment]" = weakref.WeakValueDictionary()
_checked: set[tuple[str, int, int, int]] = set()
_MOST_CHECKED = 10_000


@dataclass(frozen=True, slots=True)
class SegmentView(Generic[S]):
    segment: S
    until: Integers | None = None

    def in_effect(self) -> int:
        if self.until is None:
            return len(self.segment)
        return int(np.count_nonzero(self.until == FOREVER))


def contents_of(entries: Sequence[Entry]) -> list[tuple[ClauseTable, Content]]:
    """Sort entries by scheme: for each, the clauses that a partitioner looks at, and the content to store."""
    by_scheme: dict[str, list[Entry]] = {}
    for entry in entries:
        by_scheme.setdefault(entry.scheme, []).append(entry)
    made: list[tuple[ClauseTable, Content]] = []
    for scheme, own in sorted(by_scheme.items()):
        table = compile_entries(own)
        made.append((table, table if scheme == COLUMNAR else texts_of(scheme, own)))
    return made


def encode_segment(content: Content) -> list[bytes]:
    """The container of a segment, as byte strings to be written one after another."""
    return text_segment.encode(content) if isinstance(content, Texts) else columnar_segment.encode(content)


def open_segment(path: Path) -> AnySegment:
    """Map a segment file of any scheme. Raises FileNotFoundError, StorageCorrupt.

    Versions share segments, so a file that is open in this process is not read again. A file that was open before is
    not checked again, because a worker that takes turns with slices opens the same ones often.
    """
    status = path.stat()
    key = (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
    segment = _open.get(key)
    if segment is None:
        opened = container.read(path, check_body=key not in _checked)
        is_text = opened.kind == text_segment.KIND
        segment = TextSegment(opened) if is_text else ColumnarSegment(opened, str(path))
        _open[key] = segment
        if len(_checked) >= _MOST_CHECKED:
            _checked.clear()
        _checked.add(key)
    return segment
