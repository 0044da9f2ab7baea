"""Waiting, waking and ending: what all sessions have in common."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from culver.errors import CulverError

Item = TypeVar("Item")


class WaitingSession(ABC, Generic[Item]):
    """Belongs to the event loop's thread. One `receive` at a time."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._ended: CulverError | None = None

    def wake(self) -> None:
        """Tell the session that there may be something to receive. Never blocks."""
        self._wake.set()

    def end(self, error: CulverError) -> None:
        """Let `receive` raise this error from now on."""
        self._ended = self._ended or error
        self._wake.set()

    async def receive(self, limit: int, wait_seconds: float | None) -> list[Item]:
        """Return the next items, at most `limit`, those of each subscription in order. Waits for the first one (None:
        for ever) and returns an empty list when the time is up. Raises the error of `end`."""
        loop = asyncio.get_running_loop()
        deadline = None if wait_seconds is None else loop.time() + wait_seconds
        while True:
            self._wake.clear()
            if self._ended is not None:
                raise type(self._ended)(self._ended.message)
            # The deadline only cuts waiting short. Deliveries that are there already are read to the end.
            items = await self._next(max(limit, 1))
            if items or (deadline is not None and loop.time() >= deadline):
                return items
            if deadline is None:
                await self._wake.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()

    @abstractmethod
    async def _next(self, limit: int) -> list[Item]:
        """The next items, at most that many. Returns an empty list at once where there are none."""
