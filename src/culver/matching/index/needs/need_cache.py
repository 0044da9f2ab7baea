"""A cache of the needs that the values of a column meet, kept from batch to batch: symbols, types and sources recur.

    known     value -> needs met                       all that is remembered; a dictionary, for misses
    table     a hash table over most of `known`        immutable, for the kernel; made anew as `known` grows

    slots     . 2 . 0 . . 1 .        where a key hashes to -> code
    keys      code -> key            the 64-bit key of a number, or the hash of a string
    texts     code -> its bytes      of a string, which are compared, because strings may share a hash
    start     code -> where its needs begin in `needs`

The kernel looks a batch up in the table without touching a value in Python. Values that are not there are looked up
in `known`, or worked out, once each; when there have been many of them, a new table is made. Threads may share a
cache: they replace the table as a whole, and at worst work the same thing out twice.

To find the distinct values with Arrow, and to look only these up in the dictionary, needs no table, and on W3 takes a
tenth more time in batches of 8,192 events, and two thirds more in batches of 64.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from culver.jit import Bytes, Integers, Shorts, compiled, read_only
from culver.matching.index.compile.clause_table import pack_texts
from culver.matching.index.keys.batch_columns import Strings
from culver.matching.index.needs.met_needs import ColumnNeeds, join_lists

_ABSENT = -1
_UNKNOWN = -2
# A value that finds no slot near its own stays in the dictionary. So values that are made to collide cost no more
# than values that are new.
_PROBES = 16
# What a remembered value costs beside its needs and its text, in units of a need.
_ITEM_COST = 16
# A new table is made after one miss for so many known values.
_TABLE_SHARE = 4
_NOTHING = np.empty(0, np.int32)
_NO_KEYS = read_only(np.empty(0, np.int64))
_NO_TEXTS = Strings(read_only(np.empty(0, np.int32)), read_only(np.empty(0, np.uint8)), np.empty(0, np.uint8))


class CacheSize:
    """How much several caches hold together: needs, with an allowance for each value."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class NeedCache:
    """The needs that the values of one kind meet. `meets` works out those of a value: of a string by its UTF-8 bytes,
    of any other kind by its key."""

    def __init__(
        self, meets: Callable[[bytes], list[int]] | Callable[[int], list[int]], held: CacheSize
    ) -> None:
        self._meets: Callable[..., list[int]] = meets
        self._held = held
        self._known: dict[bytes | int, Shorts] = {}
        self._table = _table({})
        self._misses = 0

    def forget(self) -> None:
        self._known, self._table = {}, _table({})

    def look_up_keys(self, rows: Shorts, keys: Integers, valid: Bytes) -> list[ColumnNeeds]:
        """The needs that the values of a column meet; value i belongs to row rows[i]."""
        return self._look_up(rows, read_only(keys), _NO_TEXTS, valid)

    def look_up_texts(self, rows: Shorts, texts: Strings) -> list[ColumnNeeds]:
        """The same for a column of strings."""
        return self._look_up(rows, _NO_KEYS, texts, texts.valid)

    def _look_up(self, rows: Shorts, keys: Integers, texts: Strings, valid: Bytes) -> list[ColumnNeeds]:
        table = self._table
        codes = np.empty(len(valid), np.int32)
        known = table.slots, table.keys, table.text_start, table.text
        missing = find_codes(keys, texts.starts, texts.data, valid, *known, codes)
        parts = [ColumnNeeds(rows, codes, table.start, table.needs)]
        if missing:
            items = np.flatnonzero(codes == _UNKNOWN)
            values: list[bytes | int] = keys[items].tolist() if len(keys) else _bytes_of(texts, items)
            parts.append(self._missing(rows[items], values))
        return parts

    def _missing(self, rows: Shorts, values: list[bytes | int]) -> ColumnNeeds:
        """The same for values that are not in the table."""
        known = self._known
        codes: dict[bytes | int, int] = {}
        met: list[Shorts] = []
        for value in values:
            if value in codes:
                continue
            codes[value] = len(met)
            needs = known.get(value)
            if needs is None:
                needs = known[value] = np.array(self._meets(value), np.int32)
                text = len(value) // 4 if isinstance(value, bytes) else 0
                self._held.size += len(needs) + _ITEM_COST + text
            met.append(needs)
        self._misses += len(met)
        if self._misses * _TABLE_SHARE >= len(known):
            self._misses = 0
            self._table = _table(dict(known))
        return ColumnNeeds(rows, np.array([codes[value] for value in values], np.int32), *join_lists(met))


