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

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, Ranks
from culver.matching.index.compile.key_lines import INT64_MAX, INT64_MIN, real_of_key
from culver.matching.index.intrinsics.vectors import LANES, WINDOW
from culver.matching.index.layout.box_order import block_order
from culver.matching.index.layout.chunk_kernels import drop_equal, fill_cells, rank_bounds, sort_keys

MOST_BOXES = 32_704  # two cuts each, and a whole number of blocks
_NOWHERE = 65_535
_MOST_CELLS = 65_000


class Cells(NamedTuple):
    origin: float
    scale: float
    real: bool  # measured in the reals that the keys stand for
    before: Ranks  # for each cell how many cuts lie before it, and one entry more for the end
    steps: int  # halvings that leave no more than a window of the fullest cell

    def surplus(self) -> Integers:
        """What stands behind the cuts, for all that a search may look at."""
        return np.full(WINDOW << self.steps, INT64_MAX)


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


def build(bounds: Integers, real: NDArray[np.bool_]) -> Chunk:
    """The chunk of at most MOST_BOXES boxes, none of them empty: `bounds` is boxes x (low, high for each dimension).
    `real` tells which dimensions have keys of reals."""
    count, width = len(bounds), len(real)
    ranks = np.empty(bounds.shape, np.uint16)
    cuts: list[Integers] = []
    cells: list[Cells] = []
    keys = np.empty(2 * count + WINDOW, np.int64)
    spare = np.empty(2 * count + 1, np.int64)
    starts = np.empty(2 * count + 2, np.int32)
    for d in range(width):
        found, in_order = sort_keys(bounds, d, bool(real[d]), keys, spare, starts)
        if not in_order:
            keys[:found].sort()
        left = drop_equal(keys, found)
        cuts.append(keys[:left].copy())
        cells.append(_best_cells(cuts[d], bool(real[d])))
        origin, scale, measured, before, steps = cells[d]
        rank_bounds(bounds, d, keys, left, before, measured, origin, scale, steps, ranks)
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
        bounds[:, 0::2].min(axis=0),
        bounds[:, 1::2].max(axis=0),
        cuts,
        cells,
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
    if len(cuts):
        first, last = (real_of_key(int(cut)) if real else float(cut) for cut in (cuts[0], cuts[-1]))
        if math.isfinite(first):
            origin = first
            extent = last - first
            scale = count / extent if extent else 0.0
            scale = scale if math.isfinite(scale) else 0.0
    before = np.zeros(count + 1, np.uint16)
    cost, fullest = fill_cells(cuts, real, origin, scale, before)
    return Cells(origin, scale, real, before, (fullest // WINDOW).bit_length()), cost
