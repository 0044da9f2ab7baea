"""Hot: from a batch of events to their vectors, straight from the memory of the batch's Arrow columns.

`key_kernels` says how kernels read columns, and `forms` which categories a value has; the kernel here gives what
`categories_of_event` gives. A program says which columns the attributes come from. In each row, the first column of
an attribute that has a value decides; a column whose type has no form is there to hide those after it.

    program    steps of attribute 0 begin at, of attribute 1, ..., the last end at |
               column, kind of value, its first form, the end of its forms | ...
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Masks, Reals, compiled, read_only
from culver.matching.encoded import forms as categories
from culver.matching.encoded.forms import CategoryForm, seed_of, threshold
from culver.matching.index.intrinsics.raw_memory import bit_at, bytes_at, long_at, short_at
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.key_kernels import head_of
from culver.model import Kind
from culver.model.columns import Attributes, attributes

_MOST_PROGRAMS = 256
_ENDLESS = 0x7FFF_FFFF_FFFF_FFFF

_FIRST, _SECOND, _STEP = np.uint64(categories.FIRST), np.uint64(categories.SECOND), np.uint64(categories.STEP)
_REAL_MARK = np.uint64(categories.REAL_MARK)

_KINDS = (
    categories.EXISTS, categories.EQUAL, categories.HOLDS, categories.CELL, categories.LEAST, categories.MOST,
    categories.PREFIX, categories.SUFFIX,
)  # fmt: skip
_EXISTS, _EQUAL, _HOLDS, _CELL, _LEAST, _MOST, _PREFIX, _SUFFIX = range(len(_KINDS))
_VALUES = (Kind.INTEGER, Kind.REAL, Kind.STRING, Kind.BOOLEAN, Kind.STRINGS, Kind.TIMESTAMP)
_INTEGER, _REAL, _STRING, _BOOLEAN, _STRINGS, _TIMESTAMP = range(len(_VALUES))
_DOMAIN_OF_VALUE = (
    categories.NUMBER, categories.NUMBER, categories.STRING, categories.BOOLEAN, categories.LIST,
    categories.TIMESTAMP,
)  # fmt: skip


class FormTable(NamedTuple):
    """Some forms, those of each attribute and type of value one after another; read-only."""

    kinds: Integers
    levels: Integers
    bounds: Reals  # thresholds, and for cells what to multiply a real by
    seeds: Masks


class EventEncoder:
    """Makes the vectors of events from the categories of some forms."""

    def __init__(self, forms: Iterable[CategoryForm]) -> None:
        by_attribute: dict[str, list[CategoryForm]] = {}
        for form in sorted(set(forms)):
            by_attribute.setdefault(form.attribute, []).append(form)
        laid_out: list[CategoryForm] = []
        # For each attribute, the forms of each type of value, as a range.
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        for attribute, own in by_attribute.items():
            ranges = self._ranges[attribute] = []
            for domain in _DOMAIN_OF_VALUE:
                begin = len(laid_out)
                laid_out += [form for form in own if form.domain in (domain, categories.ANY)]
                ranges.append((begin, len(laid_out)))
        self._table = _table_of(laid_out)
        self._programs: dict[tuple[str, ...], Integers] = {}

    def encode(self, columns: BatchColumns, bits: int, hashes: int) -> Masks:
        """The vectors of all rows, `bits` / 64 words each."""
        program = self._program(tuple(columns.batch.schema.names))
        return fill_vectors(columns.address, program, columns.rows, self._table, bits, hashes)

    def _program(self, names: tuple[str, ...]) -> Integers:
        found = self._programs.get(names)
        if found is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            found = self._programs[names] = self._made(attributes(names))
        return found

    def _made(self, known: Attributes) -> Integers:
        starts, steps = list[int](), list[int]()
        for attribute, ranges in self._ranges.items():
            first, second = known.get(attribute, ((), ()))
            if first or second:
                starts.append(len(steps))
                for kind, column in (*first, *second):
                    value = _VALUES.index(kind)
                    steps += (column, value, *ranges[value])
        head = len(starts) + 2
        return np.array([len(starts), *(head + start for start in (*starts, len(steps))), *steps], np.int64)


def _table_of(forms: Sequence[CategoryForm]) -> FormTable:
    bounds = [
        threshold(form.level) if form.kind in (categories.LEAST, categories.MOST) else 2.0**-form.level
        for form in forms
    ]
    return FormTable(
        read_only(np.array([_KINDS.index(form.kind) for form in forms], np.int64)),
        read_only(np.array([form.level for form in forms], np.int64)),
        read_only(np.array(bounds, np.float64)),
        read_only(np.array([seed_of(form) for form in forms], np.uint64)),
    )


@compiled
def _mix(bits: np.uint64) -> np.uint64:
    bits += _STEP
    bits ^= bits >> np.uint64(30)
    bits *= _FIRST
    bits ^= bits >> np.uint64(27)
    bits *= _SECOND
    return bits ^ (bits >> np.uint64(31))


@compiled
def _hash_span(data: Bytes, begin: int, length: int) -> np.uint64:
    bits = np.uint64(length) * _STEP
    for place in range(begin, begin + length, 8):
        bits ^= head_of(data, place, min(8, begin + length - place))
        bits *= _FIRST
        bits ^= bits >> np.uint64(29)
    bits *= _SECOND
    bits ^= bits >> np.uint64(31)
    bits *= _STEP
    return bits ^ (bits >> np.uint64(32))


@compiled
def _mark(words: Masks, base: int, hashed: np.uint64, mask: np.uint64, hashes: int) -> None:
    place = hashed & np.uint64(0xFFFF_FFFF)
    step = (hashed >> np.uint64(32)) | np.uint64(1)
    for _ in range(hashes):
        at = place & mask
        words[base + np.int64(at >> np.uint64(6))] |= np.uint64(1) << (at & np.uint64(63))
        place += step


@compiled
def _hash_real(real: float) -> np.uint64:
    if np.floor(real) == real and -(2.0**63) <= real < 2.0**63:
        return _mix(np.uint64(np.int64(real)))
    return _mix(np.float64(real).view(np.uint64) ^ _REAL_MARK)


@compiled
def _integer_cell(value: int, level: int) -> int:
    """The number of the cell, or 2^62 where there is none."""
    if level >= 0:
        cell = value >> level
    else:
        cell = value << -level
        if cell >> -level != value:
            return 1 << 62
    return cell if -(1 << 62) < cell < (1 << 62) else 1 << 62


@compiled
def _real_cell(value: float, factor: float) -> int:
    scaled = value * factor
    if not abs(scaled) < 2.0**62:
        return 1 << 62
    if scaled == 0.0 and value < 0.0:
        return -1
    return int(np.floor(scaled))


@compiled
def fill_vectors(
    batch: int, program: Integers, rows: int, table: FormTable, bits: int, hashes: int
) -> NDArray[np.uint64]:
    """The vectors of the rows, one after another; `batch` is an address."""
    kinds, levels, bounds, seeds = table.kinds, table.levels, table.bounds, table.seeds
    width = bits >> 6
    mask = np.uint64(bits - 1)
    words = np.zeros(rows * width, np.uint64)
    decided = np.zeros(rows, np.uint8)
    children = long_at(batch + 48)
    no_cell = 1 << 62
    for group in range(program[0]):
        begin, end = program[1 + group], program[2 + group]
        if end - begin > 4:
            decided[:] = 0
        for step in range(begin, end, 4):
            column, value = long_at(children + 8 * program[step]), program[step + 1]
            first, last = program[step + 2], program[step + 3]
            offset, buffers = long_at(column + 16), long_at(column + 40)
            validity, values = long_at(buffers), long_at(buffers + 8)
            holder = column
            if value == _STRINGS:
                holder = long_at(long_at(column + 48))
            inner_offset, inner_buffers = long_at(holder + 16), long_at(holder + 40)
            starts, data = values, bytes_at(0, 0)
            if value in (_STRING, _STRINGS):
                starts = long_at(inner_buffers + 8) + 4 * inner_offset
                data = bytes_at(long_at(inner_buffers + 16), _ENDLESS)
            for row in range(rows):
                at = offset + row
                if validity != 0 and not bit_at(validity, at):
                    continue
                if end - begin > 4:
                    if decided[row] != 0:
                        continue
                    decided[row] = 1
                base = row * width
                integer, real, length = 0, 0.0, 0
                if value in (_INTEGER, _TIMESTAMP):
                    integer = long_at(values + 8 * at)
                    real = np.float64(integer)
                elif value == _REAL:
                    real = np.int64(long_at(values + 8 * at)).view(np.float64)
                elif value == _BOOLEAN:
                    integer = int(bit_at(values, at))
                elif value == _STRING:
                    integer = short_at(starts + 4 * row)
                    length = short_at(starts + 4 * row + 4) - integer
                for form in range(first, last):
                    kind, seed = kinds[form], seeds[form]
                    hashed = np.uint64(0)
                    if kind == _LEAST:
                        if real < bounds[form]:
                            continue
                    elif kind == _MOST:
                        if real > bounds[form]:
                            continue
                    elif kind == _CELL:
                        cell = (
                            _real_cell(real, bounds[form])
                            if value == _REAL
                            else _integer_cell(integer, levels[form])
                        )
                        if cell == no_cell:
                            continue
                        hashed = _mix(np.uint64(cell))
                    elif kind == _EQUAL:
                        if value == _STRING:
                            hashed = _hash_span(data, integer, length)
                        elif value == _REAL:
                            hashed = _hash_real(real)
                        else:
                            hashed = _mix(np.uint64(integer))
                    elif kind in (_PREFIX, _SUFFIX):
                        level = levels[form]
                        if length < level:
                            continue
                        from_end = length - level if kind == _SUFFIX else 0
                        hashed = _hash_span(data, integer + from_end, level)
                    elif kind == _HOLDS:
                        for member in range(short_at(values + 4 * at), short_at(values + 4 * at + 4)):
                            start = short_at(starts + 4 * member)
                            hashed = _hash_span(data, start, short_at(starts + 4 * member + 4) - start)
                            _mark(words, base, _mix(seed ^ hashed), mask, hashes)
                        continue
                    _mark(words, base, _mix(seed ^ hashed), mask, hashes)
    return words
