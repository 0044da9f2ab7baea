"""The last step of matching: from what a tile has found to the numbers of registrations, for one segment or several.

Hot. All of it works on flat arrays, which `segment_layout` draws.
"""

import numpy as np

from culver.jit import Bytes, Integers, Shorts, compiled
from culver.matching.index.intrinsics.raw_memory import longs_at, shorts_at
from culver.matching.index.intrinsics.vectors import LANES, emit
from culver.matching.index.keys.key_kernels import fill_keys
from culver.matching.index.layout.segment_arrays import ADDRESSES_WIDTH, SegmentArrays, arrays_at
from culver.matching.index.search.box_search import TILE, no_findings, search_tile, widest_group

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
    rows: int,
    values: Integers,
    there: Bytes,
    held_start: Integers,
    held_needs: Shorts,
    offsets: Integers,
    numbers: Integers,
) -> Integers:
    """Match a batch against one segment. The numbers of the registrations that row r matches, distinct, go to
    numbers[offsets[r] : offsets[r + 1]]; the first offset is given. Returns `numbers`, larger where it had to grow.

    `values` and `there` are dimensions x rows: a key, and 0 where the event has none. A row meets the needs
    held_needs[held_start[row] : held_start[row + 1]]. `until` is looked at only if `windowed`, and empty where no
    registration has ended; `repeats` says that a registration may be found through several clauses, `dense` that
    the numbers follow one another without a hole.
    """
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
        memory, listed = search_tile(
            segment, widest, tile, end, rows, values, there, held_start, held_needs, memory
        )
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
    `RowNeeds`, or zeros; `program` and `batch` are those of `fill_keys`, for the dimensions of all segments. The
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
        numbers = match_rows(
            segment, until, windowed, part[REPEATS] != 0, part[DENSE] != 0, first_position, rows, values, there,
            held_start, held_needs, own, numbers,
        )  # fmt: skip
        ends[place + 1] = own[rows]
    if count > 1:
        offsets, numbers = join(offsets, numbers[: ends[count]], np.zeros(count, np.int64), rows)
    return offsets, numbers[: ends[count]], ends[1:]