class _Table(NamedTuple):
    slots: Shorts
    keys: Integers
    text_start: Integers
    text: Bytes
    start: Integers
    needs: Shorts


def _table(known: dict[bytes | int, Shorts]) -> _Table:
    texts = [value for value in known if isinstance(value, bytes)]
    text_start, text = pack_texts(texts)
    keys = np.zeros(len(known), np.int64)
    if not texts:
        keys[:] = [value for value in known if isinstance(value, int)]
    slots = np.full(1 << (2 * len(known) + 1).bit_length(), -1, np.int32)
    fill_slots(text_start, text, keys, slots)
    return _Table(slots, keys, text_start, text, *join_lists(list(known.values())))


def _bytes_of(texts: Strings, items: Integers) -> list[bytes | int]:
    spans = zip(texts.starts[items].tolist(), texts.starts[items + 1].tolist(), strict=True)
    return [texts.data[begin:end].tobytes() for begin, end in spans]


@compiled
def _hash_text(data: Bytes, begin: int, end: int) -> int:
    value = end - begin
    for i in range(begin, end):
        value = (value ^ int(data[i])) * 0x100000001B3
    return value ^ (value >> 29)


@compiled
def _slot_of(key: int) -> int:
    """The slot of a key, in its lower bits."""
    value = key * 0x1E3779B97F4A7C15
    return value ^ (value >> 32)


@compiled
def fill_slots(text_start: Integers, text: Bytes, keys: Integers, slots: Shorts) -> None:
    """Put the codes of all keys into empty slots. Where there are texts, work out the keys first."""
    mask = len(slots) - 1
    for code in range(len(keys)):
        if len(text_start) > 1:
            keys[code] = _hash_text(text, text_start[code], text_start[code + 1])
        at = _slot_of(keys[code]) & mask
        for _ in range(_PROBES):
            if slots[at] < 0:
                slots[at] = code
                break
            at = (at + 1) & mask


@compiled
def find_codes(
    keys: Integers,
    starts: Shorts,
    data: Bytes,
    valid: Bytes,
    slots: Shorts,
    known: Integers,
    text_start: Integers,
    text: Bytes,
    codes: Shorts,
) -> int:
    """Fill in the code of each string, or of each key without `starts`. Returns the number of valid unknown ones."""
    mask = len(slots) - 1
    is_text = len(starts) > 0
    missing = 0
    for item in range(len(valid)):
        if valid[item] == 0:
            codes[item] = _ABSENT
            continue
        begin = end = 0
        if is_text:
            begin, end = int(starts[item]), int(starts[item + 1])
            key = _hash_text(data, begin, end)
        else:
            key = keys[item]
        at = _slot_of(key) & mask
        code = _UNKNOWN
        for _ in range(_PROBES):
            candidate = slots[at]
            if candidate < 0:
                break
            if known[candidate] == key:
                same = True
                if is_text:
                    first = text_start[candidate]
                    same = text_start[candidate + 1] - first == end - begin
                    i = 0
                    while same and i < end - begin:
                        same = text[first + i] == data[begin + i]
                        i += 1
                if same:
                    code = candidate
                    break
            at = (at + 1) & mask
        codes[item] = code
        missing += code == _UNKNOWN
    return missing
