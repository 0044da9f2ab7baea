"""The event space in parts, each with a clustering of its own (section 3.2 of the paper).

A division looks at one attribute. Its values are in cells, and each cell belongs to a part:

    strings     the listed values, one cell each
    numbers     the intervals between bounds; each holds its lower bound

Everything else is in the part `rest`: events without the attribute, with a value of another type, or with a string
that is not listed. Parts are numbered from 0.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import msgspec

from culver.model import Domain, Value, domain_of
from culver.model.language import Between, Clause, Computed, Constraint, OneOf, constraint_holds_for_value

MOST_PARTS = 16
MOST_CELLS = 1024

Lookup = Callable[[str], Value | None]
"""The value of an attribute as a filter sees it: `event.value`, or the `get` of a mapping."""

_Part = Annotated[int, msgspec.Meta(ge=0, lt=MOST_PARTS)]


class EventDivision(msgspec.Struct, frozen=True, array_like=True):
    """Its fields are its form on the wire. A higher `version` replaces a lower one.

    `values` holds (string, part), sorted. With n `bounds` there are n + 1 `intervals`, the parts of the numbers
    below the first bound, between two, and from the last one on. A division has values or bounds, or neither: then
    all is `rest`.

    :raises ValueError: it contradicts itself. A decoder raises msgspec.ValidationError instead.
    """

    version: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] = 0
    parts: Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTS)] = 1
    rest: _Part = 0
    attribute: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    values: Annotated[tuple[tuple[str, _Part], ...], msgspec.Meta(max_length=MOST_CELLS)] = ()
    bounds: Annotated[tuple[int | float, ...], msgspec.Meta(max_length=MOST_CELLS)] = ()
    intervals: Annotated[tuple[_Part, ...], msgspec.Meta(max_length=MOST_CELLS + 1)] = ()

    def __post_init__(self) -> None:
        used = {self.rest, *self.intervals, *(part for _, part in self.values)}
        if max(used) >= self.parts:
            raise ValueError(f"a division into {self.parts} parts has no part {max(used)}")
        if self.values and self.bounds:
            raise ValueError("a division is over strings or over numbers")
        if not all(map(math.isfinite, self.bounds)):
            raise ValueError("the bounds of a division are finite")
        if not _increases([value for value, _ in self.values]) or not _increases(self.bounds):
            raise ValueError("the cells of a division are sorted and distinct")
        if len(self.intervals) != (len(self.bounds) + 1 if self.bounds else 0):
            raise ValueError("a division has one interval more than bounds")

    def part_of(self, value: Lookup) -> int:
        """The part that an event is in."""
        found = value(self.attribute) if self.attribute else None
        if isinstance(found, str):
            return self._part_of_string(found)
        if found is not None and self.bounds and domain_of(found) is Domain.NUMBER:
            return self.intervals[bisect_right(self.bounds, found)]
        return self.rest

    def parts_of(self, clauses: Iterable[Clause]) -> set[int]:
        """The parts with events that one of the clauses can match: too many perhaps, but all of them."""
        return {part for clause in clauses for part in self._parts_of_clause(clause)}

    def _part_of_string(self, text: str) -> int:
        place = bisect_left(self.values, text, key=lambda listed: listed[0])
        if place < len(self.values) and self.values[place][0] == text:
            return self.values[place][1]
        return self.rest

    def _parts_of_clause(self, clause: Clause) -> set[int]:
        about = [
            constraint
            for constraint in clause
            if not isinstance(constraint, Computed) and constraint.attribute == self.attribute
        ]
        if not about:
            return {self.rest, *self.intervals, *(part for _, part in self.values)}
        parts = {
            part
            for text, part in self.values
            if all(constraint_holds_for_value(constraint, text) for constraint in about)
        }
        for place, part in enumerate(self.intervals):
            if all(self._meets_interval(constraint, place) for constraint in about):
                parts.add(part)
        if not any(self._needs_a_cell(constraint) for constraint in about):
            parts.add(self.rest)
        return parts

    def _meets_interval(self, constraint: Constraint, place: int) -> bool:
        """Whether a number of the interval can satisfy the constraint."""
        low = self.bounds[place - 1] if place > 0 else None
        high = self.bounds[place] if place < len(self.bounds) else None
        match constraint:
            case Between(_, Domain.NUMBER):
                wanted_low: Any = constraint.low
                wanted_high: Any = constraint.high
                if high is not None and wanted_low is not None and wanted_low >= high:
                    return False
                if low is None or wanted_high is None or wanted_high > low:
                    return True
                return bool(wanted_high == low) and constraint.high_closed
            case OneOf(_, Domain.NUMBER, values, False):
                return any(bisect_right(self.bounds, value) == place for value in values)
            case OneOf(_, Domain.NUMBER):
                return True
            case Between() | OneOf():
                return False
            case _:
                # A number is present, and neither a string nor a list.
                return not isinstance(constraint, Computed) and bool(
                    constraint_holds_for_value(constraint, 0)
                )

    def _needs_a_cell(self, constraint: Constraint) -> bool:
        """Whether the constraint holds for values in cells alone."""
        match constraint:
            case OneOf(_, Domain.STRING, values, False) if self.values:
                listed = {text for text, _ in self.values}
                return listed.issuperset(values)
            case Between(_, Domain.NUMBER) | OneOf(_, Domain.NUMBER):
                return bool(self.bounds)
            case _:
                return False


def _increases(cells: Iterable[Any]) -> bool:
    following: Iterator[Any] = iter(cells)
    previous = next(following, None)
    for each in following:
        if not previous < each:
            return False
        previous = each
    return True
