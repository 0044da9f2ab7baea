"""The layout of a segment: how the clauses of a table are arranged, so that an event meets few of them.

Every clause is in one bucket, which an event finds by the clause's most selective condition, its access condition:

    bucket 0          clauses without any constraint, or only with needs that must not hold
    of a value        `symbol = 'ABC'`: the equality whose value is rarest among the clauses (the access predicates of
                      Fabret et al. that StreamHub, section 2.2, cites); it is not checked again
    of a need         clauses without an equality: events that meet the need reach it; it is not checked again either
    of a dimension    clauses of ranges only: events that have the rarest attribute reach it

    access_dimension[a]  dimensions with equalities; their keys are key_value[access_start[a] :
                         access_start[a + 1]]
    key_bucket[k]        the bucket of a key
    dimension_bucket[d]  the bucket of a dimension, need_bucket[p] that of a need; -1: none

A bucket holds free registrations (nothing more is asked), clauses one by one and, where many have the same
dimensions, groups of boxes:

    buckets[3b]          where its registrations begin in `free_registration`; at 3b + 1 and 3b + 2 where its
                         clauses and its groups begin. All end where those of the next bucket begin
    clause               two tokens in `clause_tokens`, which exclude it for nearly all events (`tokens`), and
                         four words in `clauses`, side by side because few clauses are left then:
                         low, high - low      of its most selective term
                         dimension            of that term, and in the upper half the registration
                         terms                where its further terms begin, and in the upper half its needs;
                                              both end where those of the next clause begin
    term                 dimension, low, high
    group                its dimensions, and chunks of boxes that lie near one another (`box_order`)
    chunk                leaves of 64 boxes under a tree of nodes (`chunks`), and per dimension an axis
    axis                 what the chunk's boxes span (axis_low, axis_high), its edges and its cells
    slot                 a box's place (64 * leaf + i): registration (-1: surplus), needs

    event --> values, needs, attributes --> buckets --+--> free
                                                      +--> clauses --> tokens --> terms, needs    registrations
                                                      `--> groups --> chunks --> nodes

`needs` holds the needs of clauses, then of slots. Those of slot s begin at slot_needs[s]; where no box has needs,
`slot_needs` is empty.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, compiled
from culver.matching.index.compile.clause_table import ClauseTable, first_of_runs, pack_texts, run_starts
from culver.matching.index.compile.key_lines import EVERYTHING
from culver.matching.index.layout.access_conditions import Access
from culver.matching.index.layout.box_groups import Boxes
from culver.matching.index.layout.segment_arrays import ENTRY_TYPES, SegmentArrays
from culver.matching.index.layout.tokens import clause_tokens

# Fewer boxes than this are checked faster one by one.
_MIN_GROUP = 16


def lay_out(table: ClauseTable) -> SegmentArrays:
    """Lay out a segment with these clauses. Those with an empty interval never hold and are left out."""
    table = _without_empty(table)
    access = Access(table)
    rest = access.without_access()
    boxed, begin, single, free = _sort_out(rest, access.bucket)
    clauses = _Clauses(rest.select_clauses(single))
    boxes = Boxes(rest, access.bucket, boxed, begin)
    literal_start, literal_bytes = pack_texts(table.literals)
    every = np.arange(access.buckets + 1)
    arrays = {
        "numbers": table.numbers,
        "since": table.since,
        "literal_start": literal_start,
        "literal_bytes": literal_bytes,
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


def _typed(name: str, array: NDArray[Any]) -> NDArray[Any]:
    dtype = ENTRY_TYPES[name]
    if dtype is np.int32 and len(array) and int(array.max()) >= 2**31:
        raise OverflowError(f"a segment cannot hold so many entries in {name}")
    return np.ascontiguousarray(array, dtype)


def _sort_out(table: ClauseTable, bucket: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Sort clauses into boxes (and where each group begins among them), clauses that are checked one by one, and free
    ones, all in the order of their buckets."""
    none = np.empty(0, np.int64)
    count = len(bucket)
    if count >= _MIN_GROUP and are_alike(table.term_start, table.term_dimension, table.need_start, bucket):
        return np.arange(count), np.array([0, count]), none, none
    terms, needs = np.diff(table.term_start), np.diff(table.need_start)
    # Boxes without needs are found without looking at them one by one, so those with needs are apart.
    shape = 2 * _shapes(table) + (needs > 0)
    # Groups are numbered by bucket first, so their order is that of the buckets.
    code = bucket * (int(shape.max(initial=0)) + 1) + shape
    _, member, size = np.unique(code, return_inverse=True, return_counts=True)
    is_boxed = (size >= _MIN_GROUP)[member] & (terms > 0)
    boxed = np.flatnonzero(is_boxed)
    boxed = boxed[np.argsort(member[boxed], kind="stable")]
    begin = np.append(np.flatnonzero(first_of_runs(member[boxed])), len(boxed))
    free = np.flatnonzero((terms == 0) & (needs == 0))
    free = free[np.argsort(bucket[free], kind="stable")]
    single = np.flatnonzero(~is_boxed & ((terms > 0) | (needs > 0)))
    single = single[np.argsort(bucket[single], kind="stable")]
    return boxed, begin, single, free


