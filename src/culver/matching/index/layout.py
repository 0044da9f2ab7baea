"""How the clauses of a table lie in a segment, so that an event meets few of them.

Every clause is in one bucket, found by its access condition, the most selective that it has:

    bucket 0          clauses without any constraint
    of a value        `symbol = 'ABC'`: the equality whose value is rarest among the clauses (the access
                      predicates of Fabret et al. that StreamHub, section 2.2, cites)
    of a dimension    ranges only: reached by events that have the attribute that is rarest in clauses
    of a need         neither: reached by events that meet it

    access_dimension[a]  dimensions with equalities; their keys are key_value[access_start[a] :
                         access_start[a + 1]]
    key_bucket[k]        the bucket of a key
    dimension_bucket[d]  the bucket of a dimension, need_bucket[p] that of a need; -1: none

A bucket holds clauses one by one and, where many have the same dimensions, groups of boxes:

    bucket_clauses[b]    its clauses: up to bucket_clauses[b + 1]; in the same way bucket_groups[b]
    clause               registration, terms [term_start[c], term_start[c + 1]), needs
    term                 dimension, low, high
    group                its dimensions, and blocks of 64 boxes that lie near one another (`order`)
        outer            dimension x 2 x block     what encloses all boxes of the block
        inner            block x dimension x 2 x 64    the boxes; surplus slots are empty intervals
    slot                 a box's place (64 * block + i): registration (-1: surplus), needs

The needs of clauses, then of slots, lie in `needs`, at clause_needs[c] and slot_needs[s].
"""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.bounds import EMPTY, Line
from culver.matching.index.kernels import BLOCK, SegmentArrays
from culver.matching.index.order import block_order
from culver.matching.index.table import ClauseTable, Dimension, gather, select_clauses, starts

_MIN_GROUP = 32  # fewer boxes than this are checked faster one by one

Integers = NDArray[np.int64]


def lay_out(table: ClauseTable) -> SegmentArrays:
    """The arrays of a segment with these clauses."""
    access = _Access(table)
    shape = _shapes(table)
    pair, member, size = np.unique(
        access.bucket * (int(shape.max(initial=0)) + 1) + shape, return_inverse=True, return_counts=True
    )
    boxed = (size >= _MIN_GROUP)[member] & (np.diff(table.term_start) > 0)
    single = np.flatnonzero(~boxed)
    single = single[np.argsort(access.bucket[single], kind="stable")]
    clauses = select_clauses(table, single)
    boxes = _Boxes(table, access.bucket, np.where(boxed, member, -1), len(pair))
    literals = b"".join(table.literals)
    every = np.arange(access.buckets + 1)
    arrays = {
        "numbers": table.numbers,
        "since": table.since,
        "literal_start": starts(np.array([len(literal) for literal in table.literals], np.int64)),
        "literal_bytes": np.frombuffer(literals, np.uint8),
        "access_dimension": access.dimensions,
        "access_start": access.start,
        "key_value": access.key_value,
        "key_bucket": access.key_bucket,
        "dimension_bucket": access.dimension_bucket,
        "need_bucket": access.need_bucket,
        "bucket_clauses": np.searchsorted(access.bucket[single], every),
        "bucket_groups": np.searchsorted(boxes.bucket, every),
        "clause_registration": clauses.clause_registration,
        "clause_needs": clauses.need_start,
        "term_start": clauses.term_start,
        "term_dimension": clauses.term_dimension,
        "term_bounds": clauses.term_bounds.reshape(-1),
        "group_dimension_start": boxes.dimension_start,
        "group_dimension": boxes.dimension,
        "group_blocks": boxes.blocks,
        "group_outer": boxes.outer_start,
        "group_inner": boxes.inner_start,
        "outer": boxes.outer,
        "inner": boxes.inner,
        "slot_registration": boxes.slot_registration,
        "slot_needs": boxes.slot_needs + clauses.need_start[-1],
        "needs": np.concatenate([clauses.needs, boxes.needs]),
    }
    return SegmentArrays(**{name: _narrow(name, array) for name, array in arrays.items()})


_BYTES = {"literal_bytes"}
_LONG = {
    "numbers", "since", "literal_start", "key_value", "term_bounds", "group_outer", "group_inner", "outer",
    "inner",
}  # fmt: skip


def _narrow(name: str, array: NDArray[Any]) -> NDArray[Any]:
    dtype = np.uint8 if name in _BYTES else np.int64 if name in _LONG else np.int32
    if dtype is np.int32 and len(array) and int(array.max()) >= 2**31:
        raise OverflowError(f"a segment cannot hold so many entries in {name}")
    return np.ascontiguousarray(array, dtype)


