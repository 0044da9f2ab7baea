"""The second step of matching: the boxes that the events of a tile lie in, chunk by chunk.

Hot. `segment_layout` draws the arrays, and `chunks` what a chunk is.

    tile of 128 events --> bucket_search: clauses, and work: (row, group, chunk) ...
                               |  by chunk, so that a chunk is searched while it is in the cache
                               v
                           ranks of the keys, 16 bits a dimension
                               |
                               v
                           root --> branches --> leaves: a mask of 64 boxes for each leaf
"""

from typing import NamedTuple

import numpy as np

from culver.jit import Bytes, Integers, Masks, Ranks, Shorts, compiled
from culver.matching.index.intrinsics.vectors import LANES, WINDOW, count_up_to, lowest, real_of, within
from culver.matching.index.layout.segment_arrays import SegmentArrays
from culver.matching.index.layout.tokens import TOKENS
from culver.matching.index.search.bucket_search import EventKeys, collect

# Events that go through a chunk together, while it is in the cache.
TILE = 128
# Entries of a node for each dimension: lows and spans.
_NODE = 2 * LANES


# Each step takes the arrays that it needs out of the segment once: inside the loops, Numba would count references at
# every further mention of an array, and at every call.


@compiled
def _by_chunk(work: Integers, listed: int, chunks: int, starts: Integers, ordered: Integers) -> None:
    """Order the work by chunk, which then stays in the cache. `starts` is zero, and zero again afterwards."""
    if 16 * listed < chunks:
        chunk_of = np.empty(listed, np.int64)
        for i in range(listed):
            chunk_of[i] = work[3 * i + 2]
        ordered[:listed] = np.argsort(chunk_of, kind="mergesort")
        return
    for i in range(listed):
        starts[work[3 * i + 2] + 1] += 1
    for chunk in range(chunks):
        starts[chunk + 1] += starts[chunk]
    for i in range(listed):
        chunk = work[3 * i + 2]
        ordered[starts[chunk]] = i
        starts[chunk] += 1
    for chunk in range(chunks + 1):
        starts[chunk] = 0


