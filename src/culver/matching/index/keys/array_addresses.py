"""Memory by its address: how kernels get at arrays without each being handed over.

What Numba does for an array that is passed to a kernel takes about 150 ns. A segment has 37, which is more than it
takes to match a few events against it. It is passed as one array of numbers instead:

    addresses   address, length   address, length   ...     in the order of `SegmentArrays`

Whoever passes an address keeps what is there alive until the kernel has returned.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from culver.jit import Bytes, Integers, Shorts, compiled
from culver.matching.index.layout.segment_arrays import SegmentArrays

_TYPES = {
    np.int64: types.int64,
    np.int32: types.int32,
    np.uint16: types.uint16,
    np.uint8: types.uint8,
    np.float64: types.float64,
}


def _scalar(annotation: Any) -> Any:
    """Of the entries of an array, from `NDArray[...]`."""
    return annotation.__args__[1].__args__[0]


_FIELDS = {name: _scalar(annotation) for name, annotation in SegmentArrays.__annotations__.items()}
WIDTH = 2 * len(_FIELDS)
"""Entries of what `addresses_of` gives."""


def addresses_of(arrays: SegmentArrays) -> Integers:
    """For `arrays_at`. Raises TypeError where an array is not as the kernels take it to be."""
    each: tuple[NDArray[Any], ...] = arrays
    for (name, scalar), array in zip(_FIELDS.items(), each, strict=True):
        if array.dtype != scalar or not array.flags.c_contiguous or not array.flags.aligned:
            raise TypeError(f"array {name} is not aligned {np.dtype(scalar)} without gaps")
    return np.array([number for array in each for number in place_of(array)], np.int64)


def place_of(array: NDArray[Any]) -> tuple[int, int]:
    """The address and the length."""
    return array.ctypes.data, len(array)


def _arrays_at(context: Any, addresses: Any) -> Any:
    # Read-only, as those of a segment are: to Numba, anything else is another signature.
    kinds = [types.Array(_TYPES[scalar], 1, "C", readonly=True) for scalar in _FIELDS.values()]
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


def _pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


def _reader(kind: Any) -> Any:
    def read(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(kind.bitwidth)
            loaded = builder.load(builder.inttoptr(arguments[0], word.as_pointer()))
            loaded.align = 1  # what Arrow has read from a file may lie anywhere
            return loaded

        return kind(types.int64), generate

    return read


if TYPE_CHECKING:

    def arrays_at(addresses: Integers) -> SegmentArrays:
        """The arrays whose addresses `addresses_of` has listed."""

    def long_at(address: int) -> int:
        """The int64 at an address, aligned or not."""

    def short_at(address: int) -> int:
        """The int32 there."""

    def byte_at(address: int) -> int:
        """The uint8 there."""

    def pointer(address: int) -> Any: ...

else:
    arrays_at, pointer = map(intrinsic, (_arrays_at, _pointer))
    long_at, short_at, byte_at = (
        intrinsic(_reader(kind)) for kind in (types.int64, types.int32, types.uint8)
    )


@compiled
def longs_at(address: int, length: int) -> Integers:
    found: Integers = carray(pointer(address), length, np.int64)
    return found


@compiled
def shorts_at(address: int, length: int) -> Shorts:
    found: Shorts = carray(pointer(address), length, np.int32)
    return found


@compiled
def bytes_at(address: int, length: int) -> Bytes:
    found: Bytes = carray(pointer(address), length, np.uint8)
    return found


@compiled
def bit_at(address: int, place: int) -> bool:
    """A bit of those from an address on, the lowest of a byte first."""
    return (byte_at(address + (place >> 3)) >> (place & 7)) & 1 != 0
