"""The arrays that kernels see, and how kernels are compiled.

Kernels are compiled on first use and kept in Numba's cache on disk (beside the package where that is
writable, in the user's cache directory otherwise). Numba replaces cache files as a whole, so processes that
start at once at worst compile the same kernel twice. They release the interpreter lock.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=np.generic)

Integers = NDArray[np.int64]
Shorts = NDArray[np.int32]
Ranks = NDArray[np.uint16]
Reals = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Masks = NDArray[np.uint64]


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


def fixed(array: NDArray[T]) -> NDArray[T]:
    """The same, read-only: to kernels, anything else is another signature."""
    view = array.view()
    view.flags.writeable = False
    return view


def compiled(function: F) -> F:
    """Numba's compiler as a decorator that keeps the function's type."""
    result: F = numba.njit(cache=True, nogil=True)(function)
    return result
