"""Which needs the values of a column meet, remembered from batch to batch: symbols, types and sources recur.

    known     value -> needs met                       all that is remembered; a dictionary, for misses
    table     a hash table over most of `known`        immutable, for kernels; made anew as `known` grows

A batch is looked up in the table without touching a value in Python. The values that are not there are
looked up in `known`, or found out, once each; when that has become frequent, a new table is made. Threads
may share a memory: they replace the table as a whole, and at worst find the same thing out twice.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from culver.jit import Bytes, Integers, Shorts, compiled
from culver.matching.index.keys.batch_columns import Strings
from culver.matching.index.needs.row_needs import ColumnNeeds, drop_repeated, starts_of

K = TypeVar("K", bytes, int)

_ABSENT = -1
_UNKNOWN = -2
# A value that finds no slot near its own stays in the dictionary. So values that are made to collide cost
# no more than values that are new.
_PROBES = 16
_ITEM_COST = 16  # of a remembered value, beside its needs and its text, in units of a need
_TABLE_SHARE = 4  # a new table is made after one miss for so many known values
_NOTHING = np.empty(0, np.int32)


class _Texts(NamedTuple):
    slots: Shorts
    hashes: Integers
    text_start: Integers
    text: Bytes
    start: Integers
    needs: Shorts


class _Numbers(NamedTuple):
    slots: Shorts
    keys: Integers
    start: Integers
    needs: Shorts


class Remembered:
    """How much several memories hold together: needs, with an allowance for each value."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class _Memory(Generic[K]):
    """What the two kinds of memory share: the dictionary, and when to make a table of it."""

    def __init__(self, remembered: Remembered) -> None:
        self._known: dict[K, Shorts] = {}
        self._misses = 0
        self._remembered = remembered

    def _learn(self, key: K, needs: list[int], extra: int) -> Shorts:
        met = np.array(needs, np.int32) if needs else _NOTHING
        self._known[key] = met
        self._remembered.size += len(met) + _ITEM_COST + extra
        return met

    def _wants_table(self, misses: int) -> bool:
        self._misses += misses
        if self._misses * _TABLE_SHARE < len(self._known):
            return False
        self._misses = 0
        return True


