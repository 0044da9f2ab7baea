"""The first step of matching: from events to the clauses that they meet, and to the chunks to search.

Hot. `segment_layout` draws the arrays, and `tokens` tells how most clauses are excluded.
"""

from typing import NamedTuple

import numpy as np

from culver.jit import Bytes, Integers, Shorts, compiled
from culver.matching.index.intrinsics.vectors import WINDOW, copy, prefetch
from culver.matching.index.layout.segment_arrays import SegmentArrays
from culver.matching.index.layout.tokens import ALWAYS, token_of_dimension, token_of_need, token_of_value

_LOW_HALF = 0xFFFF_FFFF


class EventKeys(NamedTuple):
    """The events of a batch as kernels see them. `values` and `there` are dimensions x rows: a key, and 0 where the
    event has none. Row r meets the needs held_needs[held_start[r] : held_start[r + 1]]."""

    rows: int
    values: Integers
    there: Bytes
    held_start: Integers
    held_needs: Shorts


@compiled
def collect(
    segment: SegmentArrays,
    tile: int,
    end: int,
    events: EventKeys,
    held: Bytes,
    marked: Bytes,
    found: Shorts,
    runs: Integers,
    work: Integers,
) -> tuple[Shorts, Integers, int]:
    """Check the clauses that the tile's events reach, and list the chunks to search.

    Registrations go to `found`, those of row r at [runs[r - tile], runs[r - tile + 1]), and (row, group, chunk) to
    `work`. Returns both, larger where they had to grow, and the items of work. `held` and `marked` are zero, and zero
    again afterwards."""
    rows, values, there, held_start, held_needs = events
    access_dimension, access_start = segment.access_dimension, segment.access_start
    key_value, key_bucket = segment.key_value, segment.key_bucket
    dimension_bucket, need_bucket = segment.dimension_bucket, segment.need_bucket
    buckets, free_registration = segment.buckets, segment.free_registration
    clauses, clause_tokens, needs = segment.clauses, segment.clause_tokens, segment.needs
    term_dimension, term_bounds = segment.term_dimension, segment.term_bounds
    group_start, group_dimension = segment.group_dimension_start, segment.group_dimension
    group_chunks, chunk_axes = segment.group_chunks, segment.chunk_axes
    axis_low, axis_high = segment.axis_low, segment.axis_high
    dimensions = len(dimension_bucket)
    accesses = len(access_dimension)
    count = 0
    listed = 0
    runs[0] = 0
    marked[ALWAYS] = 1
    marking = len(clause_tokens) > 0
    # The keys of one event, and behind its last dimension one in which every key lies.
    keys = np.zeros(dimensions + 1, np.int64)
    has = np.ones(dimensions + 1, np.uint8)
    present = np.empty(max(dimensions, accesses) + 1, np.int64)
    passing = np.empty(1024, np.int64)
    visits = np.empty(2 + accesses + dimensions + len(need_bucket), np.int64)
    # Indices are unsigned wherever it matters, because Numba tests signed ones for being negative.
    for row in range(tile, end):
        for dimension in range(dimensions):
            keys[dimension] = values[dimension * rows + row]
            has[dimension] = there[dimension * rows + row]
        met_begin = held_start[row]
        met = held_start[row + 1] - met_begin
        # The buckets that the event reaches: the first, those of its values, of the needs that it meets, and of its
        # attributes. All are listed before the first is visited, so that memory can be prefetched.
        visits[0] = 0
        reached = 1
        usable = 0
        for i in range(accesses):
            present[usable] = i
            usable += has[np.uintp(access_dimension[i])] != 0
        for i in range(usable):
            access = np.uintp(present[i])
            value = keys[np.uintp(access_dimension[access])]
            begin = np.int64(access_start[access])
            size = access_start[access + np.uintp(1)] - begin
            while size > 1:
                half = size >> 1
                # Multiplied, so that the compiler makes no branch of it.
                begin += half * np.int64(key_value[np.uintp(begin + half - 1)] < value)
                size -= half
            visits[reached] = key_bucket[np.uintp(begin)]
            reached += key_value[np.uintp(begin)] == value
        for i in range(met):
            need = held_needs[np.uintp(met_begin + i)]
            held[np.uintp(need)] = 1
            marked[token_of_need(need)] = 1
            bucket = need_bucket[np.uintp(need)]
            visits[np.uintp(reached)] = bucket
            reached += bucket >= 0
        usable = 0
        for dimension in range(dimensions):
            present[usable] = dimension
            usable += has[dimension] != 0
        for i in range(usable):
            dimension = present[i]
            if marking:
                marked[token_of_dimension(dimension)] = 1
                marked[token_of_value(dimension, keys[np.uintp(dimension)])] = 1
            bucket = dimension_bucket[np.uintp(dimension)]
            visits[reached] = bucket
            reached += bucket >= 0
        frees = 0
        checked = 0
        for visit in range(reached):
            bucket = np.uintp(3 * visits[np.uintp(visit)])
            frees += buckets[bucket + np.uintp(3)] - buckets[bucket]
            checked += buckets[bucket + np.uintp(4)] - buckets[bucket + np.uintp(1)]
        room = count + frees + checked + WINDOW
        if room > len(found):
            larger = np.empty(2 * room, np.int32)
            larger[:count] = found[:count]
            found = larger
        if checked >= len(passing):
            passing = np.empty(2 * checked, np.int64)
        passed = 0
        for visit in range(reached):
            ahead = np.uintp(3 * visits[np.uintp(min(visit + 2, reached - 1))])
            prefetch(free_registration, buckets[ahead])
            prefetch(clause_tokens, 2 * buckets[ahead + np.uintp(1)])
            bucket = np.uintp(3 * visits[np.uintp(visit)])
            free = buckets[bucket]
            frees = buckets[bucket + np.uintp(3)] - free
            for i in range(0, frees, WINDOW):
                copy(free_registration, free + i, frees - i, found, count + i)
            count += frees
            # No branch here, nor where first terms are tested: the processor could not predict it.
            for clause in range(buckets[bucket + np.uintp(1)], buckets[bucket + np.uintp(4)]):
                passing[np.uintp(passed)] = clause
                pair = np.uintp(2 * clause)
                passed += int(marked[clause_tokens[pair]] & marked[clause_tokens[pair + np.uintp(1)]])
            for group in range(buckets[bucket + np.uintp(2)], buckets[bucket + np.uintp(5)]):
                first = group_start[group]
                width = group_start[group + 1] - first
                holds = True
                for d in range(width):
                    if has[group_dimension[first + d]] == 0:
                        holds = False
                        break
                if not holds:
                    continue
                for chunk in range(group_chunks[group], group_chunks[group + 1]):
                    axes = chunk_axes[chunk]
                    holds = True
                    for d in range(width):
                        value = keys[group_dimension[first + d]]
                        if value < axis_low[axes + d] or value > axis_high[axes + d]:
                            holds = False
                            break
                    if not holds:
                        continue
                    if 3 * listed + 3 > len(work):
                        longer = np.empty(2 * len(work), np.int64)
                        longer[: 3 * listed] = work[: 3 * listed]
                        work = longer
                    work[3 * listed] = row
                    work[3 * listed + 1] = group
                    work[3 * listed + 2] = chunk
                    listed += 1
        # One unsigned comparison tests both bounds of a clause's first term.
        candidates = 0
        for i in range(passed):
            prefetch(clauses, 4 * passing[np.uintp(min(i + 8, passed - 1))])
            at = 4 * passing[np.uintp(i)]
            passing[np.uintp(candidates)] = at
            distance = np.uint64(
                keys[np.uintp(clauses[np.uintp(at + 2)] & _LOW_HALF)] - clauses[np.uintp(at)]
            )
            candidates += int(distance <= np.uint64(clauses[np.uintp(at + 1)]))
        for i in range(candidates):
            at = passing[np.uintp(i)]
            if has[np.uintp(clauses[np.uintp(at + 2)] & _LOW_HALF)] == 0:
                continue
            holds = True
            rest, following = clauses[np.uintp(at + 3)], clauses[np.uintp(at + 7)]
            for i in range(rest >> 32, following >> 32):
                need = needs[np.uintp(i)]
                if (held[np.uintp(need)] == 0) if need >= 0 else (held[np.uintp(~need)] != 0):
                    holds = False
                    break
            if not holds:
                continue
            for term in range(rest & _LOW_HALF, following & _LOW_HALF):
                along = np.uintp(term_dimension[np.uintp(term)])
                distance = np.uint64(keys[along] - term_bounds[np.uintp(2 * term)])
                span = np.uint64(term_bounds[np.uintp(2 * term + 1)] - term_bounds[np.uintp(2 * term)])
                if (distance > span) | (has[along] == 0):
                    holds = False
                    break
            if holds:
                found[np.uintp(count)] = clauses[np.uintp(at + 2)] >> 32
                count += 1
        for i in range(met):
            need = held_needs[np.uintp(met_begin + i)]
            held[np.uintp(need)] = 0
            marked[token_of_need(need)] = 0
        for i in range(usable if marking else 0):
            dimension = present[i]
            marked[token_of_dimension(dimension)] = 0
            marked[token_of_value(dimension, keys[np.uintp(dimension)])] = 0
        marked[ALWAYS] = 1
        runs[row - tile + 1] = count
    marked[ALWAYS] = 0
    return found, work, listed
