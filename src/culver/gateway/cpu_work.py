"""Work that costs processor time, done beside the event loop where it is large."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

THREAD_BYTES = 32 * 1024
"""Input of at least this size is worth the trip to a thread: decoding it takes some milliseconds."""

P = ParamSpec("P")
T = TypeVar("T")


async def compute(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`function(*args)`, in a thread where `size` (bytes or characters of input) is large, so that other
    clients are not kept waiting."""
    if size < THREAD_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