@compiled
def are_alike(term_start: Integers, term_dimension: Integers, need_start: Integers, bucket: Integers) -> bool:
    """Whether all clauses are in one bucket, on the same dimensions, and without needs."""
    width = term_start[1] - term_start[0]
    if width == 0 or need_start[-1] > 0:
        return False
    for clause in range(len(bucket)):
        begin = term_start[clause]
        if bucket[clause] != bucket[0] or term_start[clause + 1] - begin != width:
            return False
        for i in range(width):
            if term_dimension[begin + i] != term_dimension[i]:
                return False
    return True


def _without_empty(table: ClauseTable) -> ClauseTable:
    empty = np.flatnonzero(table.term_bounds[:, 0] > table.term_bounds[:, 1])
    if not len(empty):
        return table
    kept = np.ones(len(table.clause_registration), np.bool_)
    kept[np.searchsorted(table.term_start, empty, side="right") - 1] = False
    return table.select_clauses(np.flatnonzero(kept))


def _shapes(table: ClauseTable) -> Integers:
    """Number the clauses, so that those with the same dimensions share a number; without terms it is 0."""
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
    """The clauses that are checked one by one, as words (see above), and their later terms."""

    def __init__(self, table: ClauseTable) -> None:
        count = len(table.clause_registration)
        first = _rarest_terms(table)
        decided = first >= 0
        later = np.ones(len(table.term_dimension), np.bool_)
        later[first[decided]] = False
        # A clause without terms gets one on the dimension behind the last, in which every key lies.
        dimension = np.full(count, len(table.dimensions), np.int64)
        dimension[decided] = table.term_dimension[first[decided]]
        self.words = np.zeros((count + 1, 4), np.int64)
        self.words[:count, :2] = EVERYTHING
        self.words[:count][decided, :2] = table.term_bounds[first[decided]]
        self.words[:count, 2] = dimension | (table.clause_registration << 32)
        self.words[:, 1] -= self.words[:, 0]  # as an unsigned number
        self.words[:, 3] = run_starts(np.diff(table.term_start) - decided) | (table.need_start << 32)
        self.term_dimension = table.term_dimension[later]
        self.term_bounds = table.term_bounds[later]
        self.needs = table.needs
        self.tokens = clause_tokens(
            table.term_start, table.term_dimension, table.term_bounds, table.need_start, table.needs,
            len(table.dimensions),
        )  # fmt: skip


def _rarest_terms(table: ClauseTable) -> Integers:
    """The most selective term of each clause, -1 where it has none: the rarest equality, or else a range."""
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
