"""How the clauses of a table lie in a segment, so that an event meets few of them.

Every clause is in one bucket, found by its access condition, the most selective that it has:

    bucket 0          clauses without any constraint, or with needs only that must not hold
    of a value        `symbol = 'ABC'`: the equality whose value is rarest among the clauses (the access
                      predicates of Fabret et al. that StreamHub, section 2.2, cites); it is not checked again
    of a need         no equality: reached by events that meet it; it is not checked again either
    of a dimension    ranges only: reached by events that have the attribute that is rarest in clauses

    access_dimension[a]  dimensions with equalities; their keys are key_value[access_start[a] :
                         access_start[a + 1]]
    key_bucket[k]        the bucket of a key
    dimension_bucket[d]  the bucket of a dimension, need_bucket[p] that of a need; -1: none

A bucket holds registrations of which nothing more is asked, clauses one by one and, where many have the same
dimensions, groups of boxes:

    buckets[3b]          where its registrations begin in `free_registration`; at 3b + 1 and 3b + 2 where its
                         clauses and its groups begin. All end where those of the next bucket begin
    clause               four words in `clauses`, which lie together because most clauses are met alone:
                         low, high - low      of its most selective term, which nearly always decides
                         dimension            of that term, and in the upper half the registration
                         terms                where its further terms begin, and in the upper half its needs;
                                              both end where those of the next clause begin
    term                 dimension, low, high
    group                its dimensions, and chunks of boxes that lie near one another (`order`)
    chunk                blocks of 64 boxes under a tree of nodes (`chunks`), and per dimension an axis
    axis                 what the chunk's boxes span (axis_low, axis_high), its cuts and its cells
    slot                 a box's place (64 * block + i): registration (-1: surplus), needs

    event --> values, needs, attributes --> buckets --+--> free
                                                      +--> clauses --> terms, needs           registrations
                                                      `--> groups --> chunks --> nodes

The needs of clauses, then of slots, lie in `needs`. Those of slot s begin at slot_needs[s]; where no box has needs,
`slot_needs` is empty.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.matching.index import chunks
from culver.matching.index.arrays import SegmentArrays
from culver.matching.index.bounds import EVERYTHING, Line
from culver.matching.index.order import split
from culver.matching.index.table import ClauseTable, first_of_runs, gather, select_clauses, starts
from culver.matching.index.tokens import clause_tokens
from culver.matching.index.vectors import LANES

_MIN_GROUP = 16  # fewer boxes than this are checked faster one by one

Integers = NDArray[np.int64]


def lay_out(table: ClauseTable) -> SegmentArrays:
    """The arrays of a segment with these clauses; those with an empty interval never hold and are left out."""
    table = _without_empty(table)
    access = _Access(table)
    rest = access.without_access()
    terms, needs = np.diff(rest.term_start), np.diff(rest.need_start)
    # Boxes with needs apart from those without, which are found without looking at them one by one.
    shape = 2 * _shapes(rest) + (needs > 0)
    member, size = _numbered(access.bucket * (int(shape.max(initial=0)) + 1) + shape)
    boxed = (size >= _MIN_GROUP)[member] & (terms > 0)
    free = np.flatnonzero((terms == 0) & (needs == 0))
    free = free[np.argsort(access.bucket[free], kind="stable")]
    single = np.flatnonzero(~boxed & ((terms > 0) | (needs > 0)))
    single = single[np.argsort(access.bucket[single], kind="stable")]
    clauses = _Clauses(select_clauses(rest, single))
    boxes = _Boxes(rest, access.bucket, np.where(boxed, member, -1), len(size))
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
        "buckets": np.stack(
            [np.searchsorted(of, every) for of in (access.bucket[free], access.bucket[single], boxes.bucket)],
            axis=1,
        ).reshape(-1),
        "free_registration": rest.clause_registration[free],
        "clauses": clauses.words.reshape(-1),
        "clause_tokens": clauses.tokens,
        "term_dimension": clauses.term_dimension,
        "term_bounds": clauses.term_bounds.reshape(-1),
        "slot_needs": boxes.slot_needs + (len(clauses.needs) if len(boxes.slot_needs) else 0),
        "needs": np.concatenate([clauses.needs, boxes.needs]),
        **boxes.arrays,
    }
    return SegmentArrays(**{name: _typed(name, array) for name, array in arrays.items()})


_LONG = (
    "numbers", "since", "literal_start", "key_value", "clauses", "term_bounds", "chunk_nodes",
    "axis_low", "axis_high", "axis_cuts", "axis_cells", "cuts",
)  # fmt: skip
_TYPES: dict[str, Any] = {
    **dict.fromkeys(_LONG, np.int64),
    **dict.fromkeys(("cells", "clause_tokens", "nodes"), np.uint16),
    **dict.fromkeys(("axis_origin", "axis_scale"), np.float64),
    "literal_bytes": np.uint8,
}  # all others are int32


def _typed(name: str, array: NDArray[Any]) -> NDArray[Any]:
    dtype = _TYPES.get(name, np.int32)
    if dtype is np.int32 and len(array) and int(array.max()) >= 2**31:
        raise OverflowError(f"a segment cannot hold so many entries in {name}")
    return np.ascontiguousarray(array, dtype)


def _numbered(codes: Integers) -> tuple[Integers, Integers]:
    """The place of each code among the distinct ones, ascending, and how often each of those occurs."""
    if len(codes) and (codes == codes[0]).all():
        return np.zeros(len(codes), np.int64), np.array([len(codes)])
    _, place, count = np.unique(codes, return_inverse=True, return_counts=True)
    return place, count


def _without_empty(table: ClauseTable) -> ClauseTable:
    empty = np.flatnonzero(table.term_bounds[:, 0] > table.term_bounds[:, 1])
    if not len(empty):
        return table
    kept = np.ones(len(table.clause_registration), np.bool_)
    kept[np.searchsorted(table.term_start, empty, side="right") - 1] = False
    return select_clauses(table, np.flatnonzero(kept))


def _shapes(table: ClauseTable) -> Integers:
    """A number per clause; clauses with the same dimensions have the same, those without terms 0."""
    lengths = np.diff(table.term_start)
    shapes = np.zeros(len(lengths), np.int64)
    base = 1
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        codes = np.zeros(len(rows), np.int64)
        for i in range(length):
            dimension = table.term_dimension[table.term_start[rows] + i]
            if (dimension != dimension[0]).any():
                codes = np.unique(codes * len(table.dimensions) + dimension, return_inverse=True)[1]
        shapes[rows] = base + codes
        base += int(codes.max()) + 1
    return shapes


class _Clauses:
    """The clauses that are checked one by one, as words (see above), and the terms behind their first ones."""

    def __init__(self, table: ClauseTable) -> None:
        count = len(table.clause_registration)
        first = _rarest_terms(table)
        decided = first >= 0
        later = np.ones(len(table.term_dimension), np.bool_)
        later[first[decided]] = False
        # A clause without terms has one on the dimension behind the last, in which everything lies.
        dimension = np.full(count, len(table.dimensions), np.int64)
        dimension[decided] = table.term_dimension[first[decided]]
        self.words = np.zeros((count + 1, 4), np.int64)
        self.words[:count, :2] = EVERYTHING
        self.words[:count][decided, :2] = table.term_bounds[first[decided]]
        self.words[:count, 2] = dimension | (table.clause_registration << 32)
        self.words[:, 1] -= self.words[:, 0]  # as an unsigned number
        self.words[:, 3] = starts(np.diff(table.term_start) - decided) | (table.need_start << 32)
        self.term_dimension = table.term_dimension[later]
        self.term_bounds = table.term_bounds[later]
        self.needs = table.needs
        self.tokens = clause_tokens(
            table.term_start, table.term_dimension, table.term_bounds, table.need_start, table.needs,
            len(table.dimensions),
        )  # fmt: skip


def _rarest_terms(table: ClauseTable) -> Integers:
    """For each clause its most selective term, -1 where it has none: an equality before a range, and of
    equalities the one whose value is rarest."""
    bounds = table.term_bounds
    order = np.lexsort((bounds[:, 1], bounds[:, 0], table.term_dimension))
    first = np.zeros(len(order), np.bool_)
    for column in (table.term_dimension, bounds[:, 0], bounds[:, 1]):
        first |= first_of_runs(column[order])
    value = np.empty(len(order), np.int64)
    value[order] = np.cumsum(first) - 1
    frequency = np.bincount(value, minlength=1)[value] if len(value) else value
    frequency = frequency + np.where(bounds[:, 0] == bounds[:, 1], 0, len(order))
    clause = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
    order = np.lexsort((frequency, clause))
    chosen = order[first_of_runs(clause[order])]
    result = np.full(len(table.clause_registration), -1, np.int64)
    result[clause[chosen]] = chosen
    return result


class _Access:
    """The bucket of each clause, and the tables by which an event finds buckets."""

    def __init__(self, table: ClauseTable) -> None:
        self._table = table
        self._clause_of_term = np.repeat(np.arange(len(table.clause_registration)), np.diff(table.term_start))
        self.bucket = np.zeros(len(table.clause_registration), np.int64)
        self.buckets = 1
        self._by_value()
        self._by_need()
        self._by_dimension()

    def without_access(self) -> ClauseTable:
        """The table without the equalities and needs by which clauses are found."""
        table = self._table
        if not len(self._access_terms) and not len(self._access_needs):
            return table
        terms = np.ones(len(table.term_dimension), np.bool_)
        terms[self._access_terms] = False
        needs = np.ones(len(table.needs), np.bool_)
        needs[self._access_needs] = False
        kept_terms, kept_needs = starts(terms.astype(np.int64)), starts(needs.astype(np.int64))
        return replace(
            table,
            term_start=kept_terms[table.term_start],
            term_dimension=table.term_dimension[terms],
            term_bounds=table.term_bounds[terms],
            need_start=kept_needs[table.need_start],
            needs=table.needs[needs],
        )

    def _by_value(self) -> None:
        table = self._table
        bounds = table.term_bounds
        is_flag = np.array([line in (Line.BOOLEANS, Line.LISTS) for _, line in table.dimensions], np.bool_)
        point = bounds[:, 0] == bounds[:, 1]
        point &= ~is_flag[table.term_dimension]  # half of all events have the value: no help
        terms = np.flatnonzero(point)
        terms = terms[np.lexsort((bounds[terms, 0], table.term_dimension[terms]))]
        first = first_of_runs(table.term_dimension[terms]) | first_of_runs(bounds[terms, 0])
        value = np.cumsum(first) - 1
        frequency = np.bincount(value, minlength=1)[value] if len(terms) else value
        # Of each clause, the term with the rarest value.
        by_clause = np.lexsort((frequency, self._clause_of_term[terms]))
        chosen = by_clause[first_of_runs(self._clause_of_term[terms[by_clause]])]
        used, bucket = np.unique(value[chosen], return_inverse=True)
        self._access_terms = terms[chosen]
        self.bucket[self._clause_of_term[self._access_terms]] = self.buckets + bucket
        key_term = terms[np.flatnonzero(first)[used]] if len(terms) else terms
        self.key_bucket = self.buckets + np.arange(len(used))
        self.buckets += len(used)
        self.key_value = bounds[key_term, 0]
        dimension = table.term_dimension[key_term]
        self.dimensions = np.unique(dimension)
        self.start = starts(
            np.bincount(np.searchsorted(self.dimensions, dimension), minlength=len(self.dimensions))
        )

    def _by_dimension(self) -> None:
        table = self._table
        self.dimension_bucket = np.full(len(table.dimensions), -1, np.int64)
        clause = np.flatnonzero((self.bucket == 0) & (np.diff(table.term_start) > 0))
        if not len(clause):
            return
        frequency = np.bincount(table.term_dimension, minlength=len(table.dimensions))
        # The rarest dimension of each clause: the least of its terms' codes.
        code = frequency[table.term_dimension] * len(table.dimensions) + table.term_dimension
        begins = np.flatnonzero(np.diff(table.term_start) > 0)
        rarest = np.empty(len(table.term_start) - 1, np.int64)
        rarest[begins] = np.minimum.reduceat(code, table.term_start[begins])
        self._assign(self.dimension_bucket, clause, rarest[clause] % len(table.dimensions))

    def _by_need(self) -> None:
        table = self._table
        self.need_bucket = np.full(len(table.pool), -1, np.int64)
        clause_of_need = np.repeat(np.arange(len(self.bucket)), np.diff(table.need_start))
        usable = np.flatnonzero((table.needs >= 0) & (self.bucket[clause_of_need] == 0))
        usable = usable[first_of_runs(clause_of_need[usable])]
        self._access_needs = usable
        self._assign(self.need_bucket, clause_of_need[usable], table.needs[usable])

    def _assign(self, bucket_of: Integers, clauses: Integers, keys: Integers) -> None:
        used = np.flatnonzero(np.bincount(keys, minlength=len(bucket_of)))
        bucket_of[used] = self.buckets + np.arange(len(used))
        self.bucket[clauses] = bucket_of[keys]
        self.buckets += len(used)


class _Boxes:
    """The groups of boxes, ordered by bucket. `group` is the group of each clause, -1 for none."""

    def __init__(self, table: ClauseTable, bucket: Integers, group: Integers, groups: int) -> None:
        boxed = np.flatnonzero(group >= 0)
        if groups > 1:
            boxed = boxed[np.argsort(group[boxed], kind="stable")]
        begin = np.searchsorted(group[boxed], np.arange(groups + 1))
        used = np.flatnonzero(begin[1:] > begin[:-1]).tolist()
        # Groups are numbered by bucket first, so their order is that of the buckets.
        self.bucket = bucket[boxed[begin[used]]] if used else np.empty(0, np.int64)
        is_real = np.array([line in (Line.NUMBERS, Line.REALS) for _, line in table.dimensions], np.bool_)
        dimensions: list[Integers] = []
        made: list[chunks.Chunk] = []
        members: list[Integers] = []
        chunk_counts: list[int] = []
        for g in used:
            rows = boxed[begin[g] : begin[g + 1]]
            first = table.term_start[rows]
            width = int(table.term_start[rows[0] + 1] - first[0])
            dimensions.append(table.term_dimension[first[0] : first[0] + width])
            if int(rows[-1]) - int(rows[0]) == len(rows) - 1:
                bounds = table.term_bounds[first[0] : first[-1] + width]  # as they lie
            else:
                bounds = table.term_bounds[first[:, None] + np.arange(width)]
            bounds = bounds.reshape(len(rows), 2 * width)
            sets = split(bounds, chunks.MOST_BOXES, LANES)
            chunk_counts.append(len(sets))
            for places in sets:
                part = bounds if len(sets) == 1 else bounds[places]
                chunk = chunks.build(part, is_real[dimensions[-1]])
                made.append(chunk)
                slots = np.full(chunk.blocks * LANES, -1, np.int64)
                slots[: len(places)] = rows[places[chunk.order]]
                members.append(slots)
        clause = _joined(members)
        surplus = clause < 0
        need_counts = np.where(surplus, 0, np.diff(table.need_start)[clause]) if len(clause) else clause
        needy = bool(need_counts.any())
        self.slot_needs = starts(need_counts) if needy else np.empty(0, np.int64)
        self.needs = table.needs[gather(table.need_start, clause[~surplus])]
        slot_group = np.repeat(
            np.repeat(np.arange(len(used)), chunk_counts), [len(slots) for slots in members]
        )
        cells = [cell for chunk in made for cell in chunk.cells]
        cuts = [
            part
            for chunk in made
            for cut, cell in zip(chunk.cuts, chunk.cells, strict=True)
            for part in (cut, cell.surplus())
        ]
        self.arrays: dict[str, NDArray[Any]] = {
            "group_dimension_start": starts(np.array([len(d) for d in dimensions], np.int64)),
            "group_dimension": _joined(dimensions),
            "group_chunks": starts(np.array(chunk_counts, np.int64)),
            "group_needy": np.bincount(slot_group[need_counts > 0], minlength=len(used)) > 0,
            "chunk_blocks": starts(np.array([chunk.blocks for chunk in made], np.int64)),
            "chunk_axes": starts(np.array([len(chunk.cuts) for chunk in made], np.int64)),
            "chunk_nodes": starts(np.array([len(chunk.nodes) for chunk in made], np.int64)),
            "axis_low": _joined([chunk.low for chunk in made]),
            "axis_high": _joined([chunk.high for chunk in made]),
            "axis_cuts": starts(np.array([len(part) for part in cuts], np.int64))[::2],
            "axis_cells": starts(np.array([len(cell.before) for cell in cells], np.int64)),
            "axis_origin": np.array([cell.origin for cell in cells], np.float64),
            "axis_scale": np.array([cell.scale for cell in cells], np.float64),
            "axis_real": np.array([cell.real for cell in cells], np.int32),
            "axis_steps": np.array([cell.steps for cell in cells], np.int32),
            "cuts": _joined(cuts),
            "cells": _joined([cell.before for cell in cells]),
            "nodes": _joined([chunk.nodes for chunk in made]),
            "slot_registration": np.where(surplus, -1, table.clause_registration[clause])
            if len(clause)
            else clause,
        }


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
