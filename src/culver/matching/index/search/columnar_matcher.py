"""Hot: matches a batch of events against several columnar segments at once.

The kernels work on flat arrays, which `segment_layout` draws: from what a tile has found to the numbers of
registrations, for one segment or several."""

import functools
from collections.abc import Sequence

import numpy as np

from culver.jit import Integers, compiled
from culver.matching.filter import Matches
from culver.matching.index.compile.clause_table import run_starts
from culver.matching.index.intrinsics.raw_memory import longs_at, shorts_at
from culver.matching.index.intrinsics.vectors import LANES, emit
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.key_kernels import Programs, fill_keys
from culver.matching.index.keys.single_event import layout_of
from culver.matching.index.layout.segment_arrays import (
    ADDRESSES_WIDTH,
    SegmentArrays,
    address_and_length,
    addresses_of,
    arrays_at,
)
from culver.matching.index.needs.met_needs import MetNeeds
from culver.matching.index.search.box_search import TILE, no_findings, search_tile, widest_group
from culver.matching.index.search.bucket_search import EventKeys
from culver.matching.index.search.buffer_pool import result_buffer
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.segment_file import SegmentView
from culver.model import Domain, Event
from culver.model.columns import pack

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
        """The events to match together, so that their keys do not take too much memory."""
        self.registrations = sum(len(view.segment) for view in views)

    @functools.cached_property
    def domains(self) -> frozenset[tuple[str, Domain | None]]:
        """The attributes, each with a domain of values that a filter compares it with, or None for any; perhaps some
        of filters that were removed."""
        return frozenset[tuple[str, Domain | None]]().union(*(view.segment.domains for view in self.views))

    @functools.cached_property
    def attributes(self) -> frozenset[str]:
        """The names in `domains`."""
        return frozenset(name for name, _ in self.domains)

    def matches_per_row(self) -> float:
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
        kept: list[MetNeeds] = []  # alive until the kernel has returned
        if self._needy:
            met = met.copy()
            for place, needs in self._needy:
                kept.append(needs.evaluate(columns))
                met[4 * place : 4 * place + 4] = (
                    *address_and_length(kept[-1].start),
                    *address_and_length(kept[-1].needs),
                )
        buffer = result_buffer(int(1.25 * self.matches_per_row() * rows) + _SPARE)
        program = columns.program(self._programs)
        offsets, numbers, ends = match_segments(
            self._described, program, columns.address, met, first_position, rows, buffer
        )
        if rows >= _TELLING_ROWS:
            for view, found in zip(self.views, np.diff(ends, prepend=0).tolist(), strict=True):
                view.segment.matches_per_row = found / rows
        return Matches(offsets, numbers)

    def match_event(self, event: Event) -> Integers:
        """Find the numbers of the registrations that one event matches, whatever the log position."""
        if self._needy or event.context:  # needs are worked out for columns
            return self.match(BatchColumns(pack([event], 0)[0].batch), 0).numbers
        if not self.views:
            return _NOTHING
        layout = layout_of((tuple(event.data), tuple(map(type, event.data.values()))))
        memory = layout.put(event.data)
        _, numbers, _ = match_segments(
            self._described, layout.program(self._programs), memory.address, self._no_needs_met, 0, 1,
            np.empty(_SPARE, np.int64),
        )  # fmt: skip
        layout.done(memory)
        return numbers


def _described(view: ColumnarView) -> Integers:
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


# Rows that can be told apart in a byte.
_STAMPS = 255


