"""The texts of a matcher's filters, by number: to explain a match, and to save the matcher.

Filters of one form keep their values in columns, whichever calls have added them:

    singles   7 -> "price > 20"
    forms     0 -> "symbol = ? AND close >= ?", and a column for each `?`
    runs      the numbers 8, 9, 10 are the rows 0, 1, 2 of form 0
              the number 12 is the row 3 of form 0

The texts of a saved matcher stay in its file until they are asked for.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matcher.packed_texts import PackedTexts
from culver.model.columns import Columns, read_columns, values_at, write_columns
from culver.model.language import Prepared, prepare

# Far below the 2 GiB of strings that one column can hold. A form with more begins anew.
_MOST_BYTES = 1 << 29


class _Form:
    """Filters with one text but for the values of its parameters, which are in columns of one type each."""

    def __init__(self, text: str, columns: Columns) -> None:
        self.text = text
        self.rows = self.nbytes = 0
        self._columns: list[list[pa.Array]] = [[] for _ in columns]
        self.append(columns)

    @cached_property
    def prepared(self) -> Prepared:
        return prepare(self.text)

    def append(self, columns: Columns) -> None:
        self.rows += len(columns[0])
        self.nbytes += sum(column.nbytes for column in columns)
        for parts, column in zip(self._columns, columns, strict=True):
            parts.append(column)

    def columns(self) -> Columns:
        for parts in self._columns:
            if len(parts) > 1:
                parts[:] = [pa.concat_arrays(parts)]
        return tuple(parts[0] for parts in self._columns)


class _Run(NamedTuple):
    """The filters from number `first` on are those of a form from `row` on."""

    first: int
    rows: int
    form: int
    row: int


class TextTable:
    """A filter that was removed may stay here until `renumbered`."""

    def __init__(self) -> None:
        self._singles: dict[int, str] = {}
        self._forms: list[_Form] = []
        self._places: dict[tuple[Any, ...], int] = {}  # of the forms that may grow, by text and types
        self._runs: list[_Run] = []  # ascending
        self._saved_numbers: Integers = np.empty(0, np.int64)
        self._saved = PackedTexts.of([])

    def add(self, number: int, text: str) -> None:
        self._singles[number] = text

    def add_rows(self, first: int, text: str, columns: Columns) -> None:
        """Filters of one form, numbered from `first` on. Numbers grow, from call to call too."""
        count = len(columns[0])
        form, row = self._add_values(text, columns)
        if self._runs:
            last = self._runs[-1]
            if (last.first + last.rows, last.form, last.row + last.rows) == (first, form, row):
                self._runs[-1] = last._replace(rows=last.rows + count)
                return
        self._runs.append(_Run(first, count, form, row))

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
        run = self._runs[bisect_right(self._runs, number, key=lambda each: each.first) - 1]
        form = self._forms[run.form]
        return form.prepared.written(values_at(form.columns(), run.row + number - run.first))

    def renumbered(self, kept: Integers) -> "TextTable":
        """The filters with these numbers, which ascend, numbered anew from 0 on."""
        result = TextTable()
        saved = zip(self._saved_numbers.tolist(), self._saved, strict=True)
        new_number = {number: place for place, number in enumerate(kept.tolist())}
        for number, text in (*saved, *self._singles.items()):
            if number in new_number:
                result.add(new_number[number], text)
        if not self._runs:
            return result
        first, count, form, row = np.array(self._runs, np.int64).T
        run = np.searchsorted(first, kept, side="right") - 1
        is_row = (run >= 0) & (kept < first[run] + count[run])
        rows = row[run] + kept - first[run]
        for place, each in enumerate(self._forms):
            numbers = np.flatnonzero(is_row & (form[run] == place))
            if len(numbers):
                taken = pa.array(rows[numbers])
                result._add_scattered(numbers, each.text, [column.take(taken) for column in each.columns()])
        result._runs.sort()
        return result

    def packed(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `unpacked` takes. Only for texts that come from `renumbered`."""
        singles = sorted(self._singles.items())
        texts = PackedTexts.of([text for _, text in singles])
        arrays: dict[str, NDArray[Any]] = {
            "single_number": np.array([number for number, _ in singles], np.int64),
            "single_start": texts.starts,
            "single_bytes": texts.data,
            "runs": np.array(self._runs, np.int64).reshape(-1),
        }
        for place, form in enumerate(self._forms):
            arrays[f"form.{place}"] = np.frombuffer(write_columns(form.columns()), np.uint8)
        return {"forms": [form.text for form in self._forms]}, arrays

    @classmethod
    def unpacked(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "TextTable":
        result = cls()
        result._saved_numbers = arrays["single_number"]
        result._saved = PackedTexts(arrays["single_start"], arrays["single_bytes"])
        for place, text in enumerate(meta["forms"]):
            result._add_values(text, read_columns(arrays[f"form.{place}"]))
        result._runs = [_Run(*each) for each in arrays["runs"].reshape(-1, len(_Run._fields)).tolist()]
        return result

    def _add_values(self, text: str, columns: Columns) -> tuple[int, int]:
        """Add rows to the form that they have; returns it and the first row."""
        key = (text, *(column.type for column in columns))
        place = self._places.get(key)
        if place is not None:
            form = self._forms[place]
            if form.nbytes + sum(column.nbytes for column in columns) <= _MOST_BYTES:
                row = form.rows
                form.append(columns)
                return place, row
        place = self._places[key] = len(self._forms)
        self._forms.append(_Form(text, columns))
        return place, 0

    def _add_scattered(self, numbers: Integers, text: str, columns: Sequence[pa.Array]) -> None:
        """Add rows with any numbers, which ascend, and leave the runs out of order."""
        form, row = self._add_values(text, tuple(columns))
        begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        counts = np.diff(begins, append=len(numbers))
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
            self._runs.append(_Run(int(numbers[begin]), count, form, row + begin))
