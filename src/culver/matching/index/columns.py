"""A batch as kernels want it: per dimension a 64-bit key (see `bounds`) and whether there is one.

Each column is turned once per batch, however many segments ask for it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.matching.index.bounds import Line
from culver.matching.index.kernels import keys_of_reals
from culver.matching.index.literals import Literals, string_keys
from culver.matching.index.table import Dimension
from culver.model.batch import attribute, attributes
from culver.model.values import Kind

_KIND_OF_LINE = {
    Line.INTEGERS: Kind.INTEGER,
    Line.REALS: Kind.REAL,
    Line.TIMESTAMPS: Kind.TIMESTAMP,
    Line.BOOLEANS: Kind.BOOLEAN,
    Line.LISTS: Kind.STRINGS,
}

_SIZES: dict[Any, int] = {np.float64: 8, np.int64: 8, np.int32: 4, np.uint8: 1}
_ALL = np.ones(1024, np.uint8)  # never written to; not read-only, which to Numba is another signature

Keys = tuple[NDArray[np.int64], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class Strings:
    """A string column: row i is data[starts[i] : starts[i + 1]] where valid[i]."""

    starts: NDArray[np.int32]
    data: NDArray[np.uint8]
    valid: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a column of lists, one after another: member i belongs to row rows[i]."""

    rows: NDArray[np.int32]
    strings: Strings


class BatchColumns:
    """The columns of one batch, turned when first asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.rows: int = batch.num_rows
        self._known = attributes(batch)
        self._attributes: dict[str, dict[Kind, pa.Array]] = {}
        self._keys: dict[Dimension, Keys | None] = {}
        self._strings: dict[str, Strings | None] = {}
        self._members: dict[str, Members | None] = {}

    def attribute(self, name: str) -> dict[Kind, pa.Array]:
        found = self._attributes.get(name)
        if found is None:
            found = self._attributes[name] = attribute(self.batch, name, self._known)
        return found

    def fill(self, dimensions: tuple[Dimension, ...], literals: Literals) -> Keys:
        """Keys, and 1 where there is one, dimensions x rows, flat; strings are placed among the literals."""
        keys = np.zeros((len(dimensions), self.rows), np.int64)
        there = np.zeros((len(dimensions), self.rows), np.uint8)
        for place, dimension in enumerate(dimensions):
            if dimension[0] not in self._known:
                continue
            if dimension[1] is Line.STRINGS:
                strings = self.strings(dimension[0])
                if strings is not None:
                    string_keys(
                        strings.starts, strings.data, strings.valid, literals.start, literals.data,
                        literals.heads, keys[place], there[place],
                    )  # fmt: skip
            else:
                found = self.keys(dimension)
                if found is not None:
                    keys[place], there[place] = found
        return keys.reshape(-1), there.reshape(-1)

    def keys(self, dimension: Dimension) -> Keys | None:
        """The keys of a dimension that is not of strings, and where there are any; None: nowhere."""
        if dimension not in self._keys:
            self._keys[dimension] = self._turn(dimension)
        return self._keys[dimension]

    def _turn(self, dimension: Dimension) -> Keys | None:
        name, line = dimension
        columns = self.attribute(name)
        if line is not Line.NUMBERS:
            column = columns.get(_KIND_OF_LINE[line])
            if column is None:
                return None
            if line is Line.REALS:
                return _keys(_primitive(column, np.float64)), _valid(column)
            if line is Line.LISTS:
                return np.zeros(len(column), np.int64), _valid(column)
            if line is Line.BOOLEANS:
                column = column.cast(pa.int64())
            return _primitive(column, np.int64), _valid(column)
        integers, reals = columns.get(Kind.INTEGER), columns.get(Kind.REAL)
        if integers is None and reals is None:
            return None
        if integers is None:
            return _keys(_primitive(reals, np.float64)), _valid(reals)
        rounded = _primitive(integers, np.int64).astype(np.float64)
        if reals is None:
            return _keys(rounded), _valid(integers)
        whole = _valid(integers)
        numbers = np.where(whole, rounded, _primitive(reals, np.float64))
        return _keys(numbers), whole | _valid(reals)

    def strings(self, name: str) -> Strings | None:
        if name not in self._strings:
            column = self.attribute(name).get(Kind.STRING)
            self._strings[name] = None if column is None else _strings(column)
        return self._strings[name]

    def members(self, name: str) -> Members | None:
        """The members of an attribute's lists; None: no row has a list."""
        if name not in self._members:
            column = self.attribute(name).get(Kind.STRINGS)
            self._members[name] = None if column is None else _members(column)
        return self._members[name]

    def present(self, name: str) -> NDArray[np.uint8]:
        """1 for each row that has the attribute, whatever its kind."""
        result = np.zeros(self.rows, np.uint8)
        for column in self.attribute(name).values():
            result |= _valid(column)
        return result


def _keys(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """`bounds.real_keys`, quicker where there are few values."""
    values.flags.writeable = False
    return keys_of_reals(values)


def _valid(column: pa.Array) -> NDArray[np.uint8]:
    if column.null_count == 0:
        return _ALL[: len(column)] if len(column) <= len(_ALL) else np.ones(len(column), np.uint8)
    flags: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return flags.astype(np.uint8)


def _primitive(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values as they lie in memory; rows without a value hold anything."""
    return _items(column.buffers()[1], dtype, column.offset, len(column))


def _strings(column: pa.Array) -> Strings:
    _, starts, data = column.buffers()
    return Strings(
        _items(starts, np.int32, column.offset, len(column) + 1),
        _items(b"" if data is None else data, np.uint8, 0, 0 if data is None else len(data)),
        _valid(column),
    )


def _items(buffer: Any, dtype: Any, first: int, count: int) -> NDArray[Any]:
    """Part of a buffer as a read-only, aligned array: to Numba, anything else is another signature."""
    items: NDArray[Any] = np.ndarray((count,), dtype, buffer, first * _SIZES[dtype])
    flags = items.flags
    if not flags.aligned:
        items = items.copy()
        flags = items.flags
    flags.writeable = False
    return items


def _members(column: pa.Array) -> Members:
    starts = _items(column.buffers()[1], np.int32, column.offset, len(column) + 1)
    first, last = int(starts[0]), int(starts[-1])
    rows = np.repeat(np.arange(len(column), dtype=np.int32), np.diff(starts))
    strings = _strings(column.values.slice(first, last - first))
    # A row that has no list may have members all the same, as Arrow goes.
    return Members(rows, replace(strings, valid=_valid(column)[rows]))
