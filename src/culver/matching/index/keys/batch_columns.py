"""A batch as kernels want it: per dimension a 64-bit key (see `key_lines`) and whether there is one.

Kernels read the columns themselves, from their address (see `key_kernels`). Columns that Python asks for by name are
turned once per batch, however many segments ask for them.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, read_only
from culver.matching.index.compile.clause_table import Dimension
from culver.matching.index.keys.key_kernels import Literals, Programs, fill_keys, literals_of, payload_sizes
from culver.model import Kind
from culver.model.columns import attribute, attributes

_SIZES: dict[Any, int] = {np.int32: 4, np.uint8: 1}
# Never written to, but writeable, because Numba compiles a kernel anew for read-only arrays.
_ALL = np.ones(1024, np.uint8)

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)

Keys = tuple[Integers, Bytes]

_NO_LITERALS = literals_of(read_only(np.zeros(1, np.int64)), read_only(np.zeros(0, np.uint8)))


@dataclass(frozen=True, slots=True)
class Strings:
    """A string column: row i is data[starts[i] : starts[i + 1]] where valid[i]."""

    starts: Shorts
    data: Bytes
    valid: Bytes


class BatchColumns:
    """The columns of one batch, each turned when it is first asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.rows: int = batch.num_rows
        self._names = tuple(batch.schema.names)
        self._known = attributes(self._names)
        self._exported: Any = None
        self._address = 0
        self._attributes: dict[str, dict[Kind, pa.Array]] = {}
        self._keys: dict[Dimension, Keys | None] = {}
        self._strings: dict[str, Strings | None] = {}

    def attribute(self, name: str) -> dict[Kind, pa.Array]:
        found = self._attributes.get(name)
        if found is None:
            found = self._attributes[name] = attribute(self.batch, name, self._known)
        return found

    @property
    def address(self) -> int:
        """The address of the batch in Arrow's C data interface, valid for as long as this object lives."""
        if self._exported is None:
            self._exported = self.batch.__arrow_c_array__()[1]
            self._address = _pointer_of(self._exported, b"arrow_array")
        return self._address

    def program(self, programs: Programs) -> Integers:
        return programs.program(self._names, self._known)

    def fill(self, programs: Programs, literals: Literals) -> Keys:
        """Keys, and 1 where there is one: dimensions x rows, flat. Strings get their keys from the literals."""
        keys: Keys = fill_keys(
            self.address, self.program(programs), 0, programs.count, self.rows, literals.start, literals.data,
            literals.heads,
        )  # fmt: skip
        return keys

    def keys(self, dimension: Dimension) -> Keys | None:
        """The keys of a dimension other than strings, and 1 where there is one; None: nowhere."""
        if dimension not in self._keys:
            there = dimension[0] in self._known
            self._keys[dimension] = self.fill(Programs((dimension,)), _NO_LITERALS) if there else None
        return self._keys[dimension]

    def payload_sizes(self) -> NDArray[np.uint32]:
        return payload_sizes(self.address, self.rows)

    def strings(self, name: str) -> Strings | None:
        if name not in self._strings:
            column = self.attribute(name).get(Kind.STRING)
            self._strings[name] = None if column is None else string_column(column)
        return self._strings[name]

    def present(self, name: str) -> Bytes:
        """1 for each row that has the attribute, whatever its kind."""
        result = np.zeros(self.rows, np.uint8)
        for column in self.attribute(name).values():
            result |= _valid(column)
        return result


def _valid(column: pa.Array) -> Bytes:
    if column.null_count == 0:
        return _ALL[: len(column)] if len(column) <= len(_ALL) else np.ones(len(column), np.uint8)
    flags: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return flags.astype(np.uint8)


def string_column(column: pa.Array) -> Strings:
    _, starts, data = column.buffers()
    return Strings(
        _items(starts, np.int32, column.offset, len(column) + 1),
        _items(b"" if data is None else data, np.uint8, 0, 0 if data is None else len(data)),
        _valid(column),
    )


def _items(buffer: Any, dtype: Any, first: int, count: int) -> NDArray[Any]:
    """Part of a buffer as a read-only, aligned array, which Numba needs for one signature."""
    items: NDArray[Any] = np.ndarray((count,), dtype, buffer, first * _SIZES[dtype])
    flags = items.flags
    if not flags.aligned:
        items = items.copy()
        flags = items.flags
    flags.writeable = False
    return items
