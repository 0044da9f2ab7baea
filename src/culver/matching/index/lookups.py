"""Which needs one value meets, without trying all of them.

equal values, list members     value -> needs
prefix, suffix                 length -> text -> needs: one look per length that occurs
substring                      length -> text -> needs: one look per length and position
other patterns                 found as a substring by their longest literal text, then tried
ranges                         tried
"""

from collections.abc import Hashable
from typing import Any, TypeVar

from culver.matching.index.codec import constraint_from_packed
from culver.model.evaluate import constraint_holds_for_value
from culver.model.patterns import like
from culver.model.predicate import OneOf, PatternShape, Range
from culver.model.values import Value

T = TypeVar("T")

_General = tuple[int, tuple[str, ...], tuple[bool, ...]]  # place, parts, kinds

# In nanoseconds: to take a window and look it up; to search for a text, and that per character searched.
_LOOK, _SEARCH, _SEARCH_CHARACTER = 100, 60, 0.3


class Lookup:
    """The needs about the values of one domain of one attribute (for lists, about their members)."""

    def __init__(self) -> None:
        self._equal: dict[Hashable, list[int]] = {}
        self._ranges: list[tuple[int, Range]] = []

    def add(self, place: int, packed: list[Any]) -> None:
        """Take in a need, in the form that `codec` gives it. No need may come twice."""
        if packed[0] == "contains":
            self._equal.setdefault(packed[2], []).append(place)
            return
        constraint = constraint_from_packed(packed)
        match constraint:
            case OneOf(values=values):
                for value in set(values):  # 1 and 1.0 are one value
                    self._equal.setdefault(value, []).append(place)
            case Range():
                self._ranges.append((place, constraint))
            case _:
                raise ValueError(f"not a need about values: {packed!r}")

    def meets(self, value: Value) -> list[int]:
        """The needs that a value (or member) meets; the value must be of this domain."""
        found = list(self._equal.get(value, ()))
        for place, constraint in self._ranges:
            if constraint_holds_for_value(constraint, value) is True:
                found.append(place)
        return found


class TextLookup(Lookup):
    """The needs about strings."""

    # A pool holds no constraint twice, so a text of one shape is one need. To keep it as a number and not in
    # a list of its own spares the garbage collector tens of thousands of objects.

    def __init__(self) -> None:
        super().__init__()
        self._prefixes: dict[int, dict[str, int]] = {}
        self._suffixes: dict[int, dict[str, int]] = {}
        self._substrings: dict[int, dict[str, int]] = {}
        self._anchored: dict[int, dict[str, list[_General]]] = {}
        self._bare: list[_General] = []  # only wildcards

    def add(self, place: int, packed: list[Any]) -> None:
        if packed[0] != "pattern":
            super().add(place, packed)
            return
        _, _, shape, text, parts, kinds, _ = packed
        by_length = self._substrings
        if shape == PatternShape.GENERAL:
            self._add_general((place, tuple(parts), tuple(kinds)))
            return
        if shape == PatternShape.SUFFIX:
            by_length = self._suffixes
        elif shape == PatternShape.PREFIX:
            by_length = self._prefixes
        texts = by_length.get(len(text))
        if texts is None:
            texts = by_length[len(text)] = {}
        texts[text] = place

    def _add_general(self, pattern: _General) -> None:
        literals = [part for part, wild in zip(*pattern[1:], strict=True) if not wild]
        if not literals:
            self._bare.append(pattern)
            return
        anchor = max(literals, key=len)
        self._anchored.setdefault(len(anchor), {}).setdefault(anchor, []).append(pattern)

    def meets(self, value: Value) -> list[int]:
        assert isinstance(value, str)
        found = super().meets(value)
        for length, texts in self._prefixes.items():
            if (place := texts.get(value[:length])) is not None:
                found.append(place)
        for length, texts in self._suffixes.items():
            if length <= len(value) and (place := texts.get(value[len(value) - length :])) is not None:
                found.append(place)
        found += _inside(self._substrings, value)
        for patterns in (*_inside(self._anchored, value), self._bare):
            found += [place for place, parts, kinds in patterns if like(parts, kinds, value)]
        return found


def _inside(by_length: dict[int, dict[str, T]], value: str) -> list[T]:
    """What is kept for each text that stands somewhere in `value`."""
    found: list[T] = []
    search = _SEARCH + _SEARCH_CHARACTER * len(value)
    for length, texts in by_length.items():
        places = len(value) - length + 1
        if places <= 0:
            continue
        if places * _LOOK < len(texts) * search:
            windows = {value[i : i + length] for i in range(places)}
            found += [texts[text] for text in windows & texts.keys()]
        else:
            found += [kept for text, kept in texts.items() if text in value]
    return found
