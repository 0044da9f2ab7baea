"""The texts of a matcher's filters, by number: to explain a match, and to save the matcher.

Filters of one form keep their values in columns, as they came:

    singles   7 -> "price > 20"
    rows      from number 8 on: "symbol = ? AND close >= ?", and a column for each `?`

The texts of a saved matcher stay in its file until they are asked for.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matcher.packed_texts import PackedTexts
from culver.model.columns import Columns, read_columns, values_at, write_columns
from culver.model.language import Prepared, prepare


class _Rows(NamedTuple):
    """Filters of one form, numbered from `first` on."""

    first: int
    prepared: Prepared
    columns: Columns

    @property
    def end(self) -> int:
        return self.first + len(self.columns[0])


class TextTable:
    """A filter that was removed may stay here until `renumbered`."""

    def __init__(self) -> None:
        self._singles: dict[int, str] = {}
        self._rows: list[_Rows] = []  # ascending
        self._saved_numbers: Integers = np.empty(0, np.int64)
        self._saved = PackedTexts.of([])

    def add(self, number: int, text: str) -> None:
        self._singles[number] = text

    def add_rows(self, first: int, prepared: Prepared, columns: Columns) -> None:
        """Numbers grow, from call to call too."""
        self._rows.append(_Rows(first, prepared, columns))

    def remove(self, number: int) -> None:
        self._singles.pop(number, None)

    def text(self, number: int) -> str:
        """The text of a filter that is there."""
        single = self._singles.get(number)
        if single is not None:
            return single
        place = int(np.searchsorted(self._saved_numbers, number))
        if place < len(self._saved_numbers) and self._saved_numbers[place] == number:
            return self._saved[place]
        rows = self._rows[bisect_right(self._rows, number, key=lambda each: each.first) - 1]
        return rows.prepared.written(values_at(rows.columns, number - rows.first))

    def renumbered(self, kept: Integers) -> "TextTable":
        """The filters with these numbers, which ascend, numbered anew from 0 on."""
        result = TextTable()
        saved = zip(self._saved_numbers.tolist(), self._saved, strict=True)
        new_number = {number: place for place, number in enumerate(kept.tolist())}
        for number, text in (*saved, *self._singles.items()):
            if number in new_number:
                result.add(new_number[number], text)
        for rows in self._rows:
            begin, end = np.searchsorted(kept, [rows.first, rows.end]).tolist()
            if begin < end:
                taken = pa.array(kept[begin:end] - rows.first)
                result.add_rows(begin, rows.prepared, tuple(column.take(taken) for column in rows.columns))
        return result

    def packed(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `unpacked` takes. Only for texts that come from `renumbered`."""
        singles = sorted(self._singles.items())
        texts = PackedTexts.of([text for _, text in singles])
        arrays: dict[str, NDArray[Any]] = {
            "single_number": np.array([number for number, _ in singles], np.int64),
            "single_start": texts.starts,
            "single_bytes": texts.data,
        }
        for place, rows in enumerate(self._rows):
            arrays[f"rows.{place}"] = np.frombuffer(write_columns(rows.columns), np.uint8)
        return {"rows": [[rows.first, rows.prepared.text] for rows in self._rows]}, arrays

    @classmethod
    def unpacked(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "TextTable":
        result = cls()
        result._saved_numbers = arrays["single_number"]
        result._saved = PackedTexts(arrays["single_start"], arrays["single_bytes"])
        for place, (first, text) in enumerate(meta["rows"]):
            result.add_rows(first, prepare(text), read_columns(arrays[f"rows.{place}"]))
        return result
