"""Literals place strings among the sorted literals of a segment.

The first eight bytes of a string, as one number, decide nearly every comparison:

    literal     ABLE      BAKER     CHARLIE1  CHARLIE2
    head        4142..    4241..    43484152  43484152       (big-endian, zeros behind a short string)

Strings are compared byte by byte only where their heads are equal.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, compiled
from culver.matching.index.intrinsics.raw_memory import short_at

DECIDING = 4
"""Marks rows whose key is still to be found."""


@dataclass(frozen=True, slots=True)
class Literals:
    """Sorted; literal i is data[start[i] : start[i + 1]]."""

    start: NDArray[np.int64]
    data: NDArray[np.uint8]
    heads: NDArray[np.uint64]


def literals_of(start: NDArray[np.int64], data: NDArray[np.uint8]) -> Literals:
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
    """How many heads are below a head, or with `closed` at or below it."""
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
    """Find the key of each string that is DECIDING in `given`, and mark it 1: 2i + 1 at literal i, 2i just below it.
    At the address `starts` are the places where the strings begin in the data, four bytes each."""
    for row in range(len(given)):
        if given[row] != DECIDING:
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
