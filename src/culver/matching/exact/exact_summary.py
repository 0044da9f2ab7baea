"""Keeps the sum of a site's predicates, clause by clause, for the sites of its clusters."""

from collections import Counter
from collections.abc import Sequence

from culver.matching.encoded.encoded_predicate import NOTHING
from culver.matching.encoded.predicate_summary import PredicateSummary
from culver.matching.encoded.row_widening import clauses_of_rows
from culver.matching.exact.clause_covering import without_covered
from culver.matching.exact.exact_predicate import MOST_CHARACTERS, ExactPredicate
from culver.matching.exact.site_predicate import SitePredicate
from culver.model.columns import Columns
from culver.model.language import Clause, Prepared

# Texts of clauses are seldom shorter: with more, there is no need to write them to see that they are too long.
_LEAST_CHARACTERS = 32


class ExactSummary:
    """Clauses that another one covers are left out, and come back when that is removed. A sum whose text would be
    longer than `most_characters` is encoded instead, which lets a little more through. Not thread-safe."""

    def __init__(self, encoded: PredicateSummary, most_characters: int = MOST_CHARACTERS) -> None:
        self._encoded = encoded
        self._most_characters = most_characters
        self._clauses: dict[int, tuple[Clause, ...]] = {}
        self._counts: Counter[Clause] = Counter()
        self._made: SitePredicate | None = NOTHING

    def add(self, number: int, clauses: Sequence[Clause]) -> None:
        """Add a predicate. One whose number is there already is left as it is."""
        if number not in self._clauses:
            self._clauses[number] = tuple(clauses)
            self._counts.update(clauses)
            self._encoded.add(number, clauses)
            self._made = None

    def add_rows(self, number: int, prepared: Prepared, columns: Columns) -> None:
        """Add a block of a set of subscriptions: row by row where that is cheap, and a few wider clauses for all rows
        otherwise."""
        if number not in self._clauses:
            self.add(number, clauses_of_rows(prepared, columns))

    def remove(self, number: int) -> None:
        """Remove a predicate, or a block. Unknown numbers are ignored."""
        gone = self._clauses.pop(number, None)
        if gone is None:
            return
        self._encoded.remove(number)
        self._counts.subtract(gone)
        for clause in gone:
            if not self._counts[clause]:
                del self._counts[clause]
        self._made = None

    def encode(self) -> SitePredicate:
        """The sum as it is now. Returns the same object until something changes. Not for an event loop's thread."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> SitePredicate:
        if not self._counts:
            return NOTHING
        if len(self._counts) * _LEAST_CHARACTERS <= self._most_characters:
            exact = ExactPredicate.of(without_covered(self._counts))
            if len(exact.text) <= self._most_characters:
                return exact
        return self._encoded.encode()
