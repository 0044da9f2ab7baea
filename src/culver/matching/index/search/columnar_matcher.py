"""Matching a batch against several segments, and merging segments into one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.index.compile.clause_table import ClauseTable, concatenate, select_registrations, starts
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.key_kernels import Programs
from culver.matching.index.layout.segment_arrays import addresses_of, place_of
from culver.matching.index.needs.row_needs import Held
from culver.matching.index.search.buffer_pool import room_for
from culver.matching.index.search.match_kernels import match_segments
from culver.matching.index.segments.columnar_segment import Segment

FOREVER = 2**63 - 1
_MAX_CELLS = 1 << 23  # of rows x dimensions worked on at a time
_SPARE = 2048  # entries of a result, for what few events may match beyond what is usual
_TELLING_ROWS = 64  # a batch of fewer says little about the next
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Part:
    """A segment and, where some of its registrations have ended, the position at which each has (FOREVER
    for the others)."""

    segment: Segment
    until: NDArray[np.int64] | None = None

    def changes_within(self, start: int, end: int) -> bool:
        """Whether some registrations may be in effect for a part only of the positions from `start` to `end`."""
        until = self.until
        ending = until is not None and bool(np.any((until > start) & (until < end)))
        return ending or self.segment.latest > start

    def in_effect(self) -> int:
        """How many registrations have not ended."""
        if self.until is None:
            return len(self.segment)
        return int(np.count_nonzero(self.until == FOREVER))


class Parts:
    """Segments that are matched together. Safe to share between threads."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)
        self._described = np.concatenate([_NOTHING, *(_described(part) for part in parts)])
        self._programs = Programs([each for part in parts for each in part.segment.dimensions])
        needs = [part.segment.needs for part in parts]
        self._needy = [(place, each) for place, each in enumerate(needs) if each.count]
        self._none_held = np.zeros(4 * len(parts), np.int64)
        widest = max((len(part.segment.dimensions) for part in parts), default=1)
        self.rows_at_a_time = max(1, _MAX_CELLS // max(1, widest))
        """How many events to match together, so that their keys do not take too much memory."""
        self.registrations = sum(len(part.segment) for part in parts)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def matches_per_row(self) -> float:
        """Lately."""
        return sum([part.segment.matches_per_row for part in self._parts])

    def match(self, columns: BatchColumns, first_position: int) -> Matches:
        """The registrations in effect that each row matches; row i is at log position first_position + i."""
        rows, step = columns.rows, self.rows_at_a_time
        if rows == 0 or not self._parts:
            return Matches(np.zeros(rows + 1, np.int64), np.empty(0, np.int64))
        if rows > step:
            pieces = [
                self.match(BatchColumns(columns.batch.slice(begin, step)), first_position + begin)
                for begin in range(0, rows, step)
            ]
            counts = np.concatenate([np.diff(piece.offsets) for piece in pieces])
            return Matches(starts(counts), np.concatenate([piece.numbers for piece in pieces]))
        held = self._none_held
        kept: list[Held] = []  # alive until the kernel has returned
        if self._needy:
            held = held.copy()
            for place, needs in self._needy:
                kept.append(needs.evaluate(columns))
                held[4 * place : 4 * place + 4] = *place_of(kept[-1].start), *place_of(kept[-1].needs)
        room = room_for(int(1.25 * self.matches_per_row() * rows) + _SPARE)
        offsets, numbers, ends = match_segments(
            self._described,
            columns.program(self._programs),
            columns.address,
            held,
            first_position,
            rows,
            room,
        )
        if rows >= _TELLING_ROWS:
            for part, found in zip(self._parts, np.diff(ends, prepend=0).tolist(), strict=True):
                part.segment.matches_per_row = found / rows
        return Matches(offsets, numbers)


def _described(part: Part) -> NDArray[np.int64]:
    """For `match_segments`."""
    segment = part.segment
    heads = segment.literals.heads
    return np.array(
        [
            *addresses_of(segment.arrays).tolist(),
            *place_of(heads),
            *((0, 0) if part.until is None else place_of(part.until)),
            segment.latest,
            segment.repeats,
            segment.dense,
        ],
        np.int64,
    )


def merge_parts(
    parts: Sequence[Part], horizon: int, *added: ClauseTable
) -> tuple[ClauseTable, NDArray[np.int64] | None]:
    """One table of all registrations but those that ended at or below `horizon`, with those of the tables that are
    added, and when each has ended (None: none has)."""
    tables, untils = [], []
    for part in parts:
        table = part.segment.table()
        until = part.until
        if until is None:
            until = np.full(len(part.segment), FOREVER)
        else:
            kept = until > horizon
            table, until = select_registrations(table, kept), until[kept]
        tables.append(table)
        untils.append(until)
    for table in added:
        tables.append(table)
        untils.append(np.full(len(table.numbers), FOREVER))
    if len(tables) == 1 and added:
        return tables[0], None
    merged, origin = concatenate(tables)
    ended = np.concatenate(untils)[origin]
    return merged, (ended if (ended != FOREVER).any() else None)
