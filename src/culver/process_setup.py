"""What every process of a site that serves clients shares: how it runs, its clock, its log, and repeated work."""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

# A thread that computes may keep the GIL for 5 ms by default; the event loop must not wait that long.
_SWITCH_SECONDS = 0.00005
# The garbage collector stops the loop: for tens of milliseconds if it walks all objects of 40,000 subscriptions, and
# by default every few seconds. A site hardly ever drops cycles, so full collections are rare here, and young ones
# small, below half a millisecond.
_COLLECTION_THRESHOLDS = (3_000, 30, 50)
_PAUSE_SECONDS = 1.0
_STALL_SECONDS = 10.0
_STDERR = 2
_MOST_FILES = 65_536
_LEAST_RESERVE = 64


def clock_us() -> int:
    return time.time_ns() // 1000


def raise_file_limit() -> None:
    """Let the process open as many files as it may, within reason: every connection takes one, and so do the files of
    the log, the index and the databases."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # macOS grants less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def free_handles() -> int:
    """How many handles of the process are free for connections: those that are not open now, without a reserve for
    files. May be negative."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = _MOST_FILES
    return limit - len(os.listdir("/dev/fd")) - max(_LEAST_RESERVE, limit // 4)


def run_process(main: Coroutine[Any, Any, int], stall_seconds: float = _STALL_SECONDS) -> int:
    """Run the main coroutine of a process to its end; returns the exit code. Where the event loop stands still for
    longer than `stall_seconds`, which must be more than one, the stacks of all threads go to stderr."""
    import uvloop

    raise_file_limit()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    return uvloop.run(_watched(main, stall_seconds))


async def _watched(main: Coroutine[Any, Any, int], stall_seconds: float) -> int:
    """Restarts faulthandler's timer every second. It needs no GIL, so it tells whatever the loop hangs in."""

    async def restart() -> None:
        faulthandler.dump_traceback_later(stall_seconds, file=_STDERR)

    try:
        async with repeated(restart):
            return await main
    finally:
        faulthandler.cancel_dump_traceback_later()


def freeze_objects() -> None:
    """Exempt everything that start-up has made from garbage collection; full collections would walk it in vain."""
    gc.collect()
    gc.freeze()


@contextlib.asynccontextmanager
async def repeated(
    work: Callable[[], Awaitable[None]], first_after_seconds: float = _PAUSE_SECONDS
) -> AsyncIterator[None]:
    """Do `work` about once a second beside the body. A failure is logged, and the work is tried again."""

    async def repeat() -> None:
        await asyncio.sleep(first_after_seconds)
        while True:
            try:
                await work()
            except Exception:
                logger.exception("housekeeping failed and is tried again")
            await asyncio.sleep(_PAUSE_SECONDS)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
