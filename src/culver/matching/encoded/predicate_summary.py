"""Keeps the aggregate of a site's predicates (B-DRP, section 2.2: what a router advertises), to be encoded.

    number   clauses            a registration or a block of a set
    clause   how often          equal clauses are kept once
    group    its clauses        that differ in one range alone; those within another one are dropped
    set      how often          of categories, of the clauses that are left

A change touches the groups of its own clauses, and `encode` works these out anew before it does the rest for all sets
at once. Nothing that is covered is forgotten: when the last of what covers it is removed, it comes back.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from culver.errors import InvalidConfiguration
from culver.matching.encoded.bloom_vectors import FEWEST_BITS, HASHES, choose_size, vector_of
from culver.matching.encoded.category_sets import EVERYTHING, choose_forms, hashed_sets, reduced_to
from culver.matching.encoded.constraint_options import CELLS, ENCODINGS, CategorySet, category_sets
from culver.matching.encoded.encoded_predicate import MOST_FORMS, MOST_VECTORS, EncodedPredicate
from culver.matching.encoded.row_widening import clauses_of_rows
from culver.matching.encoded.vector_table import minimal_vectors
from culver.model.columns import Columns
from culver.model.language import Between, Clause, Prepared


class PredicateSummary:
    """Not thread-safe. The order of changes makes no difference to what `encode` returns."""

    def __init__(
        self, encoding: str = CELLS, false_positive_rate: float = 0.01, max_vectors: int = 4096
    ) -> None:
        if encoding not in ENCODINGS:
            raise InvalidConfiguration(
                f"unknown encoding {encoding!r}; known: {', '.join(ENCODINGS)}", known=list(ENCODINGS)
            )
        self._encoding = encoding
        self._rate = false_positive_rate
        self._max_vectors = min(max_vectors, MOST_VECTORS)
        self._clauses: dict[int, tuple[Clause, ...]] = {}
        self._groups: dict[Clause, Counter[Clause]] = {}
        self._touched: set[Clause] = set()
        self._sets_of_group: dict[Clause, set[CategorySet]] = {}
        self._sets: Counter[CategorySet] = Counter()
        self._encoded: EncodedPredicate | None = None

    def __len__(self) -> int:
        return len(self._clauses)

    def add(self, number: int, clauses: Sequence[Clause]) -> None:
        """Add a predicate. One whose number is there already is left as it is."""
        if number not in self._clauses:
            self._clauses[number] = tuple(clauses)
            self._count(self._clauses[number], 1)

    def add_rows(self, number: int, prepared: Prepared, columns: Columns) -> None:
        """Add a block of a set of subscriptions: row by row where that is cheap, and a few wider clauses for all rows
        otherwise. Takes less than a second for 200,000 rows."""
        if number not in self._clauses:
            self.add(number, clauses_of_rows(prepared, columns))

    def remove(self, number: int) -> None:
        """Remove a predicate, or a block. Unknown numbers are ignored."""
        self._count(self._clauses.pop(number, ()), -1)

    def encode(self) -> EncodedPredicate:
        """The aggregate as it is now. Returns the same object until something changes.

        Takes about 40 µs for each clause that came since the last call, and 0.15 s for 20,000 of them whenever
        something has changed, so it is not for an event loop's thread."""
        self._settle()
        if self._encoded is None:
            self._encoded = self._made()
        return self._encoded

    def _count(self, clauses: Iterable[Clause], step: int) -> None:
        for clause in clauses:
            key = _without_range(clause)
            group = self._groups.setdefault(key, Counter())
            group[clause] += step
            if not group[clause]:
                del group[clause]
            self._touched.add(key)

    def _settle(self) -> None:
        """Bring the counts of the sets up to date with the groups that were touched."""
        for key in self._touched:
            before = self._sets_of_group.pop(key, set())
            after: set[CategorySet] = set()
            if group := self._groups[key]:
                chosen = _widest(group)
                after = {each for clause in chosen for each in category_sets(clause, self._encoding)}
                self._sets_of_group[key] = after
            else:
                del self._groups[key]
            self._sets.update(after - before)
            for gone in before - after:
                self._sets[gone] -= 1
                if not self._sets[gone]:
                    del self._sets[gone]
            if before != after:
                self._encoded = None
        self._touched.clear()

    def _made(self) -> EncodedPredicate:
        forms = choose_forms(self._sets, MOST_FORMS)
        sets, categories = hashed_sets(self._sets, forms)
        sets = reduced_to(self._max_vectors, sets, categories)
        if not sets or EVERYTHING in sets:
            bits, hashes = FEWEST_BITS, HASHES[0]
        else:
            used = {categories[hashed].form for each in sets for hashed in each}
            attributes = len({form.attribute for form in used})
            bits, hashes = choose_size([len(each) for each in sets], len(used), attributes, self._rate)
        vectors = {vector_of(each, bits, hashes): each for each in sorted(sets, key=sorted)}
        kept = minimal_vectors(sorted(vectors), bits)
        names = {categories[hashed].form.text for vector in kept for hashed in vectors[vector]}
        return EncodedPredicate(self._encoding, bits, hashes, tuple(sorted(names)), tuple(kept))


def _without_range(clause: Clause) -> Clause:
    """What clauses have in common that differ in one range alone: its bounds are taken out."""
    ranges = [constraint for constraint in clause if isinstance(constraint, Between)]
    if len(ranges) != 1:
        return clause
    (own,) = ranges
    blank = replace(own, low=None, low_closed=False, high=None, high_closed=False)
    return tuple(blank if constraint is own else constraint for constraint in clause)


def _widest(group: Counter[Clause]) -> Iterable[Clause]:
    """The clauses of a group whose ranges lie in no other one's."""
    if len(group) < 2:
        return group
    ranged = [(*_ends(clause), clause) for clause in group]
    # From the left; of those that begin at the same place, the one that goes farthest comes first.
    ranged.sort(key=itemgetter(1), reverse=True)
    ranged.sort(key=itemgetter(0))
    farthest: tuple[Any, ...] = ()
    kept = []
    for _, end, clause in ranged:
        if end > farthest:
            farthest = end
            kept.append(clause)
    return kept


def _ends(clause: Clause) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Where the one range of a clause begins and ends, as something that compares."""
    (own,) = (constraint for constraint in clause if isinstance(constraint, Between))
    begin = (0,) if own.low is None else (1, own.low, not own.low_closed)
    return begin, (2,) if own.high is None else (1, own.high, own.high_closed)
