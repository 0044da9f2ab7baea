"""Compiles all kernels of a site at once: at its first start, or when `culver setup` asks for it.

That takes a minute or two, and Numba keeps the result on disk (see `culver.jit`). A mark beside the compiled kernels
says that they are complete, so that later starts load only those that they need.
"""

import contextlib
import hashlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import event

import culver
from culver import delivery, log
from culver.jit import cache_directory, compiled
from culver.pipeline import warm_up_operators

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]

# How many kernels there are, roughly, and after how many of them people hear about it.
_ABOUT_ALL = 90
_STEP = 10


def prepare_kernels(progress: Progress) -> Path | None:
    """Compile the kernels that were not compiled before on this machine by this user; quick where there are none.
    Returns where they are kept, None where no directory can keep them."""
    directory = cache_directory(_nothing)
    if directory is None:
        logger.warning(
            "no directory can keep compiled kernels, so that every start compiles them: set NUMBA_CACHE_DIR to a "
            "directory that only this user can write to"
        )
        _load_all(progress)
        return None
    mark, state = directory / f"culver-{sys.implementation.cache_tag}.complete", _state()
    if _content(mark) != state:
        _load_all(progress)
        with contextlib.suppress(OSError):  # the next start looks through the kernels once more
            mark.write_bytes(state)
    return directory


def _content(mark: Path) -> bytes:
    try:
        return mark.read_bytes()
    except OSError:
        return b""


def _load_all(progress: Progress) -> None:
    with event.install_listener("numba:compile", _Compilations(progress)):
        log.load_kernels()
        delivery.load_kernels()
        warm_up_operators()


def _state() -> bytes:
    """Changes with all that makes Numba compile anew, and with the kernels there are."""
    features = binding.get_host_cpu_features().flatten()
    digest = hashlib.sha256(f"{numba.__version__} {binding.get_host_cpu_name()} {features}\n".encode())
    for source in sorted(Path(culver.__file__).parent.rglob("*.py")):
        found = source.stat()
        digest.update(f"{source} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest().encode()


@compiled
def _nothing() -> None:
    """An empty kernel, which Numba keeps where it keeps the others."""


class _Compilations(event.Listener):
    """Counts our kernels as Numba compiles them. It reports none that it loads from its cache."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._count = 0

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("culver."):
            if self._count % _STEP == 0:
                self._progress(
                    f"compiling the kernels, once for this installation: {self._count} of about {_ABOUT_ALL}"
                )
            self._count += 1

    def on_end(self, event: Any) -> None:
        """Nothing to say."""
