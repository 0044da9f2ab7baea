"""From the arrays of a segment back to the table that it was laid out from."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.matching.index import chunks
from culver.matching.index.kernels import SegmentArrays
from culver.matching.index.table import ClauseTable, Dimension, sort_terms, starts
from culver.matching.index.vectors import LANES

Integers = NDArray[np.int64]


def restore(arrays: SegmentArrays, dimensions: tuple[Dimension, ...], pool: tuple[str, ...]) -> ClauseTable:
    """The table that a segment was laid out from, but for the order of its clauses, and without those that never
    hold."""
    buckets = len(arrays.bucket_clauses) - 1
    access_dimension = np.full(buckets, -1, np.int64)
    access_dimension[arrays.key_bucket] = np.repeat(arrays.access_dimension, np.diff(arrays.access_start))
    access_key = np.zeros(buckets, np.int64)
    access_key[arrays.key_bucket] = arrays.key_value

    # Clauses: the terms behind the first, the first, and the equality by which they are found.
    clause_bucket = np.repeat(np.arange(buckets), np.diff(arrays.bucket_clauses))
    every = np.arange(len(clause_bucket))
    found = np.flatnonzero(access_dimension[clause_bucket] >= 0)
    decided = np.flatnonzero(arrays.clause_dimension < len(dimensions))
    clause = np.concatenate([np.repeat(every, np.diff(arrays.term_start)), decided, found])
    order = np.argsort(clause, kind="stable")
    dimension: list[NDArray[Any]] = [
        arrays.term_dimension,
        arrays.clause_dimension[decided],
        access_dimension[clause_bucket[found]],
    ]
    bounds: list[Integers] = [
        arrays.term_bounds.reshape(-1, 2),
        np.stack([arrays.clause_low[decided], arrays.clause_high[decided]], axis=1),
        np.repeat(access_key[clause_bucket[found]], 2).reshape(-1, 2),
    ]
    singles = sort_terms(
        ClauseTable(
            numbers=arrays.numbers,
            since=arrays.since,
            clause_registration=arrays.clause_registration.astype(np.int64),
            term_start=starts(np.bincount(clause, minlength=len(every))),
            term_dimension=np.concatenate(dimension, dtype=np.int64)[order],
            term_bounds=np.concatenate(bounds)[order],
            need_start=arrays.clause_needs.astype(np.int64),
            needs=arrays.needs[: arrays.clause_needs[-1]].astype(np.int64),
            dimensions=dimensions,
            literals=_literals(arrays),
            pool=pool,
        )
    )

    owners, counts, term_dimensions, term_bounds = [], [], [], []
    slots = np.flatnonzero(arrays.slot_registration >= 0)
    group_bucket = np.repeat(np.arange(buckets), np.diff(arrays.bucket_groups))
    for group, bucket in enumerate(group_bucket.tolist()):
        first = arrays.group_dimension_start[group]
        columns = arrays.group_dimension[first : arrays.group_dimension_start[group + 1]].astype(np.int64)
        for chunk in range(arrays.group_chunks[group], arrays.group_chunks[group + 1]):
            registration, boxes = _boxes(arrays, chunk)
            shape = columns
            if access_dimension[bucket] >= 0:
                place = int(np.searchsorted(columns, access_dimension[bucket]))
                shape = np.insert(columns, place, access_dimension[bucket])
                boxes = np.insert(boxes, place, access_key[bucket], axis=1)
            owners.append(registration)
            counts.append(np.full(len(registration), len(shape)))
            term_dimensions.append(np.tile(shape, len(registration)))
            term_bounds.append(boxes.reshape(-1, 2))
    box_needs = (
        np.diff(arrays.slot_needs)[slots] if len(arrays.slot_needs) else np.zeros(len(slots), np.int64)
    )
    return ClauseTable(
        numbers=singles.numbers,
        since=singles.since,
        clause_registration=np.concatenate([singles.clause_registration, *owners], dtype=np.int64),
        term_start=starts(np.concatenate([np.diff(singles.term_start), *counts])),
        term_dimension=np.concatenate([singles.term_dimension, *term_dimensions]),
        term_bounds=np.concatenate([singles.term_bounds, *term_bounds]),
        need_start=starts(np.concatenate([np.diff(singles.need_start), box_needs], dtype=np.int64)),
        needs=arrays.needs.astype(np.int64),
        dimensions=dimensions,
        literals=singles.literals,
        pool=pool,
    )


def _boxes(arrays: SegmentArrays, chunk: int) -> tuple[Integers, Integers]:
    """The registrations of a chunk's boxes, and their bounds, boxes x dimensions x 2."""
    axes = range(arrays.chunk_axes[chunk], arrays.chunk_axes[chunk + 1])
    cuts = [arrays.cuts[arrays.axis_cuts[axis] : arrays.axis_cuts[axis + 1]] for axis in axes]
    blocks = slice(LANES * arrays.chunk_blocks[chunk], LANES * arrays.chunk_blocks[chunk + 1])
    nodes = arrays.nodes[arrays.chunk_nodes[chunk] : arrays.chunk_nodes[chunk + 1]]
    lows, highs = chunks.bounds_of(nodes, (blocks.stop - blocks.start) // LANES, cuts)
    registration = arrays.slot_registration[blocks]
    used = registration >= 0
    return registration[used].astype(np.int64), np.stack([lows, highs], axis=2)[used]


def _literals(arrays: SegmentArrays) -> tuple[bytes, ...]:
    data, at = arrays.literal_bytes.tobytes(), arrays.literal_start.tolist()
    return tuple(data[begin:end] for begin, end in itertools.pairwise(at))
