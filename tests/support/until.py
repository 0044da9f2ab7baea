"""Waiting for what another task, thread or process brings about."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], timeout_seconds: float = 20.0) -> None:
    """Returns once the condition holds; fails when it does not in time."""
    pause_seconds = 0.002
    for _ in range(int(timeout_seconds / pause_seconds)):
        if condition():
            return
        await asyncio.sleep(pause_seconds)
    raise AssertionError(f"did not come about within {timeout_seconds:g} s")
