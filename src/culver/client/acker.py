"""Acknowledges in the background: always the newest offset that is done, one request at a time.

An acknowledgement covers all before it, so while one is under way only the newest wish is remembered; a
reader of small events is not slowed to one round trip each.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from culver.errors import ConnectionFailed, CulverError

logger = logging.getLogger("culver.client")
_PAUSE_SECONDS = 0.1


class Acker:
    """Belongs to one feed, which calls `flush` before it detaches. `acknowledge` notes its success; `wait_attached`
    returns when, after a failure, another try makes sense."""

    def __init__(
        self,
        label: str,
        acknowledge: Callable[[int], Awaitable[None]],
        wait_attached: Callable[[], Awaitable[object]],
    ) -> None:
        self._label = label
        self._acknowledge = acknowledge
        self._wait_attached = wait_attached
        self._wanted = -1
        self._done = -1
        self._task: asyncio.Task[Any] | None = None
        self._waiting = False  # for the connection to come back

    def want(self, offset: int) -> None:
        """Everything up to `offset` is done with. Returns at once."""
        self._wanted = max(self._wanted, offset)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="culver-client-acker")

    def note(self, offset: int) -> None:
        """Everything up to `offset` was acknowledged, by whomever."""
        self._done = max(self._done, offset)

    async def flush(self, timeout_seconds: float) -> None:
        """Give what is not acknowledged yet a last chance. What does not get through is delivered again."""
        if self._task is None:
            return
        if self._waiting:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = asyncio.create_task(self._try())
        done, _ = await asyncio.wait([self._task], timeout=timeout_seconds)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._done < self._wanted:
            text = "%s: events up to %d are not acknowledged and will come again"
            logger.warning(text, self._label, self._wanted)

    async def _work(self) -> None:
        while not await self._try():
            self._waiting = True
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._wait_attached()
            self._waiting = False

    async def _try(self) -> bool:
        """Acknowledge until nothing is left to; False where the connection failed."""
        while self._done < self._wanted:
            offset = self._wanted
            try:
                await self._acknowledge(offset)
            except ConnectionFailed:
                return False
            except CulverError as exc:
                logger.warning("%s: acknowledging %d: %s", self._label, offset, exc)
                return True
        return True