def _first_of_runs(values: Integers) -> NDArray[np.bool_]:
    result = np.ones(len(values), np.bool_)
    result[1:] = values[1:] != values[:-1]
    return result


def _shapes(table: ClauseTable) -> Integers:
    """A number per clause; clauses with the same dimensions have the same."""
    lengths = np.diff(table.term_start)
    shapes = np.zeros(len(lengths), np.int64)
    base = 1
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        dimensions = table.term_dimension[table.term_start[rows][:, None] + np.arange(length)]
        if (dimensions == dimensions[0]).all():
            shapes[rows] = base
            base += 1
        else:
            distinct, inverse = np.unique(dimensions, axis=0, return_inverse=True)
            shapes[rows] = base + inverse.reshape(-1)
            base += len(distinct)
    return shapes


class _Access:
    """The bucket of each clause, and the tables by which an event finds buckets."""

    def __init__(self, table: ClauseTable) -> None:
        self._table = table
        self._clause_of_term = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
        self.bucket = np.zeros(len(table.clause_registration), np.int64)
        self.buckets = 1
        self._by_value()
        self._by_dimension()
        self._by_need()

    def _by_value(self) -> None:
        table = self._table
        bounds = table.term_bounds
        is_flag = np.array([line in (Line.BOOLEANS, Line.LISTS) for _, line in table.dimensions], np.bool_)
        point = bounds[:, 0] == bounds[:, 1]
        point &= ~is_flag[table.term_dimension]  # half of all events have the value: no help
        terms = np.flatnonzero(point)
        terms = terms[np.lexsort((bounds[terms, 0], table.term_dimension[terms]))]
        first = _first_of_runs(table.term_dimension[terms]) | _first_of_runs(bounds[terms, 0])
        value = np.cumsum(first) - 1
        frequency = np.bincount(value, minlength=1)[value] if len(terms) else value
        # Of each clause, the term with the rarest value.
        by_clause = np.lexsort((frequency, self._clause_of_term[terms]))
        chosen = by_clause[_first_of_runs(self._clause_of_term[terms[by_clause]])]
        used, bucket = np.unique(value[chosen], return_inverse=True)
        self.bucket[self._clause_of_term[terms[chosen]]] = self.buckets + bucket
        key_term = terms[np.flatnonzero(first)[used]] if len(terms) else terms
        self.key_bucket = self.buckets + np.arange(len(used))
        self.buckets += len(used)
        self.key_value = bounds[key_term, 0]
        dimension = table.term_dimension[key_term]
        self.dimensions = np.unique(dimension)
        cell = np.searchsorted(self.dimensions, dimension)
        self.start = starts(np.bincount(cell, minlength=len(self.dimensions)))

    def _by_dimension(self) -> None:
        table = self._table
        self.dimension_bucket = np.full(len(table.dimensions), -1, np.int64)
        open_terms = np.flatnonzero(self.bucket[self._clause_of_term] == 0)
        frequency = np.bincount(table.term_dimension, minlength=len(table.dimensions))
        clause = self._clause_of_term[open_terms]
        dimension = table.term_dimension[open_terms]
        order = np.lexsort((dimension, frequency[dimension], clause))
        chosen = order[_first_of_runs(clause[order])]
        self._assign(self.dimension_bucket, clause[chosen], dimension[chosen])

    def _by_need(self) -> None:
        table = self._table
        self.need_bucket = np.full(len(table.pool), -1, np.int64)
        clause_of_need = np.repeat(np.arange(len(self.bucket)), np.diff(table.need_start))
        usable = np.flatnonzero((table.needs >= 0) & (self.bucket[clause_of_need] == 0))
        usable = usable[_first_of_runs(clause_of_need[usable])]
        self._assign(self.need_bucket, clause_of_need[usable], table.needs[usable])

    def _assign(self, bucket_of: Integers, clauses: Integers, keys: Integers) -> None:
        used, inverse = np.unique(keys, return_inverse=True)
        bucket_of[used] = self.buckets + np.arange(len(used))
        self.bucket[clauses] = self.buckets + inverse
        self.buckets += len(used)


