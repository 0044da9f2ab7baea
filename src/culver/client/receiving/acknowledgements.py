"""Acknowledgements on their way to the site."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from culver.errors import ConnectionFailed, CulverError

logger = logging.getLogger("culver.client")

_PAUSE_SECONDS = 0.1

Mark = TypeVar("Mark", int, tuple[int, ...])
"""How far a reader is; the greater one covers the smaller."""


class Acknowledger(Generic[Mark]):
    """Sends one acknowledgement at a time, always the newest.

    An acknowledgement covers all before it, so while one is under way only the newest wish is remembered, whoever
    has it: a reader of small events is not slowed to one round trip each, and callers that overlap share requests.
    While `connected` is not set, only what somebody waits for is sent, and what is left at `close`, which the owner
    calls.
    """

    def __init__(
        self,
        label: str,
        send: Callable[[Mark], Awaitable[None]],
        connected: asyncio.Event,
    ) -> None:
        self._label = label
        self._send: Callable[[Mark], Awaitable[None]] = send
        self._connected = connected
        self._wanted: Mark | None = None
        self._done: Mark | None = None
        self._asked: list[tuple[Mark, asyncio.Future[None]]] = []  # in order of the calls
        self._sending: asyncio.Task[None] | None = None
        self._retrying: asyncio.Task[None] | None = None

    def want(self, mark: Mark) -> None:
        """Everything up to `mark` is done with. Returns at once, and tries until it succeeds."""
        if self._wanted is None or mark > self._wanted:
            self._wanted = mark
        if self._connected.is_set():
            self._start()
        else:
            self._start_later(0)

    async def reach(self, mark: Mark) -> None:
        """Return once everything up to `mark` is acknowledged. Raises what the site or the connection says."""
        if self._done is not None and mark <= self._done:
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append((mark, answer))
        self._start()
        await answer

    async def close(self, timeout_seconds: float) -> None:
        """Give what is not acknowledged yet a last chance. What does not get through is delivered again."""
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait([self._retrying])
            self._retrying = None
            self._start()
        if self._sending is not None:
            done, _ = await asyncio.wait([self._sending], timeout=timeout_seconds)
            if not done:
                self._sending.cancel()
                await asyncio.wait([self._sending])
            if self._retrying is not None:
                self._retrying.cancel()
                await asyncio.wait([self._retrying])
        if self._is_left(self._wanted):
            logger.warning("%s: the newest acknowledgement failed; some events will come again", self._label)

    def _start(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._work(), name="culver-client-acknowledger")

    async def _work(self) -> None:
        """Send until nothing is left to."""
        try:
            while (mark := self._next()) is not None:
                try:
                    await self._send(mark)
                except ConnectionFailed as exc:
                    self._settle(mark, exc)
                    if not self._asked and self._is_left(self._wanted):
                        self._start_later(_PAUSE_SECONDS)
                        return
                except CulverError as exc:
                    if self._wanted is not None and mark >= self._wanted:
                        logger.warning("%s: acknowledging: %s", self._label, exc)
                        self._wanted = None
                    self._settle(mark, exc)
                else:
                    self._done = mark
                    self._settle(mark, None)
        finally:
            self._sending = None
            if self._asked and self._retrying is None:
                self._settle(max(mark for mark, _ in self._asked), ConnectionFailed("the stream is closed"))

    def _next(self) -> Mark | None:
        self._asked = [(mark, answer) for mark, answer in self._asked if not answer.done()]
        marks = [mark for mark, _ in self._asked]
        if self._wanted is not None and self._is_left(self._wanted):
            marks.append(self._wanted)
        return max(marks, default=None)

    def _is_left(self, mark: Mark | None) -> bool:
        return mark is not None and (self._done is None or mark > self._done)

    def _settle(self, mark: Mark, error: CulverError | None) -> None:
        """Answer those whom an acknowledgement of `mark` covers, each failure with an error of its own."""
        waiting, self._asked = self._asked, []
        for asked, answer in waiting:
            if asked > mark:
                self._asked.append((asked, answer))
            elif answer.done():
                continue
            elif error is None:
                answer.set_result(None)
            else:
                copy = type(error)(error.message, field=error.field, **error.details)
                copy.__cause__ = error.__cause__
                answer.set_exception(copy)

    def _start_later(self, pause_seconds: float) -> None:
        if self._retrying is not None:
            return

        async def retry() -> None:
            await asyncio.sleep(pause_seconds)
            await self._connected.wait()
            self._retrying = None
            self._start()

        self._retrying = asyncio.create_task(retry(), name="culver-client-acknowledger")
