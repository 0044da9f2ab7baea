"""The arrays of a segment, as `segment_layout` draws them."""

from typing import NamedTuple

from culver.jit import Bytes, Integers, Ranks, Reals, Shorts


class SegmentArrays(NamedTuple):
    """The arrays of a segment as `layout` draws them; all read-only, so that kernels have one signature."""

    numbers: Integers
    since: Integers
    literal_start: Integers
    literal_bytes: Bytes
    access_dimension: Shorts
    access_start: Shorts
    key_value: Integers
    key_bucket: Shorts
    dimension_bucket: Shorts
    need_bucket: Shorts
    buckets: Shorts
    free_registration: Shorts
    clauses: Integers
    clause_tokens: Ranks
    term_dimension: Shorts
    term_bounds: Integers
    group_dimension_start: Shorts
    group_dimension: Shorts
    group_chunks: Shorts
    group_needy: Shorts
    chunk_blocks: Shorts
    chunk_axes: Shorts
    chunk_nodes: Integers
    axis_low: Integers
    axis_high: Integers
    axis_cuts: Integers
    axis_cells: Integers
    axis_origin: Reals
    axis_scale: Reals
    axis_real: Shorts
    axis_steps: Shorts
    cuts: Integers
    cells: Ranks
    nodes: Ranks
    slot_registration: Shorts
    slot_needs: Shorts
    needs: Shorts
