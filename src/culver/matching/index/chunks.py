"""A chunk: boxes over the same dimensions as a tree of nodes with 64 children, in 16-bit ranks.

    cuts      of one dimension, sorted: each low bound, and the key behind each high bound
    rank      of a key: how many cuts are at or below it. The box [low, high] holds a key exactly if
              rank(low) <= rank(key) <= rank(high): so many cuts that 16 bits suffice make a chunk

    key    100       120            180   200                boxes  A [100, 180)   B [120, 200)
    cuts    |A        |B             |A    |B
    rank  0 | 1       | 2            | 3   | 4               A  low 1, span 1      B  low 2, span 1

    root      1 node     bounds of the supers      only where there is more than one super
    supers    <= 8       bounds of 64 blocks       only where there is more than one block
    blocks    <= 511     64 boxes each
    node      dimension x (64 lows, 64 spans); a surplus place has low 65535 and span 0, a rank that no key has

To find a key's rank quickly, the line between the first and the last cut is divided into cells of equal width,
about as many as there are cuts; cell i knows how many cuts lie before it. Width is measured in reals or
in keys, whichever leaves fewer cuts to a cell.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.bounds import INT64_MAX, INT64_MIN
from culver.matching.index.order import block_order
from culver.matching.index.vectors import LANES, WINDOW

MOST_BOXES = 32_704  # two cuts each, and a whole number of blocks
_NOWHERE = 65_535
_MOST_CELLS = 65_000

Integers = NDArray[np.int64]
Ranks = NDArray[np.uint16]


def padded(cuts: Integers, steps: int) -> Integers:
    """The cuts of an axis with room behind them for all that a search may look at."""
    return np.concatenate([cuts, np.full(WINDOW << steps, INT64_MAX)])


class Cells(NamedTuple):
    origin: float
    scale: float
    real: bool  # measured in the reals that the keys stand for
    before: Ranks  # for each cell how many cuts lie before it, and one entry more for the end

    @property
    def steps(self) -> int:
        """Halvings that leave no more than a window of the fullest cell."""
        return max(0, (int(np.diff(self.before).max(initial=0)) // WINDOW).bit_length())


@dataclass(frozen=True, slots=True)
class Chunk:
    """`order` says which box is in each place."""

    order: Integers
    low: Integers  # per dimension, the key below which no box holds anything
    high: Integers
    cuts: list[Integers]
    cells: list[Cells]
    nodes: Ranks

    @property
    def blocks(self) -> int:
        return -(-len(self.order) // LANES)


def build(lows: Integers, highs: Integers, real: NDArray[np.bool_]) -> Chunk:
    """The chunk of at most MOST_BOXES boxes, none of them empty; both arrays are boxes x dimensions. `real` tells
    which dimensions have keys of reals."""
    count, width = lows.shape
    ranks = np.empty((count, 2 * width), np.uint16)
    cuts: list[Integers] = []
    for d in range(width):
        cut, low_ranks, high_ranks = _cut(lows[:, d], highs[:, d])
        cuts.append(cut)
        ranks[:, 2 * d], ranks[:, 2 * d + 1] = low_ranks, high_ranks
    order = block_order(ranks, LANES)
    ranks = ranks[order]
    levels = [_nodes(ranks[:, 0::2], ranks[:, 1::2])]
    while len(levels[0]) > 1:
        # Surplus places have no extent: their low is above every high.
        node = levels[0]
        spans = node[:, :, 1].astype(np.int64)
        ends = np.where(node[:, :, 0] == _NOWHERE, 0, node[:, :, 0] + spans)
        levels.insert(0, _nodes(node[:, :, 0].min(axis=2), ends.max(axis=2)))
    return Chunk(
        order,
        lows.min(axis=0),
        highs.max(axis=0),
        cuts,
        [_best_cells(cut, bool(real[d])) for d, cut in enumerate(cuts)],
        np.concatenate([level.reshape(-1) for level in levels]),
    )


def bounds_of(nodes: Ranks, blocks: int, cuts: list[Integers]) -> tuple[Integers, Integers]:
    """The lows and highs of the boxes in all places of a chunk, as they went into `build`; nonsense in surplus
    places."""
    width = len(cuts)
    leaves = nodes[len(nodes) - blocks * width * 2 * LANES :].reshape(blocks, width, 2, LANES)
    low_ranks = leaves[:, :, 0].transpose(0, 2, 1).reshape(-1, width).astype(np.int64)
    high_ranks = low_ranks + leaves[:, :, 1].transpose(0, 2, 1).reshape(-1, width)
    lows, highs = np.empty_like(low_ranks), np.empty_like(high_ranks)
    for d, cut in enumerate(cuts):
        padded = np.concatenate([[INT64_MIN], cut])
        lows[:, d] = padded[np.minimum(low_ranks[:, d], len(cut))]
        ends = np.append(cut - 1, INT64_MAX)
        highs[:, d] = ends[np.minimum(high_ranks[:, d], len(cut))]
    return lows, highs


def _cut(lows: Integers, highs: Integers) -> tuple[Integers, Integers, Integers]:
    """The cuts of one dimension, and the ranks of the lows and highs."""
    count = len(lows)
    begins, ends = lows != INT64_MIN, highs != INT64_MAX
    keys = np.concatenate([lows[begins], highs[ends] + 1])
    order = np.argsort(keys)
    ascending = keys[order]
    distinct = np.ones(len(keys), np.bool_)
    distinct[1:] = ascending[1:] != ascending[:-1]
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.cumsum(distinct)
    cut = ascending[distinct]
    low_ranks, high_ranks = np.zeros(count, np.int64), np.full(count, len(cut))
    first = int(np.count_nonzero(begins))
    low_ranks[begins] = rank[:first]
    high_ranks[ends] = rank[first:] - 1  # keys up to the high bound are below its cut
    return cut, low_ranks, high_ranks


def _nodes(lows: NDArray[np.integer], highs: NDArray[np.integer]) -> Ranks:
    """Nodes x dimensions x (lows, spans) x 64 from children x dimensions."""
    count, width = lows.shape
    nodes = -(-count // LANES)
    result = np.zeros((nodes * LANES, width, 2), np.uint16)
    result[count:, :, 0] = _NOWHERE
    result[:count, :, 0] = lows
    result[:count, :, 1] = highs - lows
    return np.ascontiguousarray(result.reshape(nodes, LANES, width, 2).transpose(0, 2, 3, 1))


def _best_cells(cuts: Integers, real: bool) -> Cells:
    if not real:
        return _cells(cuts, False)[0]
    by_reals, cost = _cells(cuts, True)
    if cost <= 4 * len(cuts):
        return by_reals  # hardly to be bettered: four to a cell
    by_keys, other = _cells(cuts, False)
    return by_reals if cost < other else by_keys


def _cells(cuts: Integers, real: bool) -> tuple[Cells, float]:
    """Cells of equal width, and what they cost: the sum of the squares of the cuts in each."""
    count = min(_MOST_CELLS, len(cuts) + 1)
    origin = scale = 0.0
    place = np.zeros(len(cuts), np.int64)
    if len(cuts):
        # The same steps as the kernel's, in the same order: a cut and a key must never disagree on a cell.
        positions = _reals(cuts) if real else cuts.astype(np.float64)
        origin = float(positions[0])
        with np.errstate(all="ignore"):
            scale = float(count / (positions[-1] - positions[0]))
            scale = scale if np.isfinite(scale) and np.isfinite(origin) else 0.0
            origin = origin if np.isfinite(origin) else 0.0
            places = (positions - origin) * scale
            place = np.where(places >= count - 1, count - 1, np.where(places > 0.0, places, 0.0)).astype(
                np.int64
            )
    held = np.bincount(place, minlength=count)
    before = np.zeros(count + 1, np.uint16)
    before[1:] = np.cumsum(held)
    return Cells(origin, scale, real, before), float(np.square(held).sum())


def _reals(keys: Integers) -> NDArray[np.float64]:
    return (keys ^ ((keys >> 63) & np.int64(INT64_MAX))).view(np.float64)
