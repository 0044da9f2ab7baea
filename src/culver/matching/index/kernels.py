"""The compiled inner loops. Everything here works on flat arrays of integers and is hot.

Kernels are compiled on first use and kept in Numba's cache on disk (beside the package where that is
writable, in the user's cache directory otherwise). Numba replaces cache files as a whole, so processes that
start at once at worst compile the same kernel twice. They release the interpreter lock.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 64  # boxes in a block

# The place of a word's only bit, by multiplication with a de Bruijn sequence.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.zeros(64, np.int64)
for _place in range(64):
    _PLACES[((0x03F79D71B4CB0A89 << _place) % 2**64) >> 58] = _place

Integers = NDArray[np.int64]
Shorts = NDArray[np.int32]
Bytes = NDArray[np.uint8]


class SegmentArrays(NamedTuple):
    """The arrays of a segment as `layout` draws them; all read-only, so that kernels have one signature."""

    numbers: Integers
    since: Integers
    literal_start: Integers
    literal_bytes: Bytes
    access_dimension: Shorts
    access_start: Shorts
    key_value: Integers
    key_bucket: Shorts
    dimension_bucket: Shorts
    need_bucket: Shorts
    bucket_clauses: Shorts
    bucket_groups: Shorts
    clause_registration: Shorts
    clause_needs: Shorts
    term_start: Shorts
    term_dimension: Shorts
    term_bounds: Integers
    group_dimension_start: Shorts
    group_dimension: Shorts
    group_blocks: Shorts
    group_outer: Integers
    group_inner: Integers
    outer: Integers
    inner: Integers
    slot_registration: Shorts
    slot_needs: Shorts
    needs: Shorts


def compiled(function: F) -> F:
    """Numba's compiler as a decorator that keeps the function's type."""
    result: F = numba.njit(cache=True, nogil=True)(function)
    return result


@compiled
def _buckets_of_row(
    segment: SegmentArrays, row: int, values: Integers, there: Bytes, needs: Shorts, visits: Integers
) -> int:
    """Collect the buckets that an event reaches: the first, those of its values, those of its attributes,
    those of the needs that it meets. Returns how many."""
    visits[0] = 0
    count = 1
    dimensions = len(segment.dimension_bucket)
    base = row * dimensions
    for i in range(len(segment.access_dimension)):
        dimension = segment.access_dimension[i]
        if there[base + dimension] == 0:
            continue
        value = values[base + dimension]
        low = segment.access_start[i]
        end = segment.access_start[i + 1]
        high = end
        while low < high:
            middle = (low + high) >> 1
            if segment.key_value[middle] < value:
                low = middle + 1
            else:
                high = middle
        if low < end and segment.key_value[low] == value:
            visits[count] = segment.key_bucket[low]
            count += 1
    for dimension in range(dimensions):
        bucket = segment.dimension_bucket[dimension]
        if bucket >= 0 and there[base + dimension] != 0:
            visits[count] = bucket
            count += 1
    for i in range(len(needs)):
        bucket = segment.need_bucket[needs[i]]
        if bucket >= 0:
            visits[count] = bucket
            count += 1
    return count


@compiled
def match_rows(
    segment: SegmentArrays,
    until: Integers,
    windowed: bool,
    first_position: int,
    rows: int,
    values: Integers,
    there: Bytes,
    held_start: Integers,
    held_needs: Shorts,
) -> tuple[Integers, Integers]:
    """Match a batch against one segment: per row, the numbers of the registrations, ascending and distinct.

    `values` and `there` are rows x dimensions: a key, and 0 where the event has none. A row meets the needs
    held_needs[held_start[row] : held_start[row + 1]]. `until` is looked at only if `windowed`.
    """
    one = np.uint64(1)
    dimensions = len(segment.dimension_bucket)
    pool = len(segment.need_bucket)
    # Marked registrations, one bit each, and one bit per word that has any: reading them out gives
    # ascending, distinct numbers without a sort.
    words = np.zeros((len(segment.numbers) + 63) >> 6, np.uint64)
    summary = np.zeros((len(words) + 63) >> 6, np.uint64)
    visits = np.empty(1 + len(segment.access_dimension) + dimensions + pool, np.int64)
    widest = 0
    for group in range(len(segment.group_blocks) - 1):
        widest = max(widest, segment.group_blocks[group + 1] - segment.group_blocks[group])
    near = np.empty(widest, np.uint8)
    hit = np.empty(BLOCK, np.uint8)
    held = np.zeros(pool, np.uint8)
    offsets = np.zeros(rows + 1, np.int64)
    numbers = np.empty(max(256, 4 * rows), np.int64)
    found = 0
    for row in range(rows):
        base = row * dimensions
        met = held_needs[held_start[row] : held_start[row + 1]]
        for i in range(len(met)):
            held[met[i]] = 1
        position = first_position + row
        for visit in range(_buckets_of_row(segment, row, values, there, met, visits)):
            bucket = visits[visit]
            for clause in range(segment.bucket_clauses[bucket], segment.bucket_clauses[bucket + 1]):
                holds = True
                for term in range(segment.term_start[clause], segment.term_start[clause + 1]):
                    at = base + segment.term_dimension[term]
                    value = values[at]
                    if (
                        there[at] == 0
                        or value < segment.term_bounds[2 * term]
                        or value > segment.term_bounds[2 * term + 1]
                    ):
                        holds = False
                        break
                if not holds:
                    continue
                for i in range(segment.clause_needs[clause], segment.clause_needs[clause + 1]):
                    need = segment.needs[i]
                    if (held[need] == 0) if need >= 0 else (held[~need] != 0):
                        holds = False
                        break
                registration = segment.clause_registration[clause]
                if holds and (
                    not windowed
                    or (segment.since[registration] <= position and position < until[registration])
                ):
                    words[registration >> 6] |= one << np.uint64(registration & 63)
                    summary[registration >> 12] |= one << np.uint64((registration >> 6) & 63)

            for group in range(segment.bucket_groups[bucket], segment.bucket_groups[bucket + 1]):
                first = segment.group_dimension_start[group]
                last = segment.group_dimension_start[group + 1]
                width = last - first
                present = True
                for d in range(first, last):
                    if there[base + segment.group_dimension[d]] == 0:
                        present = False
                        break
                if not present:
                    continue
                first_block = segment.group_blocks[group]
                blocks = segment.group_blocks[group + 1] - first_block
                for block in range(blocks):
                    near[block] = 1
                for d in range(width):
                    at = base + segment.group_dimension[first + d]
                    value = values[at]
                    low = segment.group_outer[group] + 2 * d * blocks
                    # Slices, because an index that is a sum keeps the loop from being vectorised.
                    lows = segment.outer[low : low + blocks]
                    highs = segment.outer[low + blocks : low + 2 * blocks]
                    for block in range(blocks):
                        near[block] &= (lows[block] <= value) & (value <= highs[block])
                for block in range(blocks):
                    if near[block] == 0:
                        continue
                    for i in range(BLOCK):
                        hit[i] = 1
                    for d in range(width):
                        at = base + segment.group_dimension[first + d]
                        value = values[at]
                        side = 2 * (block * width + d)
                        low = segment.group_inner[group] + side * BLOCK
                        lows = segment.inner[low : low + BLOCK]
                        highs = segment.inner[low + BLOCK : low + 2 * BLOCK]
                        for i in range(BLOCK):
                            hit[i] &= (lows[i] <= value) & (value <= highs[i])
                    first_slot = (first_block + block) * BLOCK
                    for i in range(BLOCK):
                        if hit[i] == 0:
                            continue
                        slot = first_slot + i
                        holds = True
                        for n in range(segment.slot_needs[slot], segment.slot_needs[slot + 1]):
                            need = segment.needs[n]
                            if (held[need] == 0) if need >= 0 else (held[~need] != 0):
                                holds = False
                                break
                        registration = segment.slot_registration[slot]
                        if holds and (
                            not windowed
                            or (segment.since[registration] <= position and position < until[registration])
                        ):
                            words[registration >> 6] |= one << np.uint64(registration & 63)
                            summary[registration >> 12] |= one << np.uint64((registration >> 6) & 63)

        for i in range(len(met)):
            held[met[i]] = 0
        for s in range(len(summary)):
            marked = summary[s]
            summary[s] = 0
            while marked != 0:
                lowest = marked & (~marked + one)
                marked ^= lowest
                word = 64 * s + _PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                bits = words[word]
                words[word] = 0
                if found + 64 > len(numbers):
                    larger = np.empty(2 * len(numbers), np.int64)
                    larger[:found] = numbers[:found]
                    numbers = larger
                while bits != 0:
                    lowest = bits & (~bits + one)
                    bits ^= lowest
                    place = 64 * word + _PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                    numbers[found] = segment.numbers[place]
                    found += 1
        offsets[row + 1] = found
    return offsets, numbers[:found]


@compiled
def string_keys(
    starts: Shorts,
    data: Bytes,
    valid: Bytes,
    literal_start: Integers,
    literal_bytes: Bytes,
    column: int,
    width: int,
    values: Integers,
    there: Bytes,
) -> None:
    """Place each string among the sorted literals: 2i + 1 at literal i, 2i just below it. Writes column
    `column` of the rows x `width` arrays `values` and `there`."""
    for row in range(len(valid)):
        if valid[row] == 0:
            continue
        begin = starts[row]
        length = starts[row + 1] - begin
        low = 0
        high = len(literal_start) - 1
        key = -1
        while low < high:
            middle = (low + high) >> 1
            other = literal_start[middle]
            other_length = literal_start[middle + 1] - other
            common = min(length, other_length)
            i = 0
            while i < common and data[begin + i] == literal_bytes[other + i]:
                i += 1
            if i == common:
                if length == other_length:
                    key = 2 * middle + 1
                    break
                below = other_length < length
            else:
                below = literal_bytes[other + i] < data[begin + i]
            if below:
                low = middle + 1
            else:
                high = middle
        values[row * width + column] = key if key >= 0 else 2 * low
        there[row * width + column] = 1


@compiled
def spread(codes: Shorts, start: Integers, needs: Shorts, pool: int, held: Bytes) -> None:
    """Mark, for each row, the needs that its distinct value (`codes`, -1: none) meets."""
    for row in range(len(codes)):
        code = codes[row]
        if code >= 0:
            for i in range(start[code], start[code + 1]):
                held[row * pool + needs[i]] = 1


@compiled
def join(offsets: Integers, numbers: Integers, bases: Integers, rows: int) -> tuple[Integers, Integers]:
    """Put the results of several segments together, per row ascending and distinct.

    `offsets` holds rows + 1 entries per segment, relative to the segment's part of `numbers`, which
    begins at `bases[segment]`.
    """
    segments = len(bases)
    result_offsets = np.zeros(rows + 1, np.int64)
    result = np.empty(len(numbers), np.int64)
    found = 0
    for row in range(rows):
        begin = found
        ascending = True
        for segment in range(segments):
            at = segment * (rows + 1) + row
            for i in range(bases[segment] + offsets[at], bases[segment] + offsets[at + 1]):
                number = numbers[i]
                if found > begin and result[found - 1] >= number:
                    ascending = False
                result[found] = number
                found += 1
        if not ascending:
            members = result[begin:found]
            members.sort()
            kept = begin + 1
            for i in range(begin + 1, found):
                if result[i] != result[kept - 1]:
                    result[kept] = result[i]
                    kept += 1
            found = kept
        result_offsets[row + 1] = found
    return result_offsets, result[:found]