class _Boxes:
    """The groups of boxes, ordered by bucket. `group` is the group of each clause, -1 for none."""

    def __init__(self, table: ClauseTable, bucket: Integers, group: Integers, groups: int) -> None:
        order = np.argsort(group, kind="stable")
        begin = np.searchsorted(group[order], np.arange(groups + 1))
        self._table = table
        used = [g for g in range(groups) if begin[g] < begin[g + 1]]
        # Groups are numbered by bucket first, so their order is that of the buckets.
        self.bucket = bucket[order[begin[used]]] if used else np.empty(0, np.int64)
        dimensions, outers, inners, slots, counts = [], [], [], [], []
        for g in used:
            rows = order[begin[g] : begin[g + 1]]
            inner, outer, members = self._blocks(rows)
            first = int(table.term_start[rows[0]])
            dimensions.append(table.term_dimension[first : int(table.term_start[rows[0] + 1])])
            inners.append(inner)
            outers.append(outer)
            slots.append(members)
            counts.append(len(members) // BLOCK)
        self.dimension_start = starts(np.array([len(d) for d in dimensions], np.int64))
        self.dimension = _joined(dimensions)
        self.blocks = starts(np.array(counts, np.int64))
        self.outer_start = starts(np.array([len(o) for o in outers], np.int64))
        self.inner_start = starts(np.array([len(i) for i in inners], np.int64))
        self.outer = _joined(outers)
        self.inner = _joined(inners)
        clause = _joined(slots)
        surplus = clause < 0
        self.slot_registration = np.where(surplus, -1, table.clause_registration[clause])
        self.slot_needs = starts(np.where(surplus, 0, np.diff(table.need_start)[clause]))
        self.needs = table.needs[gather(table.need_start, clause[~surplus])]

    def _blocks(self, rows: Integers) -> tuple[Integers, Integers, Integers]:
        """The flat `inner` and `outer` of one group, and the clause in each slot (-1: none)."""
        table = self._table
        first = table.term_start[rows]
        width = int(table.term_start[rows[0] + 1] - first[0])
        bounds = table.term_bounds[first[:, None] + np.arange(width)]  # clauses x dimensions x 2
        sides = bounds.reshape(len(rows), 2 * width)
        placed = block_order(sides, BLOCK)
        blocks = -(-len(rows) // BLOCK)
        members = np.full(blocks * BLOCK, -1, np.int64)
        members[: len(rows)] = rows[placed]
        slots = np.empty((blocks * BLOCK, width, 2), np.int64)
        slots[: len(rows)] = bounds[placed]
        slots[len(rows) :] = EMPTY
        inner = slots.reshape(blocks, BLOCK, width, 2).transpose(0, 2, 3, 1)
        outer = np.empty((width, 2, blocks), np.int64)
        outer[:, 0::2] = inner[:, :, 0::2].min(axis=3).transpose(1, 2, 0)
        outer[:, 1::2] = inner[:, :, 1::2].max(axis=3).transpose(1, 2, 0)
        return np.ascontiguousarray(inner).reshape(-1), outer.reshape(-1), members


def _joined(parts: list[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def restore(arrays: SegmentArrays, dimensions: tuple[Dimension, ...], pool: tuple[str, ...]) -> ClauseTable:
    """The table that a segment was laid out from, but for the order of its clauses."""
    slots = np.flatnonzero(arrays.slot_registration >= 0)
    group = np.searchsorted(arrays.group_blocks, slots // BLOCK, side="right") - 1
    width = np.diff(arrays.group_dimension_start)[group].astype(np.int64)
    # One row per term of a box: its slot's place in the group, then its dimension's place in the box.
    term_start = starts(width)
    slot = np.repeat(slots, width)
    term_group = np.repeat(group, width)
    d = np.arange(len(slot)) - np.repeat(term_start[:-1], width)
    block = slot // BLOCK - arrays.group_blocks[term_group]
    at = arrays.group_inner[term_group] + (2 * (block * np.repeat(width, width) + d)) * BLOCK + slot % BLOCK
    bounds = arrays.inner[at[:, None] + BLOCK * np.arange(2)]
    dimension = arrays.group_dimension[arrays.group_dimension_start[term_group] + d]
    literal_bytes, literal_start = arrays.literal_bytes.tobytes(), arrays.literal_start.tolist()
    slot_needs = np.diff(arrays.slot_needs)[slots]
    clause_needs = np.diff(arrays.clause_needs)
    return ClauseTable(
        numbers=arrays.numbers,
        since=arrays.since,
        clause_registration=np.concatenate(
            [arrays.clause_registration, arrays.slot_registration[slots]], dtype=np.int64
        ),
        term_start=starts(np.concatenate([np.diff(arrays.term_start), width], dtype=np.int64)),
        term_dimension=np.concatenate([arrays.term_dimension, dimension], dtype=np.int64),
        term_bounds=np.concatenate([arrays.term_bounds.reshape(-1, 2), bounds]),
        need_start=starts(np.concatenate([clause_needs, slot_needs], dtype=np.int64)),
        needs=arrays.needs.astype(np.int64),
        dimensions=dimensions,
        literals=tuple(literal_bytes[begin:end] for begin, end in itertools.pairwise(literal_start)),
        pool=pool,
    )
