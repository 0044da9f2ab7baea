"""Access conditions: the one condition of each clause by which events find it.

clause                                   access condition        bucket
symbol = 'ABC' AND close > 50            symbol = 'ABC'          1     the rarest equality
name LIKE '%x' AND close > 50            name LIKE '%x'          2     else the first need
close > 50 AND volume > 1000             there is a volume       3     else the rarest attribute
x IS NULL                                none                    0
"""

from dataclasses import replace

import numpy as np

from culver.jit import Integers, compiled
from culver.matching.index.compile.clause_table import ClauseTable, first_of_runs, run_starts
from culver.matching.index.compile.key_lines import KeyLine


class Access:
    """The bucket of each clause, and the tables by which an event finds its buckets."""

    def __init__(self, table: ClauseTable) -> None:
        self._table = table
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
        kept_terms, kept_needs = run_starts(terms.astype(np.int64)), run_starts(needs.astype(np.int64))
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
        is_flag = np.array(
            [line in (KeyLine.BOOLEANS, KeyLine.LISTS) for _, line in table.dimensions], np.bool_
        )
        terms = np.flatnonzero(bounds[:, 0] == bounds[:, 1])
        terms = terms[~is_flag[table.term_dimension[terms]]]  # half of all events have the value
        terms = terms[np.lexsort((bounds[terms, 0], table.term_dimension[terms]))]
        clause_of_term = terms  # none, where there are none
        if len(terms):
            clause_of_term = np.repeat(np.arange(len(self.bucket)), np.diff(table.term_start))[terms]
        first = first_of_runs(table.term_dimension[terms]) | first_of_runs(bounds[terms, 0])
        value = np.cumsum(first) - 1
        frequency = np.bincount(value, minlength=1)[value] if len(terms) else value
        # The term of each clause with the rarest value.
        by_clause = np.lexsort((frequency, clause_of_term))
        chosen = by_clause[first_of_runs(clause_of_term[by_clause])]
        used, bucket = np.unique(value[chosen], return_inverse=True)
        self._access_terms = terms[chosen]
        self.bucket[clause_of_term[chosen]] = self.buckets + bucket
        key_term = terms[np.flatnonzero(first)[used]] if len(terms) else terms
        self.key_bucket = self.buckets + np.arange(len(used))
        self.buckets += len(used)
        self.key_value = bounds[key_term, 0]
        dimension = table.term_dimension[key_term]
        self.dimensions = np.unique(dimension)
        self.start = run_starts(
            np.bincount(np.searchsorted(self.dimensions, dimension), minlength=len(self.dimensions))
        )

    def _by_dimension(self) -> None:
        table = self._table
        frequency = np.bincount(table.term_dimension, minlength=len(table.dimensions))
        self.dimension_bucket = np.full(len(table.dimensions), -1, np.int64)
        buckets = self.bucket, self.buckets, self.dimension_bucket
        self.buckets = assign_rarest(table.term_start, table.term_dimension, frequency, *buckets)

    def _by_need(self) -> None:
        table = self._table
        self.need_bucket = np.full(len(table.pool), -1, np.int64)
        self._access_needs = table.needs
        if not len(table.needs):
            return
        clause_of_need = np.repeat(np.arange(len(self.bucket)), np.diff(table.need_start))
        usable = np.flatnonzero((table.needs >= 0) & (self.bucket[clause_of_need] == 0))
        usable = usable[first_of_runs(clause_of_need[usable])]
        self._access_needs = usable
        chosen = table.needs[usable]
        used = np.flatnonzero(np.bincount(chosen, minlength=len(table.pool)))
        self.need_bucket[used] = self.buckets + np.arange(len(used))
        self.bucket[clause_of_need[usable]] = self.need_bucket[chosen]
        self.buckets += len(used)


@compiled
def assign_rarest(
    term_start: Integers,
    term_dimension: Integers,
    frequency: Integers,
    bucket: Integers,
    buckets: int,
    dimension_bucket: Integers,
) -> int:
    """Put each clause that has terms, but no bucket yet, into the bucket of its rarest dimension. Buckets from
    `buckets` on go to the dimensions in use, ascending. Returns how many buckets there are then."""
    for again in range(2):
        for clause in range(len(bucket)):
            begin, end = term_start[clause], term_start[clause + 1]
            if bucket[clause] != 0 or begin == end:
                continue
            rarest = term_dimension[begin]
            for term in range(begin + 1, end):
                if frequency[term_dimension[term]] < frequency[rarest]:
                    rarest = term_dimension[term]
            if again:
                bucket[clause] = dimension_bucket[rarest]
            else:
                dimension_bucket[rarest] = 0
        for dimension in range(len(dimension_bucket)):
            if not again and dimension_bucket[dimension] == 0:
                dimension_bucket[dimension] = buckets
                buckets += 1
    return buckets
