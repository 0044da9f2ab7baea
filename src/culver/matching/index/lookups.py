"""Which needs one value meets, without trying all of them.

equal values, list members     value -> needs
prefix, suffix                 length -> text -> needs: one look per length that occurs
substring                      length -> text -> needs: one look per length and position
other patterns                 found as a substring by their longest literal text, then tried
ranges                         tried
"""

from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from culver.matching.index.codec import constraint_from_packed
from culver.model.evaluate import constraint_holds_for_value
from culver.model.patterns import like
from culver.model.predicate import OneOf, PatternShape, Range
from culver.model.values import Value

T = TypeVar("T")

_Parts = tuple[tuple[str, ...], tuple[bool, ...]]

# What one look in a dictionary costs, against one search for a text, and that per character searched.
_LOOK, _SEARCH, _SEARCH_CHARACTER = 100, 60, 0.3


class Lookup:
    """The needs about the values of one domain of one attribute (for lists, about their members)."""

    def __init__(self) -> None:
        self._equal: dict[Hashable, list[int]] = {}
        self._ranges: list[tuple[int, Range]] = []

    def add(self, place: int, packed: list[Any]) -> None:
        """Take in a need, in the form that `codec` draws."""
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
                raise ValueError(f"not about a value of its own: {packed!r}")

    def meets(self, value: Value) -> list[int]:
        """The needs that a value (or member) meets; the value must be of this domain."""
        found = list(self._equal.get(value, ()))
        for place, constraint in self._ranges:
            if constraint_holds_for_value(constraint, value) is True:
                found.append(place)
        return found


class TextLookup(Lookup):
    """The needs about strings."""

    def __init__(self) -> None:
        super().__init__()
        self._prefixes: dict[int, dict[str, list[int]]] = {}
        self._suffixes: dict[int, dict[str, list[int]]] = {}
        self._substrings = _Substrings[int]()
        self._anchored = _Substrings[tuple[int, _Parts]]()
        self._bare: list[tuple[int, _Parts]] = []

    def add(self, place: int, packed: list[Any]) -> None:
        if packed[0] != "pattern":
            super().add(place, packed)
            return
        _, _, shape, text, parts, kinds, _ = packed
        if shape == PatternShape.SUFFIX:
            self._suffixes.setdefault(len(text), {}).setdefault(text, []).append(place)
        elif shape == PatternShape.SUBSTRING:
            self._substrings.add(text, place)
        elif shape == PatternShape.PREFIX:
            self._prefixes.setdefault(len(text), {}).setdefault(text, []).append(place)
        else:
            literals = [part for part, wild in zip(parts, kinds, strict=True) if not wild]
            pattern = place, (tuple(parts), tuple(kinds))
            if literals:
                self._anchored.add(max(literals, key=len), pattern)
            else:
                self._bare.append(pattern)

    def meets(self, value: Value) -> list[int]:
        assert isinstance(value, str)
        found = super().meets(value)
        for length, texts in self._prefixes.items():
            found += texts.get(value[:length], ())
        for length, texts in self._suffixes.items():
            if length <= len(value):
                found += texts.get(value[len(value) - length :], ())
        for places in self._substrings.found(value):
            found += places
        for patterns in self._anchored.found(value):
            found += _matching(patterns, value)
        return found + _matching(self._bare, value) if self._bare else found


def _matching(patterns: Iterable[tuple[int, _Parts]], value: str) -> list[int]:
    return [place for place, pattern in patterns if like(*pattern, value)]


class _Substrings(Generic[T]):
    """Texts, with items for each; finds those that a value has in it."""

    def __init__(self) -> None:
        self._by_length: dict[int, dict[str, list[T]]] = {}

    def add(self, text: str, item: T) -> None:
        self._by_length.setdefault(len(text), {}).setdefault(text, []).append(item)

    def found(self, value: str) -> list[list[T]]:
        """The items of each text that stands in `value`."""
        found: list[list[T]] = []
        search = _SEARCH + _SEARCH_CHARACTER * len(value)
        for length, texts in self._by_length.items():
            places = len(value) - length + 1
            if places <= 0:
                continue
            if places * _LOOK < len(texts) * search:
                windows = {value[i : i + length] for i in range(places)}
                found += [texts[text] for text in windows & texts.keys()]
            else:
                found += [items for text, items in texts.items() if text in value]
        return found
