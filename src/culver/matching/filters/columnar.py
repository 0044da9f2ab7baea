"""The columnar filter: compiled index segments in memory, tombstones for what was removed.

Subscriptions that come are compiled at the next match, all together, into a small segment of their own.
`index.tiers` says which segments are then merged. It is the machinery of `index.snapshot` without the files.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.index import tiers
from culver.matching.index.bulk import compile_rows
from culver.matching.index.compiler import Entry, compile_entries
from culver.matching.index.matcher import FOREVER, Part, match_parts, merge_parts
from culver.matching.index.segment import encode, from_chunks
from culver.model.predicate import Predicate
from culver.model.prepared import Prepared


class ColumnarFilter:
    def __init__(self) -> None:
        self._fresh: dict[int, Predicate] = {}  # not compiled yet
        self._gone: set[int] = set()  # compiled, but to be marked as removed
        self._compiled: set[int] = set()  # the numbers in `parts` that are neither removed nor replaced
        self._parts: list[Part] = []

    def add(self, subscriptions: Iterable[tuple[int, Predicate]]) -> None:
        for number, predicate in subscriptions:
            self._drop(number)
            self._fresh[number] = predicate

    def add_rows(
        self, prepared: Prepared, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any] | Sequence[Any]]
    ) -> None:
        """Add many subscriptions of one form, compiled at once (see `index.bulk`), as a segment of their own.
        Raises as `Prepared.bind` does, and then adds none."""
        table = compile_rows(prepared, numbers, columns)
        self.remove(table.numbers.tolist())
        self._settle()
        if len(table.numbers):
            self._parts.append(Part(from_chunks(encode(table))))
            self._compiled.update(table.numbers.tolist())

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._drop(number)
            self._fresh.pop(number, None)

    def match(self, batch: pa.RecordBatch) -> Matches:
        self._settle()
        return match_parts(self._parts, batch, 0)

    def __len__(self) -> int:
        return len(self._compiled) + len(self._fresh)

    @property
    def nbytes(self) -> int:
        """The memory that what is compiled takes, tombstones included."""
        return sum(
            sum(array.nbytes for array in part.segment.arrays)
            + sum(len(text) for text in part.segment.pool)
            + (0 if part.until is None else part.until.nbytes)
            for part in self._parts
        )

    def _drop(self, number: int) -> None:
        if number in self._compiled:
            self._compiled.remove(number)
            self._gone.add(number)

    def _settle(self) -> None:
        """Bring the segments up to date with what was added and removed."""
        if not self._fresh and not self._gone:
            return
        if self._gone:
            gone = np.array(sorted(self._gone), np.int64)
            self._parts = [_without(part, gone) for part in self._parts]
            self._gone.clear()
        if self._fresh:
            table = compile_entries(Entry(number, predicate) for number, predicate in self._fresh.items())
            self._parts.append(Part(from_chunks(encode(table))))
            self._compiled.update(self._fresh)
            self._fresh.clear()
        while chosen := tiers.choose(
            [len(part.segment) for part in self._parts],
            [len(part.segment) - part.in_effect() for part in self._parts],
        ):
            table, _ = merge_parts([self._parts[place] for place in chosen], 0)
            self._parts = [part for place, part in enumerate(self._parts) if place not in chosen]
            if len(table.numbers):
                self._parts.append(Part(from_chunks(encode(table))))


def _without(part: Part, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Part:
    places, there = part.segment.places(numbers)
    if not there.any():
        return part
    until = np.full(len(part.segment), FOREVER) if part.until is None else part.until.copy()
    until[places[there]] = 0  # a window that ends where the log begins
    return Part(part.segment, until)
