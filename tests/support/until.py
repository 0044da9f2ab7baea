"""Waiting for what another task, thread or process brings about. Nothing in the tests waits for a fixed time."""

import asyncio
import inspect
import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.002
_QUIET_TURNS = 100


async def until(condition: Callable[[], object], timeout_seconds: float = 20.0) -> None:
    """Returns once the condition, which may be a coroutine function, holds; fails when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < deadline, f"did not come about within {timeout_seconds:g} s"
        await asyncio.sleep(_PAUSE_SECONDS)


async def settled(value: Callable[[], object] = lambda: None) -> None:
    """Returns once the value has stayed the same for many turns of the event loop: what is ready to happen on this
    loop, reading from its sockets included, has happened by then."""
    last, quiet = value(), 0
    while quiet < _QUIET_TURNS:
        await asyncio.sleep(0)
        quiet = quiet + 1 if value() == last else 0
        last = value()
