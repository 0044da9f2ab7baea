"""Memory by its address: kernels read Arrow columns and the arrays of a segment without being handed each one.

The caller passes an address as an integer, and keeps the memory alive until the kernel has returned. These functions
can only be called in compiled functions.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import types
from numba.extending import intrinsic

from culver.jit import Bytes, Integers, Shorts, compiled


def _pointer(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


def _reader(kind: Any) -> Any:
    def read(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(kind.bitwidth)
            loaded = builder.load(builder.inttoptr(arguments[0], word.as_pointer()))
            loaded.align = 1  # Arrow does not align what it has read from a file
            return loaded

        return kind(types.int64), generate

    return read


if TYPE_CHECKING:

    def long_at(address: int) -> int:
        """The int64 at an address, aligned or not."""

    def short_at(address: int) -> int:
        """The int32 there."""

    def byte_at(address: int) -> int:
        """The uint8 there."""

    def pointer(address: int) -> Any: ...

else:
    pointer = intrinsic(_pointer)
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
    """The bit at a place, counted from an address on, the lowest of a byte first."""
    return (byte_at(address + (place >> 3)) >> (place & 7)) & 1 != 0
