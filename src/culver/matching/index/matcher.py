"""Matching a batch against several segments, and merging segments into one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.index.columns import BatchColumns
from culver.matching.index.kernels import join, match_rows
from culver.matching.index.rooms import room_for
from culver.matching.index.segment import Segment
from culver.matching.index.table import ClauseTable, concatenate, select_registrations

FOREVER = 2**63 - 1
_MAX_CELLS = 1 << 23  # of rows x dimensions worked on at a time
_TELLING_ROWS = 64  # a batch of fewer says little about the next
_NEVER_ENDED = np.empty(0, np.int64)


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


def match_parts(parts: Sequence[Part], batch: pa.RecordBatch, first_position: int) -> Matches:
    """The registrations in effect that each row matches; row i is at log position first_position + i."""
    if batch.num_rows == 0 or not parts:
        return Matches(np.zeros(batch.num_rows + 1, np.int64), np.empty(0, np.int64))
    step = rows_at_a_time(parts)
    if batch.num_rows <= step:
        return _match_slice(parts, batch, first_position)
    pieces = [
        _match_slice(parts, batch.slice(begin, step), first_position + begin)
        for begin in range(0, batch.num_rows, step)
    ]
    counts = np.concatenate([np.diff(piece.offsets) for piece in pieces])
    offsets = np.zeros(batch.num_rows + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return Matches(offsets, np.concatenate([piece.numbers for piece in pieces]))


def rows_at_a_time(parts: Sequence[Part]) -> int:
    """How many events to match together, so that their keys do not take too much memory."""
    widest = max((len(part.segment.dimensions) for part in parts), default=1)
    return max(1, _MAX_CELLS // max(1, widest))


def _match_slice(parts: Sequence[Part], batch: pa.RecordBatch, first_position: int) -> Matches:
    columns = BatchColumns(batch)
    results = [_match_part(part, columns, first_position) for part in parts]
    if len(results) == 1:
        return Matches(*results[0])
    bases = np.zeros(len(results), np.int64)
    np.cumsum([len(numbers) for _, numbers in results[:-1]], out=bases[1:])
    offsets = np.concatenate([offsets for offsets, _ in results])
    numbers = np.concatenate([numbers for _, numbers in results])
    return Matches(*join(offsets, numbers, bases, columns.rows))


def _match_part(
    part: Part, columns: BatchColumns, first_position: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    segment = part.segment
    keys, there = columns.fill(segment.dimensions, segment.literals)
    held = segment.needs.evaluate(columns)
    windowed = part.until is not None or segment.latest > first_position
    until = part.until
    if until is None:
        until = np.full(len(segment), FOREVER) if windowed else _NEVER_ENDED
    room = room_for(int(1.25 * segment.matches_per_row * columns.rows) + 64)
    offsets, numbers = match_rows(
        segment.arrays, until, windowed, segment.repeats, segment.dense, first_position, columns.rows, keys, there,
        held.start, held.needs, room,
    )  # fmt: skip
    if columns.rows >= _TELLING_ROWS:
        segment.matches_per_row = len(numbers) / columns.rows
    return offsets, numbers


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
