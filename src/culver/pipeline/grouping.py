"""Hot: turns matches, which come event by event, into groups, one for each registration.

A scatter straight to 40,000 groups would miss the cache at every pair. So pairs go to a few hundred buckets of
neighbouring registrations first, tile by tile while a tile's matches are in the cache, and from there to their
groups, bucket by bucket:

    tile of events      partition                        finish
    0: 7 301 12         bucket 0 (0 .. 255)    7 12 ...  group 7: 0 3 9 ...
    1: 12 90 ...        bucket 1 (256 .. 511)  301 ...   group 12: 0 1 ...
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.matching.filter import Matches
from culver.matching.index.arrays import compiled
from culver.matching.index.vectors import lowest

MOST_EVENTS = 1 << 16
"""In one grouping: a row then takes two bytes."""

_MOST_BUCKETS = 256
_FEWEST_BITS, _MOST_BITS = 8, 16  # of a number that are left to tell it from the others of its bucket
_WIDEST = 1 << 27  # from the lowest to the highest number
_NARROW = 1 << 20  # numbers among which a few are found by marks
_MOST_KEPT = 1 << 25  # pairs that there is working memory for between calls
_FEW_PAIRS = 20_000  # that are sorted sooner than buckets are set up

Rows = NDArray[np.uint16]


class Groups(NamedTuple):
    """Registration `numbers[i]` (ascending) gets the events `rows[bounds[i]:bounds[i + 1]]` (ascending)."""

    numbers: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: Rows


class Grouping:
    """Keeps its working memory from one call to the next. Not thread-safe."""

    def __init__(self) -> None:
        self._packed = np.empty(0, np.uint32)
        self._counts = np.zeros(
            0, np.int32
        )  # for each number, from the lowest on; zero between calls, as the next
        self._marks = np.zeros(0, np.uint64)

    def group(self, tiles: Iterable[Matches], low: int, high: int) -> Groups:
        """Group the matches of at most MOST_EVENTS events, which come in tiles, in order. All numbers are in
        `low..high`."""
        width = high - low + 1
        bits = min(max(_FEWEST_BITS, (width // _MOST_BUCKETS).bit_length()), _MOST_BITS)
        waiting: list[tuple[int, Matches]] = []  # with the row that each begins at
        heads: list[NDArray[np.int64]] = []
        starts = [0]
        events = pairs = 0
        for matches in tiles:
            waiting.append((events, matches))
            events += len(matches.offsets) - 1
            pairs += len(matches.numbers)
            if pairs > _FEW_PAIRS and width <= _WIDEST:
                for first, tile in waiting:
                    heads.append(np.empty((width >> bits) + 2, np.int64))
                    packed = self._room(starts[-1], len(tile.numbers))
                    partition(tile.offsets, tile.numbers, low, first, bits, heads[-1], packed)
                    starts.append(starts[-1] + len(tile.numbers))
                waiting.clear()
        if events > MOST_EVENTS:
            raise ValueError(f"{events} events do not fit into one grouping")
        if not heads and width <= _NARROW and len(waiting) == 1:
            return self._spread(waiting[0][1], low, width)
        if not heads:
            return _sorted(waiting, pairs)
        numbers = np.empty(min(width, pairs), np.int64)
        bounds = np.empty(len(numbers) + 1, np.int64)
        rows = np.empty(pairs, np.uint16)
        count = finish(np.array(heads), np.array(starts), self._packed, low, bits, numbers, bounds, rows)
        if len(self._packed) > _MOST_KEPT:
            self._packed = np.empty(0, np.uint32)
        return Groups(numbers[:count].copy(), bounds[: count + 1].copy(), rows)

    def _spread(self, tile: Matches, low: int, width: int) -> Groups:
        """The same for one tile of few pairs: numbers are marked, and their marks found in order."""
        if len(self._counts) < width:
            self._counts = np.zeros(width, np.int32)
            self._marks = np.zeros((width + 63) // 64, np.uint64)
        pairs = len(tile.numbers)
        numbers, bounds, rows = (
            np.empty(pairs, np.int64),
            np.empty(pairs + 1, np.int64),
            np.empty(pairs, np.uint16),
        )
        count = spread(tile.offsets, tile.numbers, low, self._counts, self._marks, numbers, bounds, rows)
        return Groups(numbers[:count], bounds[: count + 1], rows)

    def _room(self, start: int, count: int) -> NDArray[np.uint32]:
        if len(self._packed) < start + count:
            larger = np.empty(max(start + count, 2 * len(self._packed)), np.uint32)
            larger[:start] = self._packed[:start]
            self._packed = larger
        return self._packed[start : start + count]


def load() -> None:
    """Load the kernels, or compile them where they never were, before events wait for them."""
    none, heads = np.zeros(0, np.int64), np.zeros(2, np.int64)
    partition(np.zeros(1, np.int64), none, 0, 0, _FEWEST_BITS, heads, np.empty(0, np.uint32))
    finish(
        heads[np.newaxis], np.zeros(2, np.int64), np.empty(0, np.uint32), 0, _FEWEST_BITS, none,
        np.zeros(1, np.int64), np.empty(0, np.uint16),
    )  # fmt: skip
    Grouping()._spread(Matches(np.zeros(1, np.int64), none), 0, 1)


def _sorted(tiles: Sequence[tuple[int, Matches]], pairs: int) -> Groups:
    """The same for few pairs, or for numbers that lie far apart."""
    numbers, rows = np.empty(pairs, np.int64), np.empty(pairs, np.uint16)
    at = 0
    for first, matches in tiles:
        end = at + len(matches.numbers)
        events = len(matches.offsets) - 1
        numbers[at:end] = matches.numbers
        rows[at:end] = np.repeat(np.arange(first, first + events), np.diff(matches.offsets))
        at = end
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    first_of = np.flatnonzero(np.diff(ordered, prepend=-1))
    return Groups(ordered[first_of], np.append(first_of, pairs), rows[order])


@compiled
def spread(
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64],
    low: int,
    counts: NDArray[np.int32],
    marks: NDArray[np.uint64],
    distinct: NDArray[np.int64],
    bounds: NDArray[np.int64],
    rows: Rows,
) -> int:
    """Group a tile's pairs; returns how many groups there are. `counts` and `marks` are zero, and zero again
    afterwards."""
    one = np.uint64(1)
    for number in numbers:
        place = np.uintp(number - low)
        counts[place] += 1
        marks[place >> np.uintp(6)] |= one << np.uint64(place & np.uintp(63))
    count = total = 0
    for word in range(len(marks)):
        left = marks[word]
        marks[word] = 0
        while left != 0:
            own = 64 * word + lowest(left)
            left &= left - one
            distinct[count] = low + own
            bounds[count] = total
            length = counts[own]
            counts[own] = total
            total += length
            count += 1
    bounds[count] = total
    for event in range(len(offsets) - 1):
        for at in range(offsets[event], offsets[event + 1]):
            place = np.uintp(numbers[at] - low)
            rows[counts[place]] = event
            counts[place] += 1
    for i in range(count):
        counts[distinct[i] - low] = 0
    return count


@compiled
def partition(
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64],
    low: int,
    first: int,
    bits: int,
    heads: NDArray[np.int64],
    packed: NDArray[np.uint32],
) -> None:
    """Put a tile's pairs into buckets: bucket b is `packed[heads[b]:heads[b + 1]]`, each pair its row, counted from
    `first`, and the lower bits of its number."""
    heads[:] = 0
    for number in numbers:
        heads[np.uintp((number - low) >> bits)] += 1
    total = 0
    for bucket in range(len(heads)):
        count = heads[bucket]
        heads[bucket] = total
        total += count
    free = heads.astype(np.uint32)
    mask = np.uint32((1 << bits) - 1)
    for event in range(len(offsets) - 1):
        row = np.uint32((first + event) << 16)
        for at in range(offsets[event], offsets[event + 1]):
            place = np.uint32(numbers[at] - low)
            own = np.uintp(place >> np.uint32(bits))
            into = free[own]
            free[own] = into + np.uint32(1)
            packed[np.uintp(into)] = row | (place & mask)


@compiled
def finish(
    heads: NDArray[np.int64],
    starts: NDArray[np.int64],
    packed: NDArray[np.uint32],
    low: int,
    bits: int,
    numbers: NDArray[np.int64],
    bounds: NDArray[np.int64],
    rows: Rows,
) -> int:
    """Group what is in the buckets of all tiles (tile t's begin at `packed[starts[t]]`); returns how many groups
    there are. Rows keep their order."""
    free = np.empty(1 << bits, np.int64)
    count = total = 0
    for bucket in range(heads.shape[1] - 1):
        free[:] = 0
        for tile in range(len(heads)):
            begin, end = starts[tile] + heads[tile, bucket], starts[tile] + heads[tile, bucket + 1]
            for at in range(begin, end):
                free[np.uintp(packed[np.uintp(at)] & np.uint32(0xFFFF))] += 1
        for within in range(len(free)):
            length = free[within]
            free[within] = total
            if length:
                numbers[count] = low + (bucket << bits) + within
                bounds[count] = total
                count += 1
                total += length
        for tile in range(len(heads)):
            begin, end = starts[tile] + heads[tile, bucket], starts[tile] + heads[tile, bucket + 1]
            for at in range(begin, end):
                pair = packed[np.uintp(at)]
                own = np.uintp(pair & np.uint32(0xFFFF))
                into = free[own]
                free[own] = into + 1
                rows[np.uintp(into)] = np.uint16(pair >> np.uint32(16))
    bounds[count] = total
    return count
