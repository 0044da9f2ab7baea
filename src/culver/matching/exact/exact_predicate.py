"""The exact predicate that a site advertises to its clusters: the clauses of its subscriptions, and their text.

exact 1 [[["range","a","number",5,false,null,false]],[["presence","b",true]]]
        |  clauses, each a list of constraints (see `constraint_codec`)
"""

from collections.abc import Iterable

import msgspec

from culver.errors import InvalidFilter
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.constraint_codec import (
    constraint_from_packed as constraint_of,
    constraint_to_text,
    packed_constraints,
)
from culver.model.language import Clause, Constant, Predicate

START = "exact 1 "
MOST_CHARACTERS = 1 << 20
"""Larger ones are not sent: a frame must hold the text, and every change sends all of it."""


class ExactPredicate(msgspec.Struct, frozen=True):
    """The content of one advertisement. An event matches where it satisfies all constraints of some clause."""

    text: str
    """One line, the same for equal clauses."""
    clauses: tuple[Clause, ...]

    @property
    def matches_everything(self) -> bool:
        return () in self.clauses

    @property
    def predicate(self) -> Predicate:
        """For a filter that reads clauses."""
        return Predicate(self.text, Constant(True), self.clauses)

    @classmethod
    def of(cls, clauses: Iterable[Clause]) -> "ExactPredicate":
        written = sorted((f"[{','.join(map(constraint_to_text, each))}]", each) for each in clauses)
        return cls(f"{START}[{','.join(text for text, _ in written)}]", tuple(each for _, each in written))

    @classmethod
    def parse(cls, text: str) -> "ExactPredicate":
        """Read a text, from whomever. Raises InvalidFilter for anything but the one text of a valid predicate."""
        if not text.startswith(START) or len(text) > MOST_CHARACTERS:
            raise InvalidFilter(
                f"the text of the exact predicate does not begin with {START!r}, or is too long",
                field="filter",
            )
        try:
            (packed,) = packed_constraints([text.removeprefix(START)])
            made = cls.of([tuple(map(constraint_of, clause)) for clause in packed])
            compile_entries([Entry(0, made.predicate)])
        except Exception as exc:  # a stranger's text may be wrong in any way
            raise InvalidFilter(
                f"the text of the exact predicate is damaged: {str(exc)[:100]}", field="filter"
            ) from None
        if made.text != text:
            raise InvalidFilter(
                "the text of the exact predicate is not written as it must be", field="filter"
            )
        return made
