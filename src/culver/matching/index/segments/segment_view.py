"""A segment as an index version sees it: with the positions at which registrations have ended. And merging several.

A segment never changes, so what ends afterwards is noted beside it:

    segment   numbers   3     4     7     9          until None: none of them has ended
    until               max   120   max   95         4 is in effect below position 120, 9 below 95
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.compile.clause_table import ClauseTable, join_tables
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.text_segment import Texts, TextSegment, join_texts

FOREVER = 2**63 - 1
"""The end of a registration that has not ended."""

Integers = NDArray[np.int64]
S = TypeVar("S", ColumnarSegment, TextSegment)
C = TypeVar("C", ClauseTable, Texts)


@dataclass(frozen=True, slots=True)
class SegmentView(Generic[S]):
    segment: S
    until: Integers | None = None

    def in_effect(self) -> int:
        """How many registrations have not ended."""
        if self.until is None:
            return len(self.segment)
        return int(np.count_nonzero(self.until == FOREVER))


def merge_columnar(
    views: Sequence[SegmentView[ColumnarSegment]], horizon: int, added: Sequence[ClauseTable] = ()
) -> tuple[ClauseTable, Integers | None]:
    """Put all registrations into one table, with those that are added and without those that ended at or below
    `horizon`. Also returns the position at which each has ended (None: none has)."""
    return _merged([(view.segment.table(), view.until) for view in views], horizon, added, join_tables)


def merge_texts(
    views: Sequence[SegmentView[TextSegment]], horizon: int, added: Sequence[Texts] = ()
) -> tuple[Texts, Integers | None]:
    """Do as `merge_columnar`, for segments of one other scheme."""
    return _merged([(view.segment.content(), view.until) for view in views], horizon, added, join_texts)


def _merged(
    stored: Sequence[tuple[C, Integers | None]],
    horizon: int,
    added: Sequence[C],
    join: Callable[[Sequence[C]], tuple[C, Integers]],
) -> tuple[C, Integers | None]:
    if not stored and len(added) == 1:
        return added[0], None
    contents: list[C] = []
    untils: list[Integers] = []
    for content, until in stored:
        if until is None:
            until = np.full(len(content.numbers), FOREVER)
        else:
            kept = until > horizon
            content, until = content.select_registrations(kept), until[kept]
        contents.append(content)
        untils.append(until)
    for content in added:
        contents.append(content)
        untils.append(np.full(len(content.numbers), FOREVER))
    joined, origin = join(contents)
    ended = np.concatenate(untils)[origin]
    return joined, (ended if (ended != FOREVER).any() else None)
