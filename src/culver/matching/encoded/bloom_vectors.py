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
from typing import NamedTuple

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


class SparseVectors(NamedTuple):
    """Vectors by the places of their bits: `sizes` says how many each has, `places` has those of all in order."""

    sizes: NDArray[np.int64]
    places: NDArray[np.uint16]


def sparse_vectors(vectors: Collection[bytes], bits: int) -> SparseVectors:
    places = set_bits(vectors)
    sizes = np.bincount(places // bits, minlength=len(vectors))
    return SparseVectors(sizes, (places & (bits - 1)).astype(np.uint16))


def set_bits(vectors: Iterable[bytes]) -> NDArray[np.int64]:
    """The places of the bits that are set, in all vectors one after another."""
    data = np.frombuffer(b"".join(vectors), np.uint8)
    # Most bytes are zero: those are not unpacked.
    filled = np.flatnonzero(data != 0)
    which, place = np.nonzero(np.unpackbits(data[filled][:, None], axis=1, bitorder="little"))
    found: NDArray[np.int64] = filled[which] * 8 + place
    return found


def bytes_of_bits(places: NDArray[np.int64], size: int) -> bytes:
    """So many bytes with the bits at these places (distinct) set."""
    return np.bincount(places >> 3, 1 << (places & 7), size).astype(np.uint8).tobytes()


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
