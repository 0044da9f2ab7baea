"""Values as 64-bit keys that keep their order, so that kernels only compare integers, and exactly.

The values of an attribute lie on lines, each with keys of its own. A constraint is a closed interval of keys:

    NUMBERS      integers and reals together, by the key of the real (below)
    INTEGERS     integers alone, by themselves
    REALS        reals alone, by the key of the real
    STRINGS      by their place among the sorted literals of a segment: literal i has the key 2i + 1, and
                 everything between literals i - 1 and i the key 2i
    TIMESTAMPS   microseconds
    BOOLEANS     0 and 1
    LISTS        0: the attribute is a list

    real      -max ...  -0.0 = 0.0  ... max
    key       the bits of the double, mirrored below zero, so that order is kept

An integer beyond 2^53 has no key of its own on NUMBERS, but lies on the right side of every bound below 2^53. A
constraint with a bound beyond that becomes two: one on INTEGERS, one on REALS.

    x > 5                              NUMBERS   [key(5.0) + 1, HIGHEST_KEY]
    x > 9007199254740993  (2^53 + 1)   INTEGERS  [9007199254740994, HIGHEST_KEY]
                                    or REALS     [key(9007199254740994.0), HIGHEST_KEY]
"""

import enum
import math
import struct

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, Reals
from culver.model import Domain

LOWEST_KEY = -(2**63)
HIGHEST_KEY = 2**63 - 1
EMPTY = (HIGHEST_KEY, LOWEST_KEY)
_MIRROR = 0x7FFF_FFFF_FFFF_FFFF
_MAX_REAL = math.nextafter(math.inf, 0.0)
_REAL = struct.Struct("<d")
_BITS = struct.Struct("<q")

EXACT = 2**53
"""Below it, every integer is a real."""

Interval = tuple[int, int]


class KeyLine(enum.StrEnum):
    """The order of the values of a dimension; see above."""

    NUMBERS = "numbers"
    INTEGERS = "integers"
    REALS = "reals"
    STRINGS = "strings"
    TIMESTAMPS = "timestamps"
    BOOLEANS = "booleans"
    LISTS = "lists"


DOMAIN_OF_LINE = {
    KeyLine.NUMBERS: Domain.NUMBER,
    KeyLine.INTEGERS: Domain.NUMBER,
    KeyLine.REALS: Domain.NUMBER,
    KeyLine.STRINGS: Domain.STRING,
    KeyLine.TIMESTAMPS: Domain.TIMESTAMP,
    KeyLine.BOOLEANS: Domain.BOOLEAN,
    KeyLine.LISTS: Domain.STRINGS,
}

EVERYTHING: Interval = (LOWEST_KEY, HIGHEST_KEY)


