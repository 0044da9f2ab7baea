"""An order of boxes that puts similar ones into the same block.

The boxes are split at the median of the bound that tells them apart most, again and again, until a block
is left: the leaves of a k-d tree over the lower and upper bounds. Bounds count by rank, so that neither
their scale nor the odd infinite one matters.
"""

import numpy as np
from numpy.typing import NDArray

_SAMPLE = 1024  # boxes that decide where to split; the spread of a sample is spread enough


def block_order(bounds: NDArray[np.int64], block: int) -> NDArray[np.int64]:
    """A permutation of the rows of `bounds` (boxes x bounds); `block` successive ones form a block."""
    count = len(bounds)
    if count <= block:
        return np.arange(count)
    ranks = np.empty(bounds.shape, np.float32)
    for column in range(bounds.shape[1]):
        values = bounds[:, column]
        ranks[:, column] = np.searchsorted(np.sort(values), values)
    order = np.arange(count)
    pending = [(0, count)]
    while pending:
        begin, end = pending.pop()
        if end - begin <= block:
            continue
        members = order[begin:end]
        step = -(-len(members) // _SAMPLE)
        column = int(np.argmax(np.std(ranks[members[::step]], axis=0)))
        middle = -(-(end - begin) // (2 * block)) * block
        order[begin:end] = members[np.argpartition(ranks[members, column], middle)]
        pending += [(begin, begin + middle), (begin + middle, end)]
    return order
