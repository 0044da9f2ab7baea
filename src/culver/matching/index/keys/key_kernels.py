"""Hot: the keys of a batch's rows, straight from the memory of its Arrow columns.

Arrow's C data interface says where everything is, in structures of 64-bit numbers. The kernel reads these itself,
because asking Python for a column takes longer than turning the column.

    batch      ... children (at 48) -> column, column, ...
    column     length, nulls, offset (at 16), ..., buffers (at 40) -> validity bits or 0, values, data of strings

A program says which columns the keys of each dimension come from. In each row, the first column that has a value
decides; a column may be there only to hide those after it (see `model.columns.attribute`):

    program    4 6 12 | column, way | column, way  column, way  column, way
               \\____/   dimension 0   dimension 1
               where the steps of each dimension begin, and where the last ones end
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, compiled
from culver.matching.index.compile.clause_table import Dimension
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.intrinsics.raw_memory import bit_at, bytes_at, long_at, short_at
from culver.matching.index.keys.literals import DECIDING, string_keys
from culver.model import Kind
from culver.model.columns import PAYLOAD_INDEX, Attributes

_MIRROR = 0x7FFF_FFFF_FFFF_FFFF
_HIDDEN = 2
_MOST_PROGRAMS = 256

# The ways from a value to a key, see `key_lines`.
_ITSELF, _REAL, _ROUNDED, _STRING, _BOOLEAN, _LIST, _NONE = range(7)
_WAYS = {
    KeyLine.NUMBERS: {Kind.INTEGER: _ROUNDED, Kind.REAL: _REAL},
    KeyLine.INTEGERS: {Kind.INTEGER: _ITSELF},
    KeyLine.REALS: {Kind.REAL: _REAL},
    KeyLine.STRINGS: {Kind.STRING: _STRING},
    KeyLine.TIMESTAMPS: {Kind.TIMESTAMP: _ITSELF},
    KeyLine.BOOLEANS: {Kind.BOOLEAN: _BOOLEAN},
    KeyLine.LISTS: {Kind.STRINGS: _LIST},
}


def program_for(dimensions: Sequence[Dimension], known: Attributes) -> Integers:
    """The program for batches with these attributes."""
    starts, steps = [], list[int]()
    for name, line in dimensions:
        starts.append(len(dimensions) + 1 + len(steps))
        ways = _WAYS[line]
        first, second = known.get(name, ((), ()))
        if any(kind in ways for kind, _ in second):
            chosen = [*first, *(each for each in second if each[0] in ways)]
        else:
            chosen = [each for each in first if each[0] in ways]  # nothing to hide
        steps += [number for kind, column in chosen for number in (column, ways.get(kind, _NONE))]
    return np.array([*starts, len(dimensions) + 1 + len(steps), *steps], np.int64)


class Programs:
    """The programs of some dimensions, one for each kind of batch. There are few kinds, with thousands of batches
    each."""

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.count = len(dimensions)
        self._dimensions = dimensions
        self._known: dict[tuple[str, ...], Integers] = {}

    def program(self, names: tuple[str, ...], known: Attributes) -> Integers:
        """The program for batches whose columns have these names and mean these attributes."""
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= _MOST_PROGRAMS:
                self._known.clear()
            found = self._known[names] = program_for(self._dimensions, known)
        return found


@compiled
def fill_keys(
    batch: int,
    program: Integers,
    first: int,
    dimensions: int,
    rows: int,
    literal_start: Integers,
    literal_data: Bytes,
    heads: NDArray[np.uint64],
) -> tuple[Integers, Bytes]:
    """The keys of so many dimensions of a program, and 1 where there is a key: dimensions x rows, flat. `batch` is an
    address; strings get their keys from the literals."""
    keys, there = np.zeros(dimensions * rows, np.int64), np.zeros(dimensions * rows, np.uint8)
    children = long_at(batch + 48)
    for dimension in range(dimensions):
        cells = slice(dimension * rows, (dimension + 1) * rows)
        own, given = keys[cells], there[cells]
        begin, end = program[first + dimension], program[first + dimension + 1]
        for step in range(begin, end, 2):
            column, way = long_at(children + 8 * program[step]), program[step + 1]
            offset, buffers = long_at(column + 16), long_at(column + 40)
            validity, values = long_at(buffers), long_at(buffers + 8)
            if step == begin and way in (_REAL, _ROUNDED, _ITSELF):
                # Without branches, so that LLVM vectorises it; rows without a value hold anything.
                if validity == 0:
                    given[:] = 1
                else:
                    for row in range(rows):
                        given[row] = bit_at(validity, offset + row)
                values += 8 * offset
                if way == _REAL:
                    for row in range(rows):
                        own[row] = _real_key(long_at(values + 8 * row))
                elif way == _ROUNDED:
                    for row in range(rows):
                        own[row] = _rounded_key(long_at(values + 8 * row))
                else:
                    for row in range(rows):
                        own[row] = long_at(values + 8 * row)
                continue
            for row in range(rows):
                here = validity == 0 or bit_at(validity, offset + row)
                given[row] |= DECIDING * (here & (given[row] == 0))
            if way == _STRING:
                data = bytes_at(long_at(buffers + 16), _MIRROR)
                string_keys(values + 4 * offset, data, literal_start, literal_data, heads, own, given)
                continue
            for row in range(rows):
                if given[row] != DECIDING:
                    continue
                given[row] = 1
                at = offset + row
                if way == _REAL:
                    own[row] = _real_key(long_at(values + 8 * at))
                elif way == _ROUNDED:
                    own[row] = _rounded_key(long_at(values + 8 * at))
                elif way == _ITSELF:
                    own[row] = long_at(values + 8 * at)
                elif way == _BOOLEAN:
                    own[row] = bit_at(values, at)
                elif way == _NONE:
                    given[row] = _HIDDEN
        if end - begin > 2:
            for row in range(rows):
                given[row] &= 1
    return keys, there


@compiled
def _real_key(bits: int) -> int:
    """Computes `key_lines.real_key` from the bits of a real. The bits of -0.0 become those of 0.0."""
    key = bits ^ ((bits >> 63) & _MIRROR)
    return key + (key == -1)


@compiled
def _rounded_key(integer: int) -> int:
    return _real_key(int(np.float64(integer).view(np.int64)))


@compiled
def payload_sizes(batch: int, rows: int) -> NDArray[np.uint32]:
    """The bytes of each row's payload; `batch` is an address."""
    column = long_at(long_at(batch + 48) + 8 * PAYLOAD_INDEX)
    starts = long_at(long_at(column + 40) + 8) + 4 * long_at(column + 16)
    sizes = np.empty(rows, np.uint32)
    for row in range(rows):
        sizes[row] = short_at(starts + 4 * row + 4) - short_at(starts + 4 * row)
    return sizes