def real_key(value: float) -> int:
    """The order-preserving integer of a real; -0.0 and 0.0 share one."""
    bits: int = _BITS.unpack(_REAL.pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ _MIRROR


def real_keys(values: Reals) -> Integers:
    bits = (values + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(_MIRROR))


def real_of_key(key: int) -> float:
    real: float = _REAL.unpack(_BITS.pack(key ^ ((key >> 63) & _MIRROR)))[0]
    return real


def reals_of_keys(keys: Integers) -> Reals:
    return (keys ^ ((keys >> 63) & np.int64(_MIRROR))).view(np.float64)


def number_intervals(
    low: int | float | None, low_closed: bool, high: int | float | None, high_closed: bool
) -> tuple[Interval, Interval]:
    """The integers and the keys of the reals that lie between two bounds; None is no bound."""
    integer_low, real_low = (LOWEST_KEY, LOWEST_KEY) if low is None else _lower(low, low_closed)
    if high is None:
        integer_high, real_high = HIGHEST_KEY, HIGHEST_KEY
    else:
        # The upper bound is the lower bound of the mirrored line; negation is exact for both types.
        integer_mirror, real_mirror = _lower_values(-high, high_closed)
        integer_high = -integer_mirror
        real_high = LOWEST_KEY if real_mirror is None else real_key(-real_mirror)
    if integer_low > integer_high or integer_low > HIGHEST_KEY or integer_high < LOWEST_KEY:
        integers = EMPTY
    else:
        integers = (max(integer_low, LOWEST_KEY), min(integer_high, HIGHEST_KEY))
    return integers, ((real_low, real_high) if real_low <= real_high else EMPTY)


def number_lines(
    low: int | float | None, low_closed: bool, high: int | float | None, high_closed: bool
) -> list[tuple[KeyLine, Interval]]:
    """The intervals, on one line or on two, whose members are the numbers between two bounds."""
    integers, reals = number_intervals(low, low_closed, high, high_closed)
    if all(bound is None or -EXACT < bound < EXACT for bound in (low, high)):
        return [(KeyLine.NUMBERS, reals)]
    both = [(KeyLine.INTEGERS, integers), (KeyLine.REALS, reals)]
    return [(line, interval) for line, interval in both if interval != EMPTY]


def lower_keys(bounds: Reals, closed: NDArray[np.bool_] | bool) -> Integers:
    """The least keys within lower bounds, on NUMBERS; NaN is no bound. Exact between -2^53 and 2^53."""
    keys = real_keys(bounds)
    keys += np.logical_not(closed)
    keys += keys == -1  # which would be -0.0: it has the key of 0.0
    keys[np.isnan(bounds)] = LOWEST_KEY
    return keys


def upper_keys(bounds: Reals, closed: NDArray[np.bool_] | bool) -> Integers:
    """The greatest keys within upper bounds; as `lower_keys`."""
    keys = real_keys(bounds)
    keys -= np.logical_not(closed)
    keys -= keys == -1
    keys[np.isnan(bounds)] = HIGHEST_KEY
    return keys


def _lower(bound: int | float, closed: bool) -> tuple[int, int]:
    integer, real = _lower_values(bound, closed)
    return integer, HIGHEST_KEY if real is None else real_key(real)


def _lower_values(bound: int | float, closed: bool) -> tuple[int, float | None]:
    """The smallest integer (of any size) and the smallest finite real within a bound; None: no such real."""
    if isinstance(bound, int):
        integer = bound if closed else bound + 1
        if bound > _MAX_REAL:
            return integer, None
        if bound < -_MAX_REAL:
            return integer, -_MAX_REAL
        real = float(bound)
        if real < bound or (real == bound and not closed):
            real = math.nextafter(real, math.inf)
    else:
        integer = math.ceil(bound) if closed else math.floor(bound) + 1
        real = bound if closed else math.nextafter(bound, math.inf)
    return integer, (None if real == math.inf else real)


def string_interval(low: int | None, low_closed: bool, high: int | None, high_closed: bool) -> Interval:
    """The keys between two literals, given by their places; None is no bound."""
    lower = LOWEST_KEY if low is None else 2 * low + (1 if low_closed else 2)
    upper = HIGHEST_KEY if high is None else 2 * high + (1 if high_closed else 0)
    return lower, upper


def after_prefix(prefix: bytes) -> bytes:
    """The least byte string above everything that starts with `prefix` (UTF-8, not empty)."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))  # no byte of UTF-8 is 255


def move_string_bounds(lows: Integers, highs: Integers, moved: Integers) -> tuple[Integers, Integers]:
    """Translate string intervals to new places of the literals: literal i is now `moved[i]`."""
    return _move(lows, moved, 2), _move(highs, moved, 0)


def used_literals(lows: Integers, highs: Integers) -> Integers:
    """The places of the literals that string intervals refer to."""
    return np.unique(np.concatenate([_literals(lows, 2), _literals(highs, 0)]))


def _bounded(keys: Integers) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = (keys != LOWEST_KEY) & (keys != HIGHEST_KEY)
    return result


def _literals(keys: Integers, even: int) -> Integers:
    """The literal of each bound. An odd key is the literal itself, an even one lies next to it: above it (`even` = 2,
    an open lower bound) or below it (`even` = 0, an open upper bound)."""
    keys = keys[_bounded(keys)]
    return np.where(keys & 1 == 1, keys - 1, keys - even) >> 1


def _move(keys: Integers, moved: Integers, even: int) -> Integers:
    result = keys.copy()
    bounded = _bounded(keys)
    shift = np.where(keys[bounded] & 1 == 1, 1, even)
    result[bounded] = 2 * moved[_literals(keys, even)] + shift
    return result
