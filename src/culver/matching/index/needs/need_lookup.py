"""A lookup finds the needs that one value meets without trying all of them.

equal values, list members     value -> needs
prefix, suffix                 length -> text -> needs: one look per length that occurs
substring                      length -> text -> needs: one look per length and position
other patterns                 found as a substring by their longest literal text, then tried
ranges                         tried
"""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from culver.matching.index.compile.constraint_codec import constraint_from_packed
from culver.model import Value
from culver.model.language import Between, OneOf, PatternShape, constraint_holds_for_value, like

T = TypeVar("T")

_General = tuple[int, tuple[str, ...], tuple[bool, ...]]  # place, parts, kinds

# In nanoseconds: to take a window and look it up; to search for a text, and that for each character searched.
_LOOK, _SEARCH, _SEARCH_CHARACTER = 100, 60, 0.3
# In characters. Shorter grams tell fewer texts apart, and more texts are too short for longer ones.
_GRAM = 3


class Lookup:
    """The needs about the values of one domain of one attribute (for lists, about their members)."""

    def __init__(self) -> None:
        self._equal: dict[Hashable, list[int]] = {}
        self._ranges: list[tuple[int, Between]] = []

    def add(self, place: int, packed: list[Any]) -> None:
        """Add a need, as `packed_constraints` gives it. No need may come twice."""
        if packed[0] == "contains":
            self._equal.setdefault(packed[2], []).append(place)
            return
        constraint = constraint_from_packed(packed)
        match constraint:
            case OneOf(values=values):
                for value in set(values):  # 1 and 1.0 are one value
                    self._equal.setdefault(value, []).append(place)
            case Between():
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

    # A pool holds no constraint twice, so a text of one shape is one need. It is kept as a number, not as a list of
    # its own, which spares the garbage collector tens of thousands of objects.

    def __init__(self) -> None:
        super().__init__()
        self._prefixes: dict[int, dict[str, int]] = {}
        self._suffixes: dict[int, dict[str, int]] = {}
        self._substrings = _Substrings[int]()
        self._anchored = _Substrings[list[_General]]()
        self._bare: list[_General] = []  # only wildcards

    def add(self, place: int, packed: list[Any]) -> None:
        if packed[0] != "pattern":
            super().add(place, packed)
            return
        _, _, shape, text, parts, kinds, _ = packed
        if shape == PatternShape.SUBSTRING:
            self._substrings.add(text, place)
        elif shape == PatternShape.SUFFIX:
            self._suffixes.setdefault(len(text), {})[text] = place
        elif shape == PatternShape.PREFIX:
            self._prefixes.setdefault(len(text), {})[text] = place
        else:
            self._add_general((place, tuple(parts), tuple(kinds)))

    def _add_general(self, pattern: _General) -> None:
        literals = [part for part, wild in zip(*pattern[1:], strict=True) if not wild]
        if not literals:
            self._bare.append(pattern)
            return
        anchor = max(literals, key=len)
        others = self._anchored.get(anchor)
        if others is None:
            self._anchored.add(anchor, [pattern])
        else:
            others.append(pattern)

    def meets(self, value: Value) -> list[int]:
        assert isinstance(value, str)
        found = super().meets(value)
        for length, texts in self._prefixes.items():
            if (place := texts.get(value[:length])) is not None:
                found.append(place)
        for length, texts in self._suffixes.items():
            if length <= len(value) and (place := texts.get(value[len(value) - length :])) is not None:
                found.append(place)
        found += self._substrings.found(value)
        for patterns in (*self._anchored.found(value), self._bare):
            found += [place for place, parts, kinds in patterns if like(parts, kinds, value)]
        return found


class _Substrings(Generic[T]):
    """Keeps something for each of many texts, and finds the texts that are substrings of a value.

    short    length -> text -> kept      texts of up to _GRAM characters: a window of the value is the text
    grams    gram -> texts               longer texts, by one of their grams: the one that finds fewest texts
    long     text -> kept                of these, the ones that the value contains
    """

    def __init__(self) -> None:
        self._short: dict[int, dict[str, T]] = {}
        self._grams: dict[str, list[str]] = {}
        self._long: dict[str, T] = {}

    def get(self, text: str) -> T | None:
        return self._long.get(text) if len(text) > _GRAM else self._short.get(len(text), {}).get(text)

    def add(self, text: str, kept: T) -> None:
        """Keep something for a text that is not yet here."""
        if len(text) <= _GRAM:
            self._short.setdefault(len(text), {})[text] = kept
            return
        self._long[text] = kept
        grams = self._grams
        fewest: list[str] | None = None
        for i in range(len(text) - _GRAM + 1):
            gram = text[i : i + _GRAM]
            texts = grams.get(gram)
            if texts is None:
                grams[gram] = [text]
                return
            if fewest is None or len(texts) < len(fewest):
                fewest = texts
        assert fewest is not None
        fewest.append(text)

    def found(self, value: str) -> list[T]:
        """What is kept for each text that `value` contains."""
        found: list[T] = []
        for length, short in self._short.items():
            if _windows_pay(value, len(short)):
                found += [short[text] for text in _windows(value, length) & short.keys()]
            else:
                found += [kept for text, kept in short.items() if text in value]
        long = self._long
        if _windows_pay(value, len(long)):
            for gram in _windows(value, _GRAM) & self._grams.keys():
                found += [long[text] for text in self._grams[gram] if text in value]
        else:
            found += [kept for text, kept in long.items() if text in value]
        return found


def _windows(value: str, length: int) -> set[str]:
    return {value[i : i + length] for i in range(len(value) - length + 1)}


def _windows_pay(value: str, texts: int) -> bool:
    return len(value) * _LOOK < texts * (_SEARCH + _SEARCH_CHARACTER * len(value))
