"""From the arrays of a segment back to its clause table, for a merge."""

from dataclasses import replace

import numpy as np

from culver.jit import Integers, Shorts
from culver.matching.index.compile.clause_table import (
    ClauseTable,
    Dimension,
    run_members,
    run_starts,
    sort_terms,
    unpack_texts,
)
from culver.matching.index.intrinsics.vectors import LANES
from culver.matching.index.layout import chunks
from culver.matching.index.layout.segment_arrays import SegmentArrays

_LOW_HALF = 0xFFFF_FFFF


def restore(arrays: SegmentArrays, dimensions: tuple[Dimension, ...], pool: tuple[str, ...]) -> ClauseTable:
    """Restore the table of a segment, with its clauses in another order, and without those that never hold."""
    sizes = np.diff(arrays.buckets.reshape(-1, 3), axis=0)
    access = _Access(arrays, len(sizes))
    singles = _singles(arrays, dimensions, pool, access, sizes)
    owners, counts, term_dimensions, term_bounds, need_counts, needs = [], [], [], [], [], []
    group_bucket = np.repeat(np.arange(len(sizes)), sizes[:, 2])
    for group, bucket in enumerate(group_bucket.tolist()):
        first = arrays.group_dimension_start[group]
        columns = arrays.group_dimension[first : arrays.group_dimension_start[group + 1]].astype(np.int64)
        if access.dimension[bucket] >= 0:
            place = int(np.searchsorted(columns, access.dimension[bucket]))
            columns = np.insert(columns, place, access.dimension[bucket])
        for chunk in range(arrays.group_chunks[group], arrays.group_chunks[group + 1]):
            slots, boxes = _boxes(arrays, chunk)
            if access.dimension[bucket] >= 0:
                boxes = np.insert(boxes, place, access.key[bucket], axis=1)
            owners.append(arrays.slot_registration[slots].astype(np.int64))
            counts.append(np.full(len(slots), len(columns)))
            term_dimensions.append(np.tile(columns, len(slots)))
            term_bounds.append(boxes.reshape(-1, 2))
            own_counts, own = _needs_of_slots(arrays, slots)
            need_counts.append(own_counts)
            needs.append(own)
            if access.need[bucket] >= 0:
                need_counts[-1] = own_counts + 1
                needs[-1] = np.insert(own, run_starts(own_counts)[:-1], access.need[bucket])
    return replace(
        singles,
        clause_registration=np.concatenate([singles.clause_registration, *owners]),
        term_start=run_starts(np.concatenate([np.diff(singles.term_start), *counts])),
        term_dimension=np.concatenate([singles.term_dimension, *term_dimensions]),
        term_bounds=np.concatenate([singles.term_bounds, *term_bounds]),
        need_start=run_starts(np.concatenate([np.diff(singles.need_start), *need_counts])),
        needs=np.concatenate([singles.needs, *needs]),
    )


class _Access:
    """What every clause of a bucket has in common: `dimension` equals `key`, or `need` is met; -1 is none."""

    def __init__(self, arrays: SegmentArrays, buckets: int) -> None:
        self.dimension = np.full(buckets, -1, np.int64)
        self.dimension[arrays.key_bucket] = np.repeat(arrays.access_dimension, np.diff(arrays.access_start))
        self.key = np.zeros(buckets, np.int64)
        self.key[arrays.key_bucket] = arrays.key_value
        self.need = np.full(buckets, -1, np.int64)
        used = np.flatnonzero(arrays.need_bucket >= 0)
        self.need[arrays.need_bucket[used]] = used


def _singles(
    arrays: SegmentArrays,
    dimensions: tuple[Dimension, ...],
    pool: tuple[str, ...],
    access: _Access,
    sizes: Shorts,
) -> ClauseTable:
    """The clauses that are not in boxes: the free ones, then the others. `sizes` counts them by bucket."""
    buckets = np.arange(len(sizes))
    free, words = len(arrays.free_registration), arrays.clauses.reshape(-1, 4)
    bucket = np.concatenate([np.repeat(buckets, sizes[:, 0]), np.repeat(buckets, sizes[:, 1])])
    every = np.arange(len(bucket))
    term_counts, need_counts = np.diff(words[:, 3] & _LOW_HALF), np.diff(words[:, 3] >> 32)
    first_dimension = words[:-1, 2] & _LOW_HALF
    decided = np.flatnonzero(first_dimension < len(dimensions))
    found = np.flatnonzero(access.dimension[bucket] >= 0)
    # The later terms, the first term, and the equality by which the clause is found.
    clause = np.concatenate([np.repeat(every[free:], term_counts), free + decided, found])
    dimension = [arrays.term_dimension, first_dimension[decided], access.dimension[bucket[found]]]
    bounds = [
        arrays.term_bounds.reshape(-1, 2),
        np.cumsum(words[decided, :2], axis=1),
        np.repeat(access.key[bucket[found]], 2).reshape(-1, 2),
    ]
    order = np.argsort(clause, kind="stable")
    needing = np.flatnonzero(access.need[bucket] >= 0)
    clause_of_need = np.concatenate([np.repeat(every[free:], need_counts), needing])
    needs = [arrays.needs[: words[-1, 3] >> 32], access.need[bucket[needing]]]
    return sort_terms(
        ClauseTable(
            numbers=arrays.numbers,
            since=arrays.since,
            clause_registration=np.concatenate(
                [arrays.free_registration.astype(np.int64), words[:-1, 2] >> 32]
            ),
            term_start=run_starts(np.bincount(clause, minlength=len(every))),
            term_dimension=np.concatenate(dimension, dtype=np.int64)[order],
            term_bounds=np.concatenate(bounds)[order],
            need_start=run_starts(np.bincount(clause_of_need, minlength=len(every))),
            needs=np.concatenate(needs, dtype=np.int64)[np.argsort(clause_of_need, kind="stable")],
            dimensions=dimensions,
            literals=unpack_texts(arrays.literal_start, arrays.literal_bytes),
            pool=pool,
        )
    )


def _boxes(arrays: SegmentArrays, chunk: int) -> tuple[Integers, Integers]:
    """The slots of a chunk that hold boxes, and their bounds, boxes x dimensions x 2."""
    axes = range(arrays.chunk_axes[chunk], arrays.chunk_axes[chunk + 1])
    edges = [
        arrays.edges[arrays.axis_edges[axis] :][: arrays.cells[arrays.axis_cells[axis + 1] - 1]]
        for axis in axes
    ]
    first, last = int(arrays.chunk_leaves[chunk]), int(arrays.chunk_leaves[chunk + 1])
    nodes = arrays.nodes[arrays.chunk_nodes[chunk] : arrays.chunk_nodes[chunk + 1]]
    lows, highs = chunks.bounds_of(nodes, last - first, edges)
    used = np.flatnonzero(arrays.slot_registration[LANES * first : LANES * last] >= 0)
    return LANES * first + used, np.stack([lows[used], highs[used]], axis=2)


def _needs_of_slots(arrays: SegmentArrays, slots: Integers) -> tuple[Integers, Integers]:
    """The number of needs of each slot, and the needs of all of them."""
    if not len(arrays.slot_needs):
        return np.zeros(len(slots), np.int64), np.empty(0, np.int64)
    start = arrays.slot_needs.astype(np.int64)
    return np.diff(start)[slots], arrays.needs[run_members(start, slots)].astype(np.int64)