class TextMemory(_Memory[bytes]):
    """For strings, by their UTF-8 bytes. `meets` finds out which needs a string meets."""

    def __init__(self, meets: Callable[[str], list[int]], remembered: Remembered) -> None:
        super().__init__(remembered)
        self._meets = meets
        self._table = _text_table({})

    def forget(self) -> None:
        self._known, self._table = {}, _text_table({})

    def parts(self, rows: Shorts, column: Strings, repeated: bool = False) -> list[ColumnNeeds]:
        """What the items of a column meet; item i belongs to row rows[i]. With `repeated`, a row may have
        several items, of the same value too."""
        table = self._table
        codes = np.empty(len(column.valid), np.int32)
        missing = find_texts(
            column.starts, column.data, column.valid,
            table.slots, table.hashes, table.text_start, table.text, codes,
        )  # fmt: skip
        parts = [ColumnNeeds(rows, codes, table.start, table.needs)]
        if missing:
            parts.append(self._look_up(rows, codes, column))
        if repeated:
            for part in parts:
                drop_repeated(part.rows, part.codes, np.full(len(part.start) - 1, -1, np.int32))
        return parts

    def _look_up(self, rows: Shorts, codes: Shorts, column: Strings) -> ColumnNeeds:
        items = np.flatnonzero(codes == _UNKNOWN)
        data = column.data
        known = self._known
        places: dict[bytes, int] = {}
        met: list[Shorts] = []
        found: list[int] = []
        spans = zip(column.starts[items].tolist(), column.starts[items + 1].tolist(), strict=True)
        for begin, end in spans:
            key = data[begin:end].tobytes()
            place = places.setdefault(key, len(met))
            found.append(place)
            if place == len(met):
                needs = known.get(key)
                if needs is None:
                    needs = self._learn(key, self._meets(key.decode()), len(key) // 4)
                met.append(needs)
        if self._wants_table(len(met)):
            self._table = _text_table(dict(known))
        return ColumnNeeds(rows[items], np.array(found, np.int32), *starts_of(met))


class NumberMemory(_Memory[int]):
    """For values that are a 64-bit key each. `meets` finds out which needs the value of a key meets."""

    def __init__(self, meets: Callable[[int], list[int]], remembered: Remembered) -> None:
        super().__init__(remembered)
        self._meets = meets
        self._table = _number_table({})

    def forget(self) -> None:
        self._known, self._table = {}, _number_table({})

    def parts(self, rows: Shorts, keys: Integers, valid: Bytes) -> list[ColumnNeeds]:
        """What the values of a column meet; value i is that of row rows[i]."""
        table = self._table
        codes = np.empty(len(keys), np.int32)
        keys = keys.view()
        keys.flags.writeable = False  # some columns come so; one signature for all
        missing = find_numbers(keys, valid, table.slots, table.keys, codes)
        parts = [ColumnNeeds(rows, codes, table.start, table.needs)]
        if missing:
            parts.append(self._look_up(rows, codes, keys))
        return parts

    def _look_up(self, rows: Shorts, codes: Shorts, keys: Integers) -> ColumnNeeds:
        items = np.flatnonzero(codes == _UNKNOWN)
        distinct, found = np.unique(keys[items], return_inverse=True)
        known = self._known
        met: list[Shorts] = []
        for key in distinct.tolist():
            needs = known.get(key)
            met.append(self._learn(key, self._meets(key), 0) if needs is None else needs)
        if self._wants_table(len(met)):
            self._table = _number_table(dict(known))
        return ColumnNeeds(rows[items], found.astype(np.int32), *starts_of(met))


def _text_table(known: dict[bytes, Shorts]) -> _Texts:
    text_start = np.zeros(len(known) + 1, np.int64)
    np.cumsum([len(key) for key in known], out=text_start[1:])
    text = np.frombuffer(b"".join(known), np.uint8)
    hashes = np.empty(len(known), np.int64)
    slots = _empty_slots(len(known))
    place_texts(text_start, text, hashes, slots)
    return _Texts(slots, hashes, text_start, text, *starts_of(list(known.values())))


def _number_table(known: dict[int, Shorts]) -> _Numbers:
    keys = np.array(list(known), np.int64)
    slots = _empty_slots(len(known))
    place_numbers(keys, slots)
    return _Numbers(slots, keys, *starts_of(list(known.values())))


def _empty_slots(count: int) -> Shorts:
    return np.full(1 << (2 * count + 1).bit_length(), -1, np.int32)


@compiled
def _hash_text(data: Bytes, begin: int, end: int) -> int:
    value = end - begin
    for i in range(begin, end):
        value = (value ^ int(data[i])) * 0x100000001B3
    return value ^ (value >> 29)


@compiled
def _hash_number(key: int) -> int:
    value = key * 0x1E3779B97F4A7C15
    return value ^ (value >> 32)


@compiled
def _place(code: int, hashed: int, slots: Shorts) -> None:
    mask = len(slots) - 1
    at = hashed & mask
    for _ in range(_PROBES):
        if slots[at] < 0:
            slots[at] = code
            return
        at = (at + 1) & mask


@compiled
def place_texts(text_start: Integers, text: Bytes, hashes: Integers, slots: Shorts) -> None:
    """Put distinct texts into empty slots."""
    for code in range(len(hashes)):
        hashes[code] = _hash_text(text, text_start[code], text_start[code + 1])
        _place(code, hashes[code], slots)


@compiled
def place_numbers(keys: Integers, slots: Shorts) -> None:
    """Put distinct keys into empty slots."""
    for code in range(len(keys)):
        _place(code, _hash_number(keys[code]), slots)


@compiled
def find_texts(
    starts: Shorts,
    data: Bytes,
    valid: Bytes,
    slots: Shorts,
    hashes: Integers,
    text_start: Integers,
    text: Bytes,
    codes: Shorts,
) -> int:
    """The code of each item of a string column, and how many are valid but unknown."""
    mask = len(slots) - 1
    missing = 0
    for item in range(len(valid)):
        if valid[item] == 0:
            codes[item] = _ABSENT
            continue
        begin, end = starts[item], starts[item + 1]
        hashed = _hash_text(data, begin, end)
        at = hashed & mask
        code = _UNKNOWN
        for _ in range(_PROBES):
            candidate = slots[at]
            if candidate < 0:
                break
            first = text_start[candidate]
            if hashes[candidate] == hashed and text_start[candidate + 1] - first == end - begin:
                same = True
                for i in range(end - begin):
                    if text[first + i] != data[begin + i]:
                        same = False
                        break
                if same:
                    code = candidate
                    break
            at = (at + 1) & mask
        codes[item] = code
        missing += code == _UNKNOWN
    return missing


@compiled
def find_numbers(keys: Integers, valid: Bytes, slots: Shorts, known: Integers, codes: Shorts) -> int:
    """The code of each key, and how many are valid but unknown."""
    mask = len(slots) - 1
    missing = 0
    for item in range(len(keys)):
        if valid[item] == 0:
            codes[item] = _ABSENT
            continue
        at = _hash_number(keys[item]) & mask
        code = _UNKNOWN
        for _ in range(_PROBES):
            candidate = slots[at]
            if candidate < 0:
                break
            if known[candidate] == keys[item]:
                code = candidate
                break
            at = (at + 1) & mask
        codes[item] = code
        missing += code == _UNKNOWN
    return missing
