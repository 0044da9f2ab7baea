"""The order of boxes: similar ones come into the same chunk, and within it into the same leaf.

A k-d tree over the lower and upper bounds splits the boxes at the median of the bound that spreads most, again and
again. Bounds count by rank, so neither their scale nor an infinite one matters.
"""

import numpy as np

from culver.jit import Integers, Ranks, compiled

# Boxes that decide where to split.
_SAMPLE = 1024
# Boxes by which large numbers of boxes are ranked.
_RANKED = 32_768


def split(bounds: Integers, most: int, multiple: int) -> list[Integers]:
    """Split the rows of `bounds` (boxes x bounds) into parts of at most `most` that lie near one another. All but one
    have a multiple of `multiple` rows."""
    count = len(bounds)
    if count <= most:
        return [np.arange(count)]
    ranked = np.sort(bounds[:: -(-count // _RANKED)], axis=0)
    pending, done = [np.arange(count)], []
    while pending:
        members = pending.pop()
        if len(members) <= most:
            done.append(members)
            continue
        sample = bounds[members[:: -(-len(members) // _SAMPLE)]]
        spread = [
            np.std(np.searchsorted(column, values)) for column, values in zip(ranked.T, sample.T, strict=True)
        ]
        values = bounds[members, int(np.argmax(spread))]
        middle = -(-len(members) // (2 * multiple)) * multiple
        placed = np.argpartition(values, middle)
        pending += [members[placed[middle:]], members[placed[:middle]]]
    return done


@compiled
def leaf_order(ranks: Ranks, leaf: int) -> Integers:
    """Order the rows of `ranks` (boxes x bounds), so that each `leaf` successive ones lie near one another."""
    count, columns = ranks.shape
    order = np.arange(count)
    begins = np.empty(64, np.int64)
    ends = np.empty(64, np.int64)
    begins[0], ends[0] = 0, count
    pending = 1
    while pending > 0:
        pending -= 1
        begin, end = begins[pending], ends[pending]
        if end - begin <= leaf:
            continue
        step = (end - begin + _SAMPLE - 1) // _SAMPLE
        widest = -1.0
        chosen = 0
        for column in range(columns):
            total, squares, size = 0.0, 0.0, 0
            for i in range(begin, end, step):
                rank = float(ranks[order[i], column])
                total += rank
                squares += rank * rank
                size += 1
            variance = squares / size - (total / size) ** 2
            if variance > widest:
                widest = variance
                chosen = column
        middle = begin + (end - begin + 2 * leaf - 1) // (2 * leaf) * leaf
        _select(order, ranks, chosen, begin, end - 1, middle)
        begins[pending], ends[pending] = begin, middle
        begins[pending + 1], ends[pending + 1] = middle, end
        pending += 2
    return order


@compiled
def _select(order: Integers, ranks: Ranks, column: int, low: int, high: int, place: int) -> None:
    """Arrange order[low : high + 1] so that nothing before `place` is above what is from there on (quickselect)."""
    while low < high:
        first = ranks[order[low], column]
        middle = ranks[order[(low + high) >> 1], column]
        last = ranks[order[high], column]
        pivot = max(min(first, middle), min(max(first, middle), last))
        left, right = low, high
        while left <= right:
            while ranks[order[left], column] < pivot:
                left += 1
            while ranks[order[right], column] > pivot:
                right -= 1
            if left <= right:
                order[left], order[right] = order[right], order[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            return
