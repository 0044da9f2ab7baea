"""Hot: all vectors of all registrations, and which of them lie within an event's vector.

A vector has few bits, and an event has most of them not. So a vector stands in the bucket of its rarest bit, and an
event looks only into the buckets of the bits that it has. There, the next four bits, the rarest first, decide nearly
always, without a branch; only if the event has all four are the others looked at.

    bit        0     1     2     3     4     5  ...          counted over all vectors
    bucket     | v7  | v0  v3    |     | v1  | ...
                       |
               heads   9 17 40 2   rest  63 5                 places of bits, 16 bits each, the rarest first
    event      marks   0 1 0 0 1 ...                          a byte for each bit

The vectors of an event come as words (see `event_vectors`), perhaps for more bits, and are folded.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from culver.jit import Bytes, Integers, Masks, Ranks, Shorts, compiled, read_only
from culver.matching.encoded.bloom_vectors import SparseVectors, sparse_vectors
from culver.matching.index.compile.clause_table import run_starts
from culver.matching.index.intrinsics.vectors import lowest

_HEAD = 4
_NONE_SKIPPED: Bytes = np.zeros(0, np.uint8)


class VectorTable(NamedTuple):
    """All read-only."""

    bits: int
    bucket_start: Integers  # per bit, and one more
    heads: Ranks  # four for each vector, in the order of buckets
    rest_start: Integers
    rest: Ranks
    owners: Shorts  # per vector: the place of its registration
    always: Shorts  # the places of registrations that have a vector without bits
    numbers: Integers  # per registration


def table_of(vectors: SparseVectors, bits: int, owners: Integers, numbers: Integers) -> VectorTable:
    """The table of some vectors; vector i belongs to registration `owners[i]`, whose number is
    `numbers[owners[i]]`."""
    sizes = vectors.sizes
    always, owners, sizes = owners[sizes == 0], owners[sizes > 0], sizes[sizes > 0]
    count = len(sizes)
    starts = run_starts(sizes)
    # By vector, the rarest bit first.
    counts = np.bincount(vectors.places, minlength=bits)
    order = np.lexsort((vectors.places, counts[vectors.places], np.repeat(np.arange(count), sizes)))
    places = vectors.places[order]
    bucket = places[starts[:-1]]
    by_bucket = np.argsort(bucket, kind="stable")
    first, sizes = starts[:-1][by_bucket], sizes[by_bucket]
    # The bits of a vector after the first; where there are too few for a head, the first again.
    ahead = np.arange(1, _HEAD + 1)
    heads = places[first[:, None] + np.where(ahead < sizes[:, None], ahead, 0)]
    more = np.maximum(sizes - 1 - _HEAD, 0)
    rest_start = run_starts(more)
    rest = places[np.repeat(first + 1 + _HEAD - rest_start[:-1], more) + np.arange(rest_start[-1])]
    return VectorTable(
        bits,
        read_only(np.searchsorted(bucket[by_bucket], np.arange(bits + 1))),
        read_only(heads.ravel()),
        read_only(rest_start),
        read_only(rest),
        read_only(owners[by_bucket].astype(np.int32)),
        read_only(np.unique(always).astype(np.int32)),
        read_only(numbers),
    )


def minimal_vectors(vectors: Sequence[bytes], bits: int) -> list[bytes]:
    """Those of some distinct vectors that have no other one within them, in the same order."""
    every = np.arange(len(vectors))
    table = table_of(sparse_vectors(vectors, bits), bits, every, every)
    words = np.frombuffer(
        bytearray().join(vectors), "<u8"
    )  # writeable, as those of events: one kernel for both
    offsets, _ = find_within(table, words, bits // 64, len(vectors), _NONE_SKIPPED)
    # Each has itself within it.
    return [vector for vector, found in zip(vectors, np.diff(offsets).tolist(), strict=True) if found == 1]


@compiled
def find_within(
    table: VectorTable, words: Masks, width: int, rows: int, skipped: Bytes
) -> tuple[Integers, Integers]:
    """Offsets per row, and the numbers of the registrations with a vector within that of the row, distinct for each
    row. A row has `width` words; a row marked in `skipped` (if that is not empty) has no matches."""
    bits, numbers, owners = table.bits, table.numbers, table.owners
    bucket_start, heads, rest_start, rest = table.bucket_start, table.heads, table.rest_start, table.rest
    always = table.always
    own_width = bits >> 6
    folded = np.zeros(own_width, np.uint64)
    marks = np.zeros(bits, np.uint8)
    there = np.zeros(bits, np.uint16)  # the bits that the event has
    last_row = np.full(len(numbers), -1, np.int32)  # in which each registration has matched
    offsets = np.zeros(rows + 1, np.int64)
    result = np.empty(max(256, len(numbers)), np.int64)
    found = 0
    for row in range(rows):
        if len(skipped) > 0 and skipped[row] != 0:
            offsets[row + 1] = found
            continue
        if found + len(numbers) > len(result):
            larger = np.empty(2 * len(result) + len(numbers), np.int64)
            larger[:found] = result[:found]
            result = larger
        for i in range(own_width):
            folded[i] = 0
        for i in range(width):
            folded[i & (own_width - 1)] |= words[row * width + i]
        count = 0
        for i in range(own_width):
            word = folded[i]
            while word != 0:
                bit = 64 * i + lowest(word)
                marks[bit] = 1
                there[count] = bit
                count += 1
                word &= word - np.uint64(1)
        for i in range(len(always)):
            last_row[always[i]] = row
            result[found] = numbers[always[i]]
            found += 1
        for i in range(count):
            begin, end = bucket_start[there[i]], bucket_start[there[i] + 1]
            for vector in range(np.uintp(begin), np.uintp(end)):
                at = vector * np.uintp(4)
                first = marks[heads[at]] & marks[heads[at + np.uintp(1)]]
                second = marks[heads[at + np.uintp(2)]] & marks[heads[at + np.uintp(3)]]
                if (first & second) == 0:
                    continue
                within = True
                for other in range(rest_start[vector], rest_start[vector + np.uintp(1)]):
                    if marks[rest[other]] == 0:
                        within = False
                        break
                owner = owners[vector]
                if within and last_row[owner] != row:
                    last_row[owner] = row
                    result[found] = numbers[owner]
                    found += 1
        for i in range(count):
            marks[there[i]] = 0
        offsets[row + 1] = found
    return offsets, result[:found]
