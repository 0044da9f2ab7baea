"""The arrays that kernels see, and how kernels are compiled.

Kernels are compiled on first use and kept in Numba's cache on disk (beside the package where that is
writable, in the user's cache directory otherwise). Numba replaces cache files as a whole, so processes that
start at once at worst compile the same kernel twice. Kernels release the GIL.
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


def fixed(array: NDArray[T]) -> NDArray[T]:
    """The same, read-only: to kernels, anything else is another signature."""
    view = array.view()
    view.flags.writeable = False
    return view


def compiled(function: F) -> F:
    """Numba's compiler as a decorator that keeps the function's type."""
    result: F = numba.njit(cache=True, nogil=True)(function)
    return result
