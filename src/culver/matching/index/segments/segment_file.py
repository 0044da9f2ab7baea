"""Segments of any scheme: what goes into one, and opening its file."""

import weakref
from collections.abc import Sequence
from pathlib import Path

from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.segments import columnar_segment, container, text_segment
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.text_segment import Texts, TextSegment, texts_of
from culver.model import COLUMNAR

Content = ClauseTable | Texts
AnySegment = ColumnarSegment | TextSegment

_open: "weakref.WeakValueDictionary[tuple[str, int, int, int], AnySegment]" = weakref.WeakValueDictionary()
_checked: set[tuple[str, int, int, int]] = set()
_MOST_CHECKED = 10_000


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