@compiled
def _rank(
    segment: SegmentArrays, events: EventKeys, work: Integers, ordered: Integers, listed: int, ranks: Ranks
) -> None:
    """Fill `ranks`, work x dimensions: how many edges of its axis are at or below each key.

    The cells tell where to begin. Nearly always the 16 edges from there on decide, all compared at once; where cells
    are fuller, the axis says how many halvings come first. Edges of later cells are above the key, and behind the
    last edge of an axis there is room for a whole window."""
    rows, values = events.rows, events.values
    group_start, group_dimension = segment.group_dimension_start, segment.group_dimension
    chunk_axes = segment.chunk_axes
    axis_edges, axis_cells, axis_real = segment.axis_edges, segment.axis_cells, segment.axis_real
    axis_origin, axis_scale, axis_steps = segment.axis_origin, segment.axis_scale, segment.axis_steps
    edges, cells = segment.edges, segment.cells
    at = 0
    for i in range(listed):
        item = ordered[i]
        row, group, chunk = work[3 * item], work[3 * item + 1], work[3 * item + 2]
        first = group_start[group]
        for d in range(group_start[group + 1] - first):
            axis = chunk_axes[chunk] + d
            key = values[group_dimension[first + d] * rows + row]
            position = real_of(key) if axis_real[axis] != 0 else float(key)
            place = (position - axis_origin[axis]) * axis_scale[axis]
            last = axis_cells[axis + 1] - axis_cells[axis] - 2
            place = place if place > 0.0 else 0.0
            cell = last if place >= last else int(place)
            low = axis_edges[axis] + cells[axis_cells[axis] + cell]
            half = np.int64(WINDOW // 2) << axis_steps[axis]
            while half >= WINDOW:
                low = low + half if edges[low + half - 1] <= key else low
                half >>= 1
            low += count_up_to(edges, low, key) - axis_edges[axis]
            # The greatest key is not above what fills the room behind the last one.
            low = min(low, cells[axis_cells[axis + 1] - 1])
            ranks[at] = low
            at += 1


@compiled
def _search(
    segment: SegmentArrays,
    events: EventKeys,
    held: Bytes,
    work: Integers,
    ordered: Integers,
    listed: int,
    ranks: Ranks,
    slots: Integers,
    masks: Masks,
    begins: Integers,
    ends: Integers,
) -> tuple[Integers, Masks]:
    """Find the boxes that the events lie in, chunk by chunk. Item i of the work writes what it finds to the places
    begins[i] up to ends[i]: the first slot of a leaf, and a mask of its 64. Returns slots and masks, larger where
    they had to grow."""
    group_start, group_needy = segment.group_dimension_start, segment.group_needy
    chunk_leaves, chunk_nodes, nodes = segment.chunk_leaves, segment.chunk_nodes, segment.nodes
    slot_needs, needs = segment.slot_needs, segment.needs
    held_start, held_needs = events.held_start, events.held_needs
    one = np.uint64(1)
    rank = count = 0
    for i in range(listed):
        item = ordered[i]
        row, group, chunk = work[3 * item], work[3 * item + 1], work[3 * item + 2]
        begins[item] = count
        width = group_start[group + 1] - group_start[group]
        leaves = chunk_leaves[chunk + 1] - chunk_leaves[chunk]
        if count + leaves >= len(slots):
            longer = np.empty(2 * (count + leaves), np.int64)
            wider = np.empty(2 * (count + leaves), np.uint64)
            longer[:count], wider[:count] = slots[:count], masks[:count]
            slots, masks = longer, wider
        needy = group_needy[group] != 0
        if needy:
            for n in range(held_start[row], held_start[row + 1]):
                held[held_needs[n]] = 1
        step = width * _NODE
        branches = (leaves + LANES - 1) // LANES
        at = chunk_nodes[chunk]
        near_branches = one
        if branches > 1:
            near_branches = ~np.uint64(0)
            for d in range(width):
                near_branches &= within(nodes, at + d * _NODE, ranks[rank + d])
            at += step
        leaf_nodes = at + branches * step if leaves > 1 else at
        while near_branches != 0:
            branch = lowest(near_branches)
            near_branches &= near_branches - one
            near = one
            if leaves > 1:
                near = ~np.uint64(0)
                for d in range(width):
                    near &= within(nodes, at + branch * step + d * _NODE, ranks[rank + d])
            while near != 0:
                leaf = branch * LANES + lowest(near)
                near &= near - one
                hits = ~np.uint64(0)
                for d in range(width):
                    hits &= within(nodes, leaf_nodes + leaf * step + d * _NODE, ranks[rank + d])
                slot = (chunk_leaves[chunk] + leaf) * LANES
                if needy:
                    left = hits
                    while left != 0:
                        hit = slot + lowest(left)
                        for n in range(slot_needs[hit], slot_needs[hit + 1]):
                            need = needs[n]
                            if (held[need] == 0) if need >= 0 else (held[~need] != 0):
                                hits ^= left & (~left + one)
                                break
                        left &= left - one
                slots[np.uintp(count)] = slot
                masks[np.uintp(count)] = hits
                count += hits != 0
        if needy:
            for n in range(held_start[row], held_start[row + 1]):
                held[held_needs[n]] = 0
        ends[item] = count
        rank += width
    return slots, masks


class Findings(NamedTuple):
    """What the events of a tile find, in memory that the next tile uses again.

    Row r, counted from the tile's first, finds the registrations found[runs[r] : runs[r + 1]]. The items of `work`
    (row, group, chunk), which come by rows, find boxes: item i those in places begins[i] up to ends[i] of `slots`,
    where a leaf begins, and `masks`. `ordered` are the items by chunk, and by row within it."""

    found: Shorts
    runs: Integers
    work: Integers
    ordered: Integers
    begins: Integers
    ends: Integers
    slots: Integers
    masks: Masks
    ranks: Ranks
    held: Bytes
    marked: Bytes
    starts: Integers


@compiled
def no_findings(segment: SegmentArrays) -> Findings:
    none = np.empty(0, np.int64)
    return Findings(
        np.empty(4096, np.int32), np.empty(TILE + 1, np.int64), np.empty(3 * 4 * TILE, np.int64), none, none, none,
        np.empty(4096, np.int64), np.empty(4096, np.uint64), np.empty(4 * TILE, np.uint16),
        np.zeros(len(segment.need_bucket), np.uint8), np.zeros(TOKENS, np.uint8),
        np.zeros(len(segment.chunk_axes), np.int64),
    )  # fmt: skip


@compiled
def widest_group(segment: SegmentArrays) -> int:
    """The number of dimensions of the widest group."""
    widest = 1
    for group in range(len(segment.group_needy)):
        widest = max(widest, segment.group_dimension_start[group + 1] - segment.group_dimension_start[group])
    return widest


@compiled
def search_tile(
    segment: SegmentArrays, widest: int, tile: int, end: int, events: EventKeys, memory: Findings
) -> tuple[Findings, int]:
    """Search for the rows from `tile` up to `end`. Also returns the number of items of work."""
    held = memory.held
    found, work, listed = collect(
        segment, tile, end, events, held, memory.marked, memory.found, memory.runs, memory.work
    )
    ordered, begins, ends = memory.ordered, memory.begins, memory.ends
    if listed > len(ordered):
        ordered = np.empty(listed, np.int64)
        begins = np.empty(listed, np.int64)
        ends = np.empty(listed, np.int64)
    _by_chunk(work, listed, len(segment.chunk_axes) - 1, memory.starts, ordered)
    ranks = memory.ranks
    if listed * widest > len(ranks):
        ranks = np.empty(2 * listed * widest, np.uint16)
    _rank(segment, events, work, ordered, listed, ranks)
    slots, masks = _search(
        segment, events, held, work, ordered, listed, ranks, memory.slots, memory.masks, begins, ends
    )
    runs, marked, starts = memory.runs, memory.marked, memory.starts
    findings = Findings(found, runs, work, ordered, begins, ends, slots, masks, ranks, held, marked, starts)
    return findings, listed
