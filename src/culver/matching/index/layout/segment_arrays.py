"""The arrays of a segment, as `segment_layout` draws them, and how a kernel gets all of them at once.

Numba takes about 150 ns to unpack an array that is passed to a kernel. A segment has 37 of them, which is more than
it takes to match a few events. So a segment is passed as one array of integers, and the kernel puts the tuple
together itself:

    addresses   address, length   address, length   ...     in the order of `SegmentArrays`

The caller keeps the arrays alive until the kernel has returned.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import from_dtype
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Ranks, Reals, Shorts


class SegmentArrays(NamedTuple):
    """All read-only, so that kernels have one signature."""

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
    chunk_leaves: Shorts
    chunk_axes: Shorts
    chunk_nodes: Integers
    axis_low: Integers
    axis_high: Integers
    axis_edges: Integers
    axis_cells: Integers
    axis_origin: Reals
    axis_scale: Reals
    axis_real: Shorts
    axis_steps: Shorts
    edges: Integers
    cells: Ranks
    nodes: Ranks
    slot_registration: Shorts
    slot_needs: Shorts
    needs: Shorts


STORED_NAMES = {"chunk_leaves": "chunk_blocks", "axis_edges": "axis_cuts", "edges": "cuts"}
"""Arrays that have another name in files than in the code."""

_SCALARS: dict[Any, type[np.generic]] = {
    Bytes: np.uint8,
    Integers: np.int64,
    Ranks: np.uint16,
    Reals: np.float64,
    Shorts: np.int32,
}
ENTRY_TYPES = {name: _SCALARS[annotation] for name, annotation in SegmentArrays.__annotations__.items()}
ADDRESSES_WIDTH = 2 * len(ENTRY_TYPES)


def addresses_of(arrays: SegmentArrays) -> Integers:
    """The array that `arrays_at` takes. Raises TypeError where an array is not what kernels expect."""
    each: tuple[NDArray[Any], ...] = arrays
    for (name, scalar), array in zip(ENTRY_TYPES.items(), each, strict=True):
        if array.dtype != scalar or not array.flags.c_contiguous or not array.flags.aligned:
            raise TypeError(f"array {name} is not aligned {np.dtype(scalar)} without gaps")
    return np.array([number for array in each for number in address_and_length(array)], np.int64)


def address_and_length(array: NDArray[Any]) -> tuple[int, int]:
    """An array as kernels get it that read by address."""
    return array.ctypes.data, len(array)


def _arrays_at(context: Any, addresses: Any) -> Any:
    # Read-only, as those of a segment are: to Numba, anything else is another signature.
    kinds = [
        types.Array(from_dtype(np.dtype(scalar)), 1, "C", readonly=True) for scalar in ENTRY_TYPES.values()
    ]
    whole = types.NamedTuple(kinds, SegmentArrays)  # type: ignore[attr-defined]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        arrays = []
        for place, kind in enumerate(kinds):
            address, length = (
                builder.load(builder.gep(data, [ir.Constant(ir.IntType(64), 2 * place + each)]))
                for each in (0, 1)
            )
            array = context.make_array(kind)(context, builder)
            size = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
            populate_array(
                array,
                data=builder.inttoptr(address, array.data.type),
                shape=cgutils.pack_array(builder, [length]),
                strides=cgutils.pack_array(builder, [size]),
                itemsize=size,
                meminfo=None,
            )
            arrays.append(array._getvalue())
        return context.make_tuple(builder, whole, arrays)

    return whole(addresses), generate


if TYPE_CHECKING:

    def arrays_at(addresses: Integers) -> SegmentArrays:
        """Return the arrays whose addresses `addresses_of` has listed. Only for compiled functions."""

else:
    arrays_at = intrinsic(_arrays_at)
