"""A chunk: boxes over the same dimensions as a tree of nodes with 64 children, in 16-bit ranks.

    edges     of one dimension, sorted: each low bound, and the key behind each high bound
    rank      of a key: how many edges are at or below it. The box [low, high] holds a key exactly if
              rank(low) <= rank(key) <= rank(high). A chunk has so few edges that 16 bits suffice

    key    100       120            180   200                boxes  A [100, 180)   B [120, 200)
    edges   |A        |B             |A    |B
    rank  0 | 1       | 2            | 3   | 4               A  low 1, span 1      B  low 2, span 1

    root        1 node     bounds of the branches    only where there is more than one branch
    branches    <= 8       bounds of 64 leaves       only where there is more than one leaf
    leaves      <= 511     64 boxes each
    node        dimension x (64 lows, 64 spans); a surplus place has low 65535 and span 0, a rank that no key has

Cells find a key's rank quickly. They divide the line between the first and the last edge into equal widths, about as
many as there are edges, and cell i knows how many edges lie before it. Width is measured in reals or in keys,
whichever puts fewer edges into a cell.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers, Ranks, Shorts, compiled
from culver.matching.index.compile.key_lines import HIGHEST_KEY, LOWEST_KEY, real_of_key
from culver.matching.index.intrinsics.vectors import LANES, WINDOW, count_up_to, real_of
from culver.matching.index.layout.box_order import leaf_order

# Two edges each, and a whole number of leaves.
MOST_BOXES = 32_704
_NOWHERE = 65_535
_MOST_CELLS = 65_000
# The square of the keys in a place, on average, from which on a general sort is better.
_CROWDED = 8


class Cells(NamedTuple):
    """The cells of one axis.

    origin, scale    the cell of a position is (position - origin) * scale
    real             positions are the reals that the keys stand for, not the keys
    before           how many edges lie before each cell, and one entry more for the end
    steps            so many halvings leave no more than a window of the fullest cell
    """

    origin: float
    scale: float
    real: bool
    before: Ranks
    steps: int

    def surplus(self) -> Integers:
        """The keys that stand behind the edges, so that a search may look beyond the last one."""
        return np.full(WINDOW << self.steps, HIGHEST_KEY)


class Axis(NamedTuple):
    """One dimension of a chunk: the lowest and the highest key that a box holds, the edges, and their cells."""

    low: int
    high: int
    edges: Integers
    cells: Cells


@dataclass(frozen=True, slots=True)
class Chunk:
    """`order` says which box is in each place."""

    order: Integers
    axes: list[Axis]
    nodes: Ranks

    @property
    def leaves(self) -> int:
        return -(-len(self.order) // LANES)


def build(bounds: Integers, real: NDArray[np.bool_]) -> Chunk:
    """Build the chunk of at most MOST_BOXES boxes, none of them empty. `bounds` is boxes x (low, high for each
    dimension); `real` tells which dimensions have keys of reals."""
    ranks = np.empty(bounds.shape, np.uint16)
    axes: list[Axis] = []
    keys = np.empty(2 * len(bounds) + WINDOW, np.int64)
    spare = np.empty(2 * len(bounds) + 1, np.int64)
    starts = np.empty(2 * len(bounds) + 2, np.int32)
    for d in range(len(real)):
        found, in_order = sort_keys(bounds, d, bool(real[d]), keys, spare, starts)
        if not in_order:
            keys[:found].sort()
        left = drop_equal(keys, found)
        edges = keys[:left].copy()
        cells = _best_cells(edges, bool(real[d]))
        axes.append(Axis(int(bounds[:, 2 * d].min()), int(bounds[:, 2 * d + 1].max()), edges, cells))
        origin, scale, measured, before, steps = cells
        rank_bounds(bounds, d, keys, left, before, measured, origin, scale, steps, ranks)
    order = leaf_order(ranks, LANES)
    ranks = ranks[order]
    levels = [_nodes(ranks[:, 0::2], ranks[:, 1::2])]
    while len(levels[0]) > 1:
        # Surplus places have no extent: their low is above every high.
        node = levels[0]
        spans = node[:, :, 1].astype(np.int64)
        ends = np.where(node[:, :, 0] == _NOWHERE, 0, node[:, :, 0] + spans)
        levels.insert(0, _nodes(node[:, :, 0].min(axis=2), ends.max(axis=2)))
    return Chunk(order, axes, np.concatenate([level.reshape(-1) for level in levels]))


def bounds_of(nodes: Ranks, leaves: int, edges: list[Integers]) -> tuple[Integers, Integers]:
    """Restore the lows and highs of all places of a chunk, as `build` got them; nonsense in surplus places."""
    width = len(edges)
    leaf_nodes = nodes[len(nodes) - leaves * width * 2 * LANES :].reshape(leaves, width, 2, LANES)
    low_ranks = leaf_nodes[:, :, 0].transpose(0, 2, 1).reshape(-1, width).astype(np.int64)
    high_ranks = low_ranks + leaf_nodes[:, :, 1].transpose(0, 2, 1).reshape(-1, width)
    lows, highs = np.empty_like(low_ranks), np.empty_like(high_ranks)
    for d, edge in enumerate(edges):
        padded = np.concatenate([[LOWEST_KEY], edge])
        lows[:, d] = padded[np.minimum(low_ranks[:, d], len(edge))]
        ends = np.append(edge - 1, HIGHEST_KEY)
        highs[:, d] = ends[np.minimum(high_ranks[:, d], len(edge))]
    return lows, highs


def _nodes(lows: NDArray[np.integer], highs: NDArray[np.integer]) -> Ranks:
    """Make nodes x dimensions x (lows, spans) x 64 out of children x dimensions."""
    count, width = lows.shape
    nodes = -(-count // LANES)
    result = np.zeros((nodes * LANES, width, 2), np.uint16)
    result[count:, :, 0] = _NOWHERE
    result[:count, :, 0] = lows
    result[:count, :, 1] = highs - lows
    return np.ascontiguousarray(result.reshape(nodes, LANES, width, 2).transpose(0, 2, 3, 1))


def _best_cells(edges: Integers, real: bool) -> Cells:
    if not real:
        return _cells(edges, False)[0]
    by_reals, cost = _cells(edges, True)
    if cost <= 4 * len(edges):
        return by_reals  # four edges to a cell are good enough
    by_keys, other = _cells(edges, False)
    return by_reals if cost < other else by_keys


def _cells(edges: Integers, real: bool) -> tuple[Cells, float]:
    """Cells of equal width, and what they cost: the sum of the squares of the edges in each."""
    count = min(_MOST_CELLS, len(edges) + 1)
    origin = scale = 0.0
    if len(edges):
        first, last = (real_of_key(int(edge)) if real else float(edge) for edge in (edges[0], edges[-1]))
        if math.isfinite(first):
            origin = first
            extent = last - first
            scale = count / extent if extent else 0.0
            scale = scale if math.isfinite(scale) else 0.0
    before = np.zeros(count + 1, np.uint16)
    cost, fullest = fill_cells(edges, real, origin, scale, before)
    return Cells(origin, scale, real, before, (fullest // WINDOW).bit_length()), cost


# The inner loops. Bounds are boxes x (low, high for each dimension). The caller's buffers serve one dimension after
# another: fresh memory costs more than the work on it.


@compiled
def sort_keys(
    bounds: Integers, dimension: int, real: bool, keys: Integers, spare: Integers, starts: Shorts
) -> tuple[int, bool]:
    """Fill `keys` with the keys of all edges in a dimension. Returns how many there are, and whether they are sorted.

    Where keys are spread evenly, each goes straight to its place; little is left to sort, which is twice as fast as a
    general sort. `spare` has room for one key more than there may be, `starts` for two."""
    count = 0
    least, greatest = HIGHEST_KEY, LOWEST_KEY
    for box in range(len(bounds)):
        low, high = bounds[box, 2 * dimension], bounds[box, 2 * dimension + 1]
        # A side without a bound has no edge.
        spare[count] = low
        count += low != LOWEST_KEY
        spare[count] = high + 1
        count += high != HIGHEST_KEY
        least = min(
            least, low if low != LOWEST_KEY else HIGHEST_KEY, high + 1 if high != HIGHEST_KEY else HIGHEST_KEY
        )
        greatest = max(greatest, low, high + 1 if high != HIGHEST_KEY else LOWEST_KEY)
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
    """Keep each of `count` sorted keys once, and fill a window behind them. Returns how many are left."""
    left = 0
    for i in range(count):
        key = keys[i]
        keys[np.uintp(left)] = key
        left += i + 1 == count or keys[i + 1] != key
    keys[left : left + WINDOW] = HIGHEST_KEY
    return left


@compiled
def fill_cells(edges: Integers, real: bool, origin: float, scale: float, before: Ranks) -> tuple[float, int]:
    """Count the edges before each cell into `before`, which is zero. Returns what the cells cost (the sum of the
    squares of the edges in each), and how many edges are in the fullest."""
    last = len(before) - 2
    for edge in edges:
        # The same steps as in `box_search`, in the same order: an edge and a key must never disagree on a cell.
        position = real_of(edge) if real else float(edge)
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
    edges: Integers,
    count: int,
    before: Ranks,
    real: bool,
    origin: float,
    scale: float,
    steps: int,
    ranks: Ranks,
) -> None:
    """Fill in the ranks of all bounds in one dimension. There are `count` edges, and a window behind them."""
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
                if position != position:  # NaN: look at all edges
                    low, size = 0, count
                while size > 0:
                    half = (size + 1) >> 1
                    low += half * int(edges[low + half - 1] <= key)
                    size -= half
            else:
                low = min(low + count_up_to(edges, low, key), count)
            ranks[box, column] = low
