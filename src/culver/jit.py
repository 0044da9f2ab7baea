"""The arrays that kernels see, and how kernels are compiled.

Numba compiles a kernel on first use and keeps it in its cache on disk, beside the package where that is writable and
in the user's cache directory otherwise. It replaces cache files as a whole, so processes that start at once at worst
compile the same kernel twice. Kernels release the GIL.
"""

from collections.abc import Callable
from typing import Any, TypeVar

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


def read_only(array: NDArray[T]) -> NDArray[T]:
    """The array, or a view of it, that cannot be written through. Numba compiles a kernel anew for writeable arrays,
    and those of a mapped file are read-only."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def compiled(function: F) -> F:
    """Compile a kernel. A decorator that keeps the function's type."""
    result: F = numba.njit(cache=True, nogil=True)(function)
    return result
