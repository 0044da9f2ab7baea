"""From categories to bit vectors, and how many bits that takes.

A category sets `hashes` bits, which follow one another at an odd distance (double hashing, after Kirsch and
Mitzenmacher). All places are taken modulo a power of two, so the vector of an event for fewer bits is the fold of its
vector for more:

    hash          step << 32 | first                 place of bit i: (first + i * (step | 1)) mod bits
    512 bits      0100 0010 ... | 0001 1000 ...
    256 bits      0101 1010 ...                      both halves laid upon each other

Vectors for different numbers of hashes have nothing in common, so there are two such numbers, and the greater one
serves only where the most bits do not suffice. Bits cost little: the text of a vector has the places of the few that
are set, and so has the table that events are matched against.
"""

import math
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

FEWEST_BITS, MOST_BITS = 64, 4096
BITS = tuple(FEWEST_BITS << power for power in range(7))
HASHES = (3, 6)
MOST_HASHES = 16

# An event has categories that a site's own predicates do not ask for, but those of others do.
_LEAST_CATEGORIES = 64
# Attributes of an event that predicates ask about, at most; it rarely has all those that some predicate names.
_USUAL_ATTRIBUTES = 12


def vector_of(hashed: Iterable[int], bits: int, hashes: int) -> bytes:
    """The vector of categories, given by their 64-bit hashes; bit p is bit p % 8 of byte p // 8."""
    vector = 0
    for each in hashed:
        for place in bit_places(each, bits, hashes):
            vector |= 1 << place
    return vector.to_bytes(bits // 8, "little")


def bit_places(hashed: int, bits: int, hashes: int) -> list[int]:
    first, step = hashed & 0xFFFF_FFFF, (hashed >> 32) | 1
    return [(first + i * step) & (bits - 1) for i in range(hashes)]


def bit_matrix(vectors: Collection[bytes], bits: int) -> NDArray[np.uint64]:
    """One row of 64-bit words for each vector."""
    return np.frombuffer(b"".join(vectors), "<u8").reshape(len(vectors), bits // 64)


def choose_size(sizes: Collection[int], forms: int, attributes: int, rate: float) -> tuple[int, int]:
    """The least number of bits with which an event is taken for one of some vectors by mistake at most at that rate,
    and the number of hashes. Of each vector the number of categories is given; an event is thought to have half of
    them anyway. With the most bits, the rate may be higher."""
    categories = max(_LEAST_CATEGORIES, forms * min(1.0, _USUAL_ATTRIBUTES / max(1, attributes)))
    missing = np.bincount([(size + 1) // 2 for size in sizes], minlength=1)
    best = (math.inf, MOST_BITS, HASHES[0])
    for hashes in HASHES:
        for bits in BITS:
            filled = 1.0 - math.exp(-hashes * categories / bits)
            mistakes = float(np.sum(missing * filled ** (hashes * np.arange(len(missing)))))
            if mistakes <= rate:
                return bits, hashes
            best = min(best, (mistakes, bits, hashes))
    return best[1:]
