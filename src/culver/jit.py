"""The arrays that kernels see, and how kernels are compiled.

Numba compiles a kernel on first use and keeps it in its cache on disk: in NUMBA_CACHE_DIR where that is set, else
beside the package where that is writable, else in the user's cache directory. It replaces cache files as a whole, so
processes that start at once at worst compile the same kernel twice. Kernels release the GIL.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
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
    dispatcher: Any
    try:
        dispatcher = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # none of these directories is writable: `culver.kernel_setup` says so
        dispatcher = numba.njit(nogil=True)(function)
    if directory := cache_directory(dispatcher):
        _drop_outdated(function, directory)
    result: F = dispatcher
    return result


def cache_directory(kernel: Any) -> Path | None:
    """Where the compiled kernel is kept; None where no directory is writable."""
    path = kernel.stats.cache_path
    return None if path is None else Path(path)


def _drop_outdated(function: Callable[..., Any], directory: Path) -> None:
    """Delete what the cache holds from an older source file. Numba ignores it too, but only after it has read the
    classes of the arguments, which fails if a class has been renamed or moved since."""
    source = Path(function.__code__.co_filename)
    with contextlib.suppress(OSError):
        changed = source.stat().st_mtime
        for index in directory.glob(f"{source.stem}.{function.__qualname__}-*.nbi"):
            if index.stat().st_mtime < changed:
                index.unlink()
