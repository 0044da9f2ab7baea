"""Portable keys: keys that mean the same in every segment, to compare terms and events by outside of one.

The keys of a segment (see `key_lines`) will do for all kinds but strings, whose keys are places among that segment's
literals. A portable string has two keys instead:

    head    its first eight bytes as a number, for intervals: keeps the order, though not strictly ("northern-1" and
            "northern-2" share one)
    hash    a hash of the whole string, for equality

Both are the same on every machine and in every version, so they may be stored.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, compiled, read_only
from culver.matching.index.compile.clause_table import ClauseTable, Dimension, pack_texts, string_dimensions
from culver.matching.index.compile.key_lines import HIGHEST_KEY, LOWEST_KEY, KeyLine
from culver.matching.index.keys.batch_columns import BatchColumns, Keys
from culver.matching.index.keys.key_kernels import head_of

_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_STEP = np.uint64(0x9E37_79B9_7F4A_7C15)
_ALL = slice(None)
_SIGN = np.uint64(1 << 63)


def hash_keys(keys: Integers) -> NDArray[np.uint64]:
    """Hash each key, so that all bits depend on all bits of the key (the finaliser of SplitMix64)."""
    bits = keys.astype(np.uint64) + _STEP
    bits ^= bits >> np.uint64(30)
    bits *= _FIRST
    bits ^= bits >> np.uint64(27)
    bits *= _SECOND
    bits ^= bits >> np.uint64(31)
    return bits


def term_bounds(table: ClauseTable, terms: Integers | slice = _ALL) -> tuple[Integers, Integers]:
    """The bounds of these terms; those of strings are heads, between which lie the heads of strings within a term."""
    low, high = (table.term_bounds[:, side][terms].copy() for side in (0, 1))
    rows = np.flatnonzero(string_dimensions(table)[table.term_dimension[terms]])
    if len(rows):
        heads, _ = _literal_keys(table.literals)
        # As in `key_lines`: literal i has the key 2i + 1, and an open bound at it the next key above or below.
        twice = np.repeat(heads, 2)
        low[rows] = _look_up(np.concatenate([heads[:1], twice]), low[rows])
        high[rows] = _look_up(twice, high[rows])
    return low, high


def term_hashes(table: ClauseTable, terms: Integers) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Mark the terms that are equalities, with the hash of their values (anything for the others)."""
    bounds = table.term_bounds[terms]
    low, high = bounds[:, 0], bounds[:, 1]
    strings = string_dimensions(table)[table.term_dimension[terms]]
    # Between two literals lies more than one string.
    is_point = (low == high) & (~strings | (low & 1 == 1))
    hashes = hash_keys(low)
    rows = np.flatnonzero(strings & is_point)
    if len(rows):
        _, mixes = _literal_keys(table.literals)
        hashes[rows] = mixes[low[rows] >> 1]
    return is_point, hashes


def event_keys(columns: BatchColumns, dimension: Dimension) -> Keys | None:
    """The keys of events in a dimension, comparable with `term_bounds`, and 1 where there is one; None: nowhere."""
    attribute, line = dimension
    if line is not KeyLine.STRINGS:
        return columns.keys(dimension)
    strings = columns.strings(attribute)
    if strings is None:
        return None
    keys = np.zeros(columns.rows, np.int64)
    _fill_heads(strings.starts, strings.data, strings.valid, keys)
    return keys, strings.valid


def event_hashes(columns: BatchColumns, dimension: Dimension) -> tuple[NDArray[np.uint64], Bytes] | None:
    """The hashes of the events' values on a dimension, to be compared with `term_hashes`; as `event_keys`."""
    attribute, line = dimension
    if line is not KeyLine.STRINGS:
        found = columns.keys(dimension)
        return None if found is None else (hash_keys(found[0]), found[1])
    strings = columns.strings(attribute)
    if strings is None:
        return None
    hashes = np.zeros(columns.rows, np.uint64)
    _fill_hashes(strings.starts, strings.data, strings.valid, hashes)
    return hashes, strings.valid


def _look_up(heads: Integers, keys: Integers) -> Integers:
    """The head for each key; keys that mean no bound stay."""
    bounded = (keys != LOWEST_KEY) & (keys != HIGHEST_KEY)
    if bounded.all():
        return heads[keys]
    result = keys.copy()
    result[bounded] = heads[keys[bounded]]
    return result


def _literal_keys(literals: Sequence[bytes]) -> tuple[Integers, NDArray[np.uint64]]:
    starts, data = pack_texts(literals)
    begins, valid = read_only(starts.astype(np.int32)), np.ones(len(literals), np.uint8)
    heads, hashes = np.zeros(len(literals), np.int64), np.zeros(len(literals), np.uint64)
    _fill_heads(begins, data, valid, heads)
    _fill_hashes(begins, data, valid, hashes)
    return heads, hashes


@compiled
def _fill_heads(begins: Shorts, data: Bytes, valid: Bytes, keys: Integers) -> None:
    for row in range(len(valid)):
        if valid[row] != 0:
            begin = begins[row]
            keys[row] = np.int64(head_of(data, begin, begins[row + 1] - begin) ^ _SIGN)


@compiled
def _fill_hashes(begins: Shorts, data: Bytes, valid: Bytes, hashes: NDArray[np.uint64]) -> None:
    """Hash eight bytes at a time, and finish as `hash_keys` does."""
    for row in range(len(valid)):
        if valid[row] == 0:
            continue
        begin, end = begins[row], begins[row + 1]
        bits = np.uint64(end - begin) * _STEP
        for place in range(begin, end, 8):
            bits ^= head_of(data, place, min(8, end - place))
            bits *= _FIRST
            bits ^= bits >> np.uint64(29)
        bits *= _SECOND
        bits ^= bits >> np.uint64(31)
        bits *= _STEP
        hashes[row] = bits ^ (bits >> np.uint64(32))
