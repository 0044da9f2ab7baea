"""Sends a client's publications: one task puts messages together and sends them, however many callers wait."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from culver.client.link import Link
from culver.client.publication_queue import Publication, PublicationQueue, encode_publications
from culver.errors import ClientError, ConnectionFailed, CulverError
from culver.messages import Receipt, ServerMessage


class Publisher:
    """For one event loop. Its owner closes it before the link."""

    def __init__(self, link: Link, max_in_flight: int) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._queue = PublicationQueue(max_in_flight)
        self._has_work = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def publish(self, events: Sequence[bytes]) -> "asyncio.Future[Receipt]":
        """Send events, all or none, after what was published before. The future fails with RequestRefused, and with
        ConnectionFailed where the connection was lost before the answer."""
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

    async def close(self) -> None:
        """Fail what is not sent yet. What is in flight ends with its connection."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
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

    async def _send_message(self, message: list[Publication]) -> None:
        connection = None
        try:
            connection = await self._link.connection()
            answer = await connection.publish(partial(encode_publications, message))
        except ClientError as exc:
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
            self._queue.settle(message, answer.result())
        elif isinstance(error, CulverError):
            self._queue.settle(message, error)
        else:
            self._queue.settle(message, ConnectionFailed(f"the publication failed: {error}"))
        self._has_work.set()
