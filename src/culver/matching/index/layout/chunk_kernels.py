"""The inner loops of making a chunk: from the bounds of boxes to cuts, cells and ranks, see `chunks`.

Bounds are boxes x (low, high for each dimension). Buffers are the caller's, and serve one dimension after another:
fresh memory costs more than the work on it.
"""

import numpy as np

from culver.jit import Integers, Ranks, Shorts, compiled
from culver.matching.index.compile.key_lines import INT64_MAX, INT64_MIN
from culver.matching.index.intrinsics.vectors import WINDOW, count_up_to, real_of

_CROWDED = 8  # the square of the keys in a place, on average, from which on a general sort is better


@compiled
def sort_keys(
    bounds: Integers, dimension: int, real: bool, keys: Integers, spare: Integers, starts: Shorts
) -> tuple[int, bool]:
    """Fill `keys` with the keys of all cuts in a dimension: how many there are, and whether they are sorted already.

    Where they are spread evenly, each is put straight to where it belongs, which leaves little to sort and is twice
    as fast as a general sort. `spare` has room for one key more than there may be, `starts` for two."""
    count = 0
    least, greatest = INT64_MAX, INT64_MIN
    for box in range(len(bounds)):
        low, high = bounds[box, 2 * dimension], bounds[box, 2 * dimension + 1]
        # What begins or ends nowhere has no cut.
        spare[count] = low
        count += low != INT64_MIN
        spare[count] = high + 1
        count += high != INT64_MAX
        least = min(
            least, low if low != INT64_MIN else INT64_MAX, high + 1 if high != INT64_MAX else INT64_MAX
        )
        greatest = max(greatest, low, high + 1 if high != INT64_MAX else INT64_MIN)
    origin = real_of(least) if real else float(least)
    extent = (real_of(greatest) if real else float(greatest)) - origin
    if count == 0 or not (0.0 < extent < np.inf):
        keys[:count] = spare[:count]
        return count, False
    scale = count / extent
    starts[: count + 2] = 0
    for i in range(count):
        position = real_of(spare[i]) if real else float(spare[i])
        starts[np.uintp(min(count, int((position - origin) * scale)) + 1)] += 1
    crowd = 0
    for i in range(1, count + 2):
        crowd += starts[i] * starts[i]
        starts[i] += starts[i - 1]
    if crowd > _CROWDED * count:
        keys[:count] = spare[:count]
        return count, False
    for i in range(count):
        position = real_of(spare[i]) if real else float(spare[i])
        place = np.uintp(min(count, int((position - origin) * scale)))
        keys[np.uintp(starts[place])] = spare[i]
        starts[place] += 1
    for i in range(1, count):
        key = keys[i]
        at = i
        while at > 0 and keys[np.uintp(at - 1)] > key:
            keys[np.uintp(at)] = keys[np.uintp(at - 1)]
            at -= 1
        keys[np.uintp(at)] = key
    return count, True


@compiled
def drop_equal(keys: Integers, count: int) -> int:
    """Leave each of `count` sorted keys once, and fill a window behind them; how many are left."""
    left = 0
    for i in range(count):
        key = keys[i]
        keys[np.uintp(left)] = key
        left += i + 1 == count or keys[i + 1] != key
    keys[left : left + WINDOW] = INT64_MAX
    return left


@compiled
def fill_cells(cuts: Integers, real: bool, origin: float, scale: float, before: Ranks) -> tuple[float, int]:
    """Count the cuts before each cell, in `before`, which is zero. Returns what the cells cost, the sum of the
    squares of the cuts in each, and how many cuts are in the fullest."""
    last = len(before) - 2
    for cut in cuts:
        # The same steps as those of `kernels`, in the same order: a cut and a key must never disagree on a cell.
        position = real_of(cut) if real else float(cut)
        place = (position - origin) * scale
        place = place if place > 0.0 else 0.0
        before[(last if place >= last else int(place)) + 1] += 1
    cost = 0.0
    fullest = total = 0
    for i in range(1, len(before)):
        held = int(np.int64(before[i]))
        cost += float(held * held)
        fullest = max(fullest, held)
        total += held
        before[i] = total
    return cost, fullest


@compiled
def rank_bounds(
    bounds: Integers,
    dimension: int,
    cuts: Integers,
    count: int,
    before: Ranks,
    real: bool,
    origin: float,
    scale: float,
    steps: int,
    ranks: Ranks,
) -> None:
    """The ranks of all bounds in one dimension: how many cuts are at or below each. There are `count` cuts, and a
    window behind them."""
    last = len(before) - 2
    for box in range(len(bounds)):
        for column in range(2 * dimension, 2 * dimension + 2):
            key = bounds[box, column]
            position = real_of(key) if real else float(key)
            place = (position - origin) * scale
            place = place if place > 0.0 else 0.0
            cell = last if place >= last else int(place)
            low = int(np.int64(before[cell]))
            if steps > 0 or position != position:
                size = int(np.int64(before[cell + 1])) - low
                if position != position:  # no real: as good as infinite, one way or the other
                    low, size = 0, count
                while size > 0:
                    half = (size + 1) >> 1
                    low += half * int(cuts[low + half - 1] <= key)
                    size -= half
            else:
                low = min(low + count_up_to(cuts, low, key), count)
            ranks[box, column] = low
