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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, compiled
from culver.matching.index.compile.clause_table import Dimension
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.intrinsics.raw_memory import bit_at, bytes_at, long_at, short_at
from culver.model import Kind
from culver.model.columns import PAYLOAD_INDEX, Attributes

_MIRROR = 0x7FFF_FFFF_FFFF_FFFF
_HIDDEN = 2
# Marks rows whose key is still to be found.
_DECIDING = 4
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


class Programs:
    """The programs of some dimensions, one for each kind of batch; there are few kinds."""

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.count = len(dimensions)
        self._dimensions = dimensions
        self._known: dict[tuple[str, ...], Integers] = {}

    def program(self, names: tuple[str, ...], known: Attributes) -> Integers:
        found = self._known.get(names)
        if found is None:
            if len(self._known) >= _MOST_PROGRAMS:
                self._known.clear()
            found = self._known[names] = self._made(known)
        return found

    def _made(self, known: Attributes) -> Integers:
        starts, steps = [], list[int]()
        for name, line in self._dimensions:
            starts.append(len(self._dimensions) + 1 + len(steps))
            ways = _WAYS[line]
            first, second = known.get(name, ((), ()))
            if any(kind in ways for kind, _ in second):
                chosen = [*first, *(each for each in second if each[0] in ways)]
            else:
                chosen = [each for each in first if each[0] in ways]  # nothing to hide
            steps += [number for kind, column in chosen for number in (column, ways.get(kind, _NONE))]
        return np.array([*starts, len(self._dimensions) + 1 + len(steps), *steps], np.int64)


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
                given[row] |= _DECIDING * (here & (given[row] == 0))
            if way == _STRING:
                data = bytes_at(long_at(buffers + 16), _MIRROR)
                string_keys(values + 4 * offset, data, literal_start, literal_data, heads, own, given)
                continue
            for row in range(rows):
                if given[row] != _DECIDING:
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


@dataclass(frozen=True, slots=True)
class Literals:
    """The sorted literals of a segment; literal i is data[start[i] : start[i + 1]].

    The first eight bytes of a string, as one number, decide nearly every comparison. Strings are compared byte by
    byte only where their heads are equal.

        literal     ABLE      BAKER     CHARLIE1  CHARLIE2
        head        4142..    4241..    43484152  43484152       (big-endian, zeros behind a short string)
    """

    start: Integers
    data: Bytes
    heads: NDArray[np.uint64]


def literals_of(start: Integers, data: Bytes) -> Literals:
    heads = np.zeros(len(start) - 1, np.uint64)
    _fill_heads(start, data, heads)
    return Literals(start, data, heads)


@compiled
def head_of(data: Bytes, begin: int, length: int) -> np.uint64:
    head = np.uint64(0)
    for i in range(min(length, 8)):
        head |= np.uint64(data[begin + i]) << np.uint64(56 - 8 * i)
    return head


@compiled
def _fill_heads(start: Integers, data: Bytes, heads: NDArray[np.uint64]) -> None:
    for i in range(len(heads)):
        heads[i] = head_of(data, start[i], start[i + 1] - start[i])


@compiled
def _heads_below(heads: NDArray[np.uint64], head: np.uint64, closed: bool) -> int:
    """Count the heads below a head, or with `closed` at or below it."""
    low = 0
    size = len(heads)
    while size > 0:
        half = (size + 1) >> 1
        other = heads[np.uintp(low + half - 1)]
        # Multiplied, so that the compiler makes no branch of it.
        low += half * int((other < head) | (closed & (other == head)))
        size -= half
    return low


@compiled
def string_keys(
    starts: int,
    data: Bytes,
    literal_start: Integers,
    literal_data: Bytes,
    heads: NDArray[np.uint64],
    keys: Integers,
    given: Bytes,
) -> None:
    """Find the key of each string that is _DECIDING in `given`, and mark it 1: 2i + 1 at literal i, 2i just below it.
    At the address `starts` are the places where the strings begin in the data, four bytes each."""
    for row in range(len(given)):
        if given[row] != _DECIDING:
            continue
        given[row] = 1
        begin = short_at(starts + 4 * row)
        length = short_at(starts + 4 * row + 4) - begin
        head = head_of(data, begin, length)
        low = _heads_below(heads, head, False)
        high = low
        if low < len(heads) and heads[low] == head:
            high = low + 1
            if high < len(heads) and heads[high] == head:
                high = _heads_below(heads, head, True)
        key = -1
        while low < high:
            middle = (low + high) >> 1
            other = literal_start[middle]
            other_length = literal_start[middle + 1] - other
            if length == other_length and length <= 8:
                key = 2 * middle + 1  # the heads are the whole strings
                break
            common = min(length, other_length)
            i = 0
            while i < common and data[begin + i] == literal_data[other + i]:
                i += 1
            if i == common:
                if length == other_length:
                    key = 2 * middle + 1
                    break
                below = other_length < length
            else:
                below = literal_data[other + i] < data[begin + i]
            if below:
                low = middle + 1
            else:
                high = middle
        keys[row] = key if key >= 0 else 2 * low
