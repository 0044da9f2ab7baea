"""Matching a batch of events against several columnar segments at once."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.index.compile.clause_table import run_starts
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.key_kernels import Programs
from culver.matching.index.layout.segment_arrays import address_and_length, addresses_of
from culver.matching.index.needs.row_needs import RowNeeds
from culver.matching.index.search.buffer_pool import result_buffer
from culver.matching.index.search.match_kernels import match_segments
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.segment_view import SegmentView

# Rows times dimensions that are worked on at a time.
_MOST_KEYS = 1 << 23
# Entries of a result beyond what is usual, for when a few events match more.
_SPARE = 2048
# A batch of fewer rows says little about how much the next will match.
_TELLING_ROWS = 64
_NOTHING = np.empty(0, np.int64)

ColumnarView = SegmentView[ColumnarSegment]


class ColumnarMatcher:
    """Matches events against the same segments again and again. Threads may share it."""

    def __init__(self, views: Sequence[ColumnarView]) -> None:
        self.views = tuple(views)
        self._described = np.concatenate([_NOTHING, *(_described(view) for view in views)])
        self._programs = Programs([each for view in views for each in view.segment.dimensions])
        needs = [view.segment.needs for view in views]
        self._needy = [(place, each) for place, each in enumerate(needs) if each.count]
        self._no_needs_met = np.zeros(4 * len(views), np.int64)
        widest = max((len(view.segment.dimensions) for view in views), default=1)
        self.rows_at_a_time = max(1, _MOST_KEYS // max(1, widest))
        """How many events to match together, so that their keys do not take too much memory."""
        self.registrations = sum(len(view.segment) for view in views)

    def __iter__(self) -> Iterator[ColumnarView]:
        return iter(self.views)

    def matches_per_row(self) -> float:
        """How many registrations an event of the last large batch matched, on average."""
        return sum([view.segment.matches_per_row for view in self.views])

    def changes_within(self, start: int, end: int) -> bool:
        """Whether a registration may begin or end between these positions."""
        for view in self.views:
            if view.segment.latest > start:
                return True
            if view.until is not None and bool(np.any((view.until > start) & (view.until < end))):
                return True
        return False

    def match(self, columns: BatchColumns, first_position: int) -> Matches:
        """Find the registrations in effect that each row matches. Row i is at log position first_position + i."""
        rows, step = columns.rows, self.rows_at_a_time
        if rows == 0 or not self.views:
            return Matches(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
        if rows > step:
            pieces = [
                self.match(BatchColumns(columns.batch.slice(begin, step)), first_position + begin)
                for begin in range(0, rows, step)
            ]
            counts = np.concatenate([np.diff(piece.offsets) for piece in pieces])
            return Matches(run_starts(counts), np.concatenate([piece.numbers for piece in pieces]))
        met = self._no_needs_met
        kept: list[RowNeeds] = []  # alive until the kernel has returned
        if self._needy:
            met = met.copy()
            for place, needs in self._needy:
                kept.append(needs.evaluate(columns))
                met[4 * place : 4 * place + 4] = (
                    *address_and_length(kept[-1].start),
                    *address_and_length(kept[-1].needs),
                )
        buffer = result_buffer(int(1.25 * self.matches_per_row() * rows) + _SPARE)
        offsets, numbers, ends = match_segments(
            self._described,
            columns.program(self._programs),
            columns.address,
            met,
            first_position,
            rows,
            buffer,
        )
        if rows >= _TELLING_ROWS:
            for view, found in zip(self.views, np.diff(ends, prepend=0).tolist(), strict=True):
                view.segment.matches_per_row = found / rows
        return Matches(offsets, numbers)


def _described(view: ColumnarView) -> NDArray[np.int64]:
    """A segment as `match_segments` takes it."""
    segment = view.segment
    return np.array(
        [
            *addresses_of(segment.arrays).tolist(),
            *address_and_length(segment.literals.heads),
            *((0, 0) if view.until is None else address_and_length(view.until)),
            segment.latest,
            segment.repeats,
            segment.dense,
        ],
        np.int64,
    )