@compiled
def match_rows(
    segment: SegmentArrays,
    until: Integers,
    windowed: bool,
    repeats: bool,
    dense: bool,
    first_position: int,
    events: EventKeys,
    offsets: Integers,
    numbers: Integers,
) -> Integers:
    """Match a batch against one segment. The numbers of the registrations that row r matches, distinct, go to
    numbers[offsets[r] : offsets[r + 1]]; the first offset is given. Returns `numbers`, larger where it had to grow.

    `until` is looked at only if `windowed`, and empty where no registration has ended; `repeats` says that a
    registration may be found through several clauses, `dense` that the numbers follow one another without a hole.
    """
    rows = events.rows
    # The stamp of the row that found each registration last.
    seen = np.zeros(len(segment.numbers) if repeats else 0, np.uint8)
    own, since, slot_registration = segment.numbers, segment.since, segment.slot_registration
    lowest_number = own[0] if len(own) > 0 else 0
    total = offsets[0]
    ending = len(until) > 0
    memory, widest = no_findings(segment), widest_group(segment)
    boxed = np.empty(4096, np.int32)
    for tile in range(0, rows, TILE):
        end = min(rows, tile + TILE)
        memory, listed = search_tile(segment, widest, tile, end, events, memory)
        runs, work, begins, ends = memory.runs, memory.work, memory.begins, memory.ends
        slots, masks = memory.slots, memory.masks
        item = 0
        for row in range(tile, end):
            found, begin, last = memory.found, runs[row - tile], runs[row - tile + 1]
            stamp = np.uint8(row % _STAMPS + 1)
            if stamp == 1:
                seen[:] = 0
            while True:
                size = last - begin
                if total + size >= len(numbers):
                    larger = np.empty(2 * (total + size) + 64, np.int64)
                    larger[:total] = numbers[:total]
                    numbers = larger
                if not windowed and not repeats:
                    # Unsigned indices, because signed ones keep the loop from being vectorised well.
                    if dense:
                        for i in range(size):
                            numbers[np.uintp(total + i)] = lowest_number + found[np.uintp(begin + i)]
                    else:
                        for i in range(size):
                            numbers[np.uintp(total + i)] = own[found[np.uintp(begin + i)]]
                    total += size
                elif not windowed and dense:
                    # Always written, and kept if it counts: there is no branch to predict.
                    for i in range(size):
                        registration = np.uintp(found[np.uintp(begin + i)])
                        numbers[np.uintp(total)] = lowest_number + np.int64(registration)
                        total += seen[registration] != stamp
                        seen[registration] = stamp
                else:
                    for i in range(size):
                        registration = np.uintp(found[np.uintp(begin + i)])
                        numbers[np.uintp(total)] = own[registration]
                        counts = True
                        if repeats:
                            counts = seen[registration] != stamp
                            seen[registration] = stamp
                        if windowed:
                            counts &= since[registration] <= first_position + row
                            if ending:
                                counts &= first_position + row < until[registration]
                        total += counts
                if item == listed or work[3 * item] != row:
                    break
                room = LANES * (ends[item] - begins[item] + 1)
                if room > len(boxed):
                    boxed = np.empty(2 * room, np.int32)
                found, begin, last = boxed, 0, 0
                for hit in range(begins[item], ends[item]):
                    last = emit(masks[np.uintp(hit)], slot_registration, slots[np.uintp(hit)], boxed, last)
                item += 1
            offsets[row + 1] = total
    return numbers


@compiled
def join(offsets: Integers, numbers: Integers, bases: Integers, rows: int) -> tuple[Integers, Integers]:
    """Put the results of several segments together by row.

    `offsets` holds rows + 1 entries per segment, relative to the segment's part of `numbers`, which begins at
    `bases[segment]`.
    """
    result_offsets = np.zeros(rows + 1, np.int64)
    result = np.empty(len(numbers), np.int64)
    count = 0
    for row in range(rows):
        for segment in range(len(bases)):
            at = segment * (rows + 1) + row
            begin = bases[segment] + offsets[at]
            size = offsets[at + 1] - offsets[at]
            for i in range(size):
                result[count + i] = numbers[begin + i]
            count += size
        result_offsets[row + 1] = count
    return result_offsets, result


# A segment as `match_segments` takes it: the addresses of its arrays, then these.
HEADS = ADDRESSES_WIDTH
UNTIL = ADDRESSES_WIDTH + 2
LATEST, REPEATS, DENSE = range(ADDRESSES_WIDTH + 4, ADDRESSES_WIDTH + 7)
PART_WIDTH = ADDRESSES_WIDTH + 7


@compiled
def match_segments(
    parts: Integers,
    program: Integers,
    batch: int,
    held: Integers,
    first_position: int,
    rows: int,
    numbers: Integers,
) -> tuple[Integers, Integers, Integers]:
    """Match a batch against several segments: row r matches numbers[offsets[r] : offsets[r + 1]].

    `parts` has PART_WIDTH entries for each of them, `held` the addresses and lengths of the two arrays of
    `MetNeeds`, or zeros; `program` and `batch` are those of `fill_keys`, for the dimensions of all segments. The
    result is written to `numbers` where it fits. Returns offsets, numbers, and how many numbers were found up to the
    end of each segment."""
    count = len(parts) // PART_WIDTH
    offsets = np.zeros(count * (rows + 1), np.int64)
    ends = np.zeros(count + 1, np.int64)
    nothing = np.zeros(rows + 1, np.int64)
    dimension = 0
    for place in range(count):
        part = parts[place * PART_WIDTH : (place + 1) * PART_WIDTH]
        segment = arrays_at(part)
        dimensions = len(segment.dimension_bucket)
        values, there = fill_keys(
            batch, program, dimension, dimensions, rows, segment.literal_start, segment.literal_bytes,
            longs_at(part[HEADS], part[HEADS + 1]).view(np.uint64),
        )  # fmt: skip
        dimension += dimensions
        held_start, held_needs = nothing, shorts_at(held[4 * place + 2], held[4 * place + 3])
        if held[4 * place] != 0:
            held_start = longs_at(held[4 * place], held[4 * place + 1])
        until = longs_at(part[UNTIL], part[UNTIL + 1])
        windowed = len(until) > 0 or part[LATEST] > first_position
        own = offsets[place * (rows + 1) : (place + 1) * (rows + 1)]
        own[0] = ends[place]
        events = EventKeys(rows, values, there, held_start, held_needs)
        repeats, dense = part[REPEATS] != 0, part[DENSE] != 0
        numbers = match_rows(segment, until, windowed, repeats, dense, first_position, events, own, numbers)
        ends[place + 1] = own[rows]
    if count > 1:
        offsets, numbers = join(offsets, numbers[: ends[count]], np.zeros(count, np.int64), rows)
    return offsets, numbers[: ends[count]], ends[1:]
