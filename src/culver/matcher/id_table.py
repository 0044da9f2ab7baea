"""The ids of a matcher's filters by number, and their numbers by id."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.errors import InvalidRequest
from culver.jit import Integers
from culver.matcher.packed_texts import PackedTexts

_MOST_CHARACTERS = 1024
_SHOWN = 60


def checked_ids(ids: Sequence[Any]) -> list[str]:
    """The ids as plain strings. Raises InvalidRequest, with `place` in its details, for what is no id."""
    # Each check is one call for all, because there may be a million.
    try:
        listed = [str.__str__(each) for each in ids]
        if all(listed) and max(map(len, listed), default=0) <= _MOST_CHARACTERS:
            "".join(listed).encode()
            return listed
    except (TypeError, UnicodeEncodeError):
        pass
    place, what = next((place, what) for place, each in enumerate(ids) if (what := _fault(each)))
    raise InvalidRequest(what, field="id", place=place)


def shown_id(id_: Any) -> str:
    """An id as an error may carry it: of bounded length, and encodable whatever it is."""
    text = ascii(id_) if isinstance(id_, str) and not id_.isprintable() else repr(id_)
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}...{text[-1]}"


def _fault(id_: Any) -> str | None:
    if not isinstance(id_, str):
        return f"an id is a string, not {type(id_).__name__}: {shown_id(id_)}"
    if not id_:
        return "the id '' is empty; give it a character at least"
    if len(id_) > _MOST_CHARACTERS:
        return f"the id {shown_id(id_)} has {len(id_)} characters; the limit is {_MOST_CHARACTERS}"
    if any("\ud800" <= each <= "\udfff" for each in id_):
        return f"the id {shown_id(id_)} holds half of a surrogate pair"
    return None


class IdTable:
    """Numbers are given in ascending order, and never again. The id of a filter that was removed keeps its place, for
    matches that have just found it.

    Each form is made when it is first needed, because a table that was read from a file may have millions of ids.
    """

    def __init__(self, saved: PackedTexts | None = None) -> None:
        self._saved = PackedTexts.of([]) if saved is None else saved
        self.count = len(self._saved)
        """The numbers given, those of removed filters too."""
        self._numbers: dict[str, int] | None = None
        self._objects: NDArray[np.object_] | None = None
        self._array = self._saved.array()
        self._later: list[str] = []  # those behind what `_array` has
        self._next: dict[str, int] = {}  # by beginning: see `unused`

    def __len__(self) -> int:
        return self.count if self._numbers is None else len(self._numbers)

    def numbers(self) -> dict[str, int]:
        """In the order of the numbers. Not to be changed."""
        if self._numbers is None:
            self._numbers = {each: number for number, each in enumerate(self._saved)}
        return self._numbers

    def objects(self) -> NDArray[np.object_]:
        """Every id as a string of Python, in an array that may be longer than there are ids."""
        if self._objects is None:
            self._objects = np.array([*self._array.to_pylist(), *self._later, None], object)
        return self._objects

    def array(self) -> pa.Array:
        """Every id, as `large_string`."""
        if self._later:
            self._array = pa.concat_arrays([self._array, pa.array(self._later, pa.large_string())])
            self._later = []
        return self._array

    def append(self, ids: Sequence[str]) -> int:
        """Give the next numbers to ids that have none, and return the first of them."""
        first, end = self.count, self.count + len(ids)
        self.numbers().update(zip(ids, range(first, end), strict=True))
        self._later += ids
        self.count = end
        if self._next and ids:
            beginning, _, place = ids[-1].rpartition(".")
            if beginning in self._next and place.isdecimal():
                self._next[beginning] = max(self._next[beginning], int(place) + 1)
        if self._objects is not None:
            if end > len(self._objects):
                self._objects = np.concatenate([self._objects, np.empty(end, object)])
            self._objects[first:end] = ids
        return first

    def unused(self, beginning: str, count: int) -> list[str]:
        """So many ids that nobody has: `beginning`.0, `beginning`.1 and so on, behind those made for it before."""
        first = self._next.setdefault(beginning, 0)
        made = _numbered(beginning, first, count)
        if not self.numbers().keys().isdisjoint(made):
            places = (
                each[len(beginning) + 1 :] for each in self.numbers() if each.startswith(f"{beginning}.")
            )
            first = max(int(place) + 1 for place in places if place.isdecimal())
            made = _numbered(beginning, first, count)
        return made

    def remove(self, id_: str) -> int | None:
        """The number that the id had, None where it had none."""
        return self.numbers().pop(id_, None)

    def kept(self) -> Integers:
        """The numbers that were not removed."""
        return np.fromiter(self.numbers().values(), np.int64, len(self.numbers()))

    def renumbered(self) -> "IdTable":
        """The ids that were not removed, numbered from 0 on."""
        result = IdTable()
        result.append(list(self.numbers()))
        return result

    def packed(self) -> PackedTexts:
        """What a file holds. Only for a table that comes from `renumbered`."""
        return PackedTexts.of(list(self.numbers()))


def _numbered(beginning: str, first: int, count: int) -> list[str]:
    return [f"{beginning}.{place}" for place in range(first, first + count)]
