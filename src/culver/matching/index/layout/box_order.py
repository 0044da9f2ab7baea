"""An order of boxes that puts similar ones into the same chunk, and within it into the same block.

The boxes are split at the median of the bound that tells them apart most, again and again: the leaves of a
k-d tree over the lower and upper bounds. Bounds count by rank, so that neither their scale nor the odd
infinite one matters.
"""

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, Ranks, compiled

_SAMPLE = 1024  # boxes that decide where to split; the spread of a sample is spread enough
_RANKED = 32_768  # boxes among which large sets are ranked


def split(bounds: NDArray[np.int64], most: int, multiple: int) -> list[NDArray[np.int64]]:
    """The rows of `bounds` (boxes x bounds) in sets of at most `most` that lie near one another; all but one of
    them a multiple of `multiple` in size."""
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
def block_order(ranks: Ranks, block: int) -> Integers:
    """A permutation of the rows of `ranks` (boxes x bounds); `block` successive ones form a block."""
    count, columns = ranks.shape
    order = np.arange(count)
    begins = np.empty(64, np.int64)
    ends = np.empty(64, np.int64)
    begins[0], ends[0] = 0, count
    pending = 1
    while pending > 0:
        pending -= 1
        begin, end = begins[pending], ends[pending]
        if end - begin <= block:
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
        middle = begin + (end - begin + 2 * block - 1) // (2 * block) * block
        _select(order, ranks, chosen, begin, end - 1, middle)
        begins[pending], ends[pending] = begin, middle
        begins[pending + 1], ends[pending + 1] = middle, end
        pending += 2
    return order


@compiled
def _select(order: Integers, ranks: Ranks, column: int, low: int, high: int, place: int) -> None:
    """Arrange order[low : high + 1] so that what is before `place` is not above what is from there on."""
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
