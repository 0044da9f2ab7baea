"""Runs the same work in several processes that start measuring at the same moment."""

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_PREPARE_LIMIT_SECONDS = 300.0

_barrier: threading.Barrier


def side_by_side(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """Return what `work(barrier, *arguments[i])` returns in a new process for each i. `work` prepares, waits at
    the barrier for the other processes, then does what is measured; it must be a function of a module. Raises
    what `work` raises."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments), timeout=_PREPARE_LIMIT_SECONDS)
    with ProcessPoolExecutor(len(arguments), context, _keep, (barrier,)) as pool:
        # One that waits at the barrier takes no second piece of work, so each process gets one.
        waiting = [pool.submit(_run, work, each) for each in arguments]
        return [each.result() for each in waiting]


def _keep(barrier: threading.Barrier) -> None:
    global _barrier
    _barrier = barrier


def _run(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return work(_barrier, *arguments)
    except BaseException:
        _barrier.abort()  # the others need not wait
        raise
