"""Sends a client's publications: one task puts messages together and sends them, however many callers wait.

Every publication has a number under the client's own publisher id. So one whose outcome is unknown, because the
connection was lost or the site is stopping, is sent again until the site answers: it stores it once.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from culver.client.link import Link, backoff
from culver.client.publication_queue import Publication, PublicationQueue, encode_publications
from culver.errors import ClientError, ConnectionFailed, CulverError, RequestRefused
from culver.messages import Receipt, ServerMessage

Answer = TypeVar("Answer")

_LONGEST_PAUSE_SECONDS = 1.0

_logger = logging.getLogger("culver.client")


class Publisher:
    """For one event loop. Its owner closes it before the link. With `retry_seconds` 0, publications have no numbers,
    and none is sent again."""

    def __init__(self, link: Link, max_in_flight: int, retry_seconds: float) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._queue = PublicationQueue(max_in_flight)
        self._retry_seconds = retry_seconds
        self.publisher = secrets.token_hex(12) if retry_seconds > 0 else None
        """The id of this client among the publishers of the site."""
        self._pauses = self._new_pauses()
        self._is_failing = False
        self._has_work = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def publish(self, events: Sequence[bytes]) -> "asyncio.Future[Receipt]":
        """Send events, all or none, after what was published before. The future fails with RequestRefused, and with
        ConnectionFailed where the site cannot be reached for too long."""
        answer: asyncio.Future[Receipt] = self._loop.create_future()
        self._add(Publication(events, answer))
        return answer

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Inside, the caller's own request counts as a publication in flight."""
        granted: asyncio.Future[None] = self._loop.create_future()
        self._add(Publication((), granted))
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._queue.release()
                self._has_work.set()

    def number(self, count: int) -> int:
        """The first of so many numbers of this publisher, for a request of the caller's own."""
        return self._queue.number(count)

    async def insist(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a numbered request, again while its outcome is unknown and time is left."""
        began = self._loop.time()
        for pause in self._new_pauses():
            try:
                answer = await request()
            except ClientError as exc:
                if not self._may_repeat(exc, began):
                    raise
                self._report(exc)
            else:
                self._recover()
                return answer
            await asyncio.sleep(pause)
        raise AssertionError("the pauses never end")

    async def close(self) -> None:
        """Fail what is not sent yet. What is in flight ends with its connection."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
        self._retry_seconds = 0
        self._queue.fail_waiting(ClientError("the client is closed"))

    def _add(self, publication: Publication) -> None:
        self._queue.add(publication)
        if self._sender is None:
            self._sender = self._loop.create_task(self._send(), name="culver-client-publisher")
        # The task runs when the callers that are awake have had their turn, so that their events share a message.
        self._has_work.set()

    async def _send(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while (message := self._queue.take()) is not None:
                await self._send_message(message)
                if self._is_failing:
                    await asyncio.sleep(next(self._pauses))

    async def _send_message(self, message: list[Publication]) -> None:
        connection = None
        now = self._loop.time()
        for each in message:
            each.sent_at = each.sent_at or now
        try:
            connection = await self._link.connection()
            answer = await connection.publish(partial(encode_publications, message, self.publisher))
        except ClientError as exc:
            if self._put_back(message, exc):
                return
            self._queue.settle(message, exc)
            if connection is None or not connection.lost:
                # There is no connection, or it takes nothing any more: the others need not try it one by one.
                self._queue.fail_waiting(exc)
        except asyncio.CancelledError:
            self._queue.settle(message, ClientError("the client is closed"))
            raise
        else:
            answer.add_done_callback(partial(self._settle, message))

    def _settle(self, message: list[Publication], answer: "asyncio.Future[ServerMessage]") -> None:
        error = answer.exception()
        if error is None:
            self._recover()
            self._queue.settle(message, answer.result())
        elif isinstance(error, CulverError):
            if not self._put_back(message, error):
                self._queue.settle(message, unknown_outcome(error) or error)
        else:
            self._queue.settle(message, ConnectionFailed(f"the publication failed: {error}"))
        self._has_work.set()

    def _put_back(self, message: list[Publication], error: CulverError) -> bool:
        """Have a message sent again, where that can help and time is left for all of it."""
        began = min([each.sent_at or 0.0 for each in message])
        if not self._may_repeat(error, began):
            return False
        self._queue.put_back(message)
        self._report(error)
        self._has_work.set()
        return True

    def _may_repeat(self, error: CulverError, began: float) -> bool:
        if self._loop.time() >= began + self._retry_seconds or not self._link.was_reached:
            return False
        if isinstance(error, RequestRefused):
            return error.details.get("code") == "unavailable"
        return isinstance(error, ConnectionFailed) and self._link.may_come_back(error)

    def _report(self, error: CulverError) -> None:
        if not self._is_failing:
            _logger.warning("%s; publications are sent again for %g s", error.message, self._retry_seconds)
        self._is_failing = True

    def _recover(self) -> None:
        if self._is_failing:
            self._is_failing, self._pauses = False, self._new_pauses()

    def _new_pauses(self) -> Iterator[float]:
        return backoff(random.Random(), longest_seconds=_LONGEST_PAUSE_SECONDS)


def unknown_outcome(error: CulverError) -> ConnectionFailed | None:
    """The error of a publication under the client's own number where the site has forgotten that number. None for any
    other error."""
    if error.details.get("code") != "conflict" or "floor" not in error.details:
        return None
    unknown = ConnectionFailed(
        "it is unknown whether the site stored the events: before the publication came again, the site took so much "
        "that it has forgotten their numbers (publishing.window_ranges)"
    )
    unknown.__cause__ = error
    return unknown
