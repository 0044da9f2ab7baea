"""Streams, which `subscribe` returns, and what feeds one: a task that attaches its subscription again and again.

attaching ──> attached ──┬─ connection lost ──> wait (backoff) ──> attaching
    ^                    ├─ buffer full (durable only): detach, wait until it is low ──┐
    └────────────────────┼────────────────────────────────────────────────────────────┘
                         └─ subscription removed ──> finished
"""

import asyncio
import logging
import random
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Self, TypeVar, cast

from culver.client.link import Link, backoff, subscription_path
from culver.client.message_buffer import Buffer, Message
from culver.client.subscription_source import Source
from culver.client.websocket_connection import Connection
from culver.errors import ClientError, ConnectionFailed, CulverError, RequestRefused
from culver.messages import Ack, Acknowledgement, DeliveredEvent, Detach, FilterWarning, Gap

logger = logging.getLogger("culver.client")
Item = TypeVar("Item", bound=Message | Gap)

_FLUSH_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_MOST_HOPS = 3  # from gateway to gateway


class Feed:
    """`run` is the task; the rest is called by the stream that reads it, in the same event loop.

    The first attachment must succeed, or the feed fails with its error. After that a lost connection is
    made again for as long as the feed lives (unless `reconnect` is off), and only a refusal ends it.
    """

    def __init__(
        self, link: Link, source: Source, *, reconnect: bool, buffer_count: int, buffer_bytes: int
    ) -> None:
        self.source = source
        self._link = link
        self._reconnect = reconnect
        self._buffer = Buffer(
            self._message, durable=source.durable, max_count=buffer_count, max_bytes=buffer_bytes
        )
        self._delays = backoff(random.Random())
        self._changed = asyncio.Event()  # something for the reader: an item, or the end
        self._interrupted = asyncio.Event()  # something for `run`: lost, full, removed
        self._drained = asyncio.Event()
        self._attached = asyncio.Event()
        self._connection: Connection | None = None  # the one it is attached to, while it is
        self._gateway: str | None = None  # the one to try first, where it is not the client's own
        self._acker = _Acker(str(source), self.acknowledge, self._attached.wait)
        self._loss: ClientError | None = None
        self._removed = False
        self._finished = False
        self._error: CulverError | None = None

    # --- for the stream that reads ---

    async def next(self) -> Message | Gap | None:
        """The next item; None at the end. Raises, after all items, what ended the feed. Cancelling loses nothing."""
        while True:
            self._changed.clear()
            item = self._buffer.take()
            if item is not None:
                if self._buffer.low:
                    self._drained.set()
                return item
            if self._error is not None:
                raise self._error
            if self._finished:
                return None
            await self._changed.wait()

    async def ready(self) -> None:
        """Wait for the first attachment. Raises what prevents it."""
        while not self._finished and self.source.since is None:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None and self.source.since is None:
            raise self._error

    async def acknowledge(self, offset: int) -> None:
        """Over the WebSocket where the subscription is attached, by HTTP otherwise: both are idempotent."""
        if not self.source.durable:
            return
        delivery_id = self.source.delivery_id(offset)
        if self._connection is not None:
            try:
                await self._connection.request(Ack(delivery_id=delivery_id))
                self._acker.note(offset)
                return
            except ConnectionFailed as exc:
                logger.debug("%s: acknowledging %d: %s", self.source, offset, exc)
        path = subscription_path(self.source.subscription, "/ack")
        await self._link.http("POST", path, body=Acknowledgement(delivery_id=delivery_id))
        self._acker.note(offset)

    def done_with(self, offset: int) -> None:
        """Everything up to `offset` is done with; it is acknowledged in the background."""
        if self.source.durable:
            self._acker.want(offset)

    # --- the task ---

    async def run(self) -> None:
        try:
            await self._supply()
        except CulverError as exc:
            self._error = exc
        finally:
            self._finished = True
            self._changed.set()
            await self._acker.flush(_FLUSH_SECONDS)
            await self._detach()

    async def _supply(self) -> None:
        while not self._removed:
            try:
                await self._attach()
            except ClientError as exc:
                if not self._worth_another_try(exc):
                    raise
                delay = next(self._delays)
                logger.warning("%s: %s; trying again in %.1f s", self.source, exc, delay)
                await asyncio.sleep(delay)
                continue
            self._delays = backoff(random.Random())
            await self._interrupted.wait()
            if self._loss is not None:
                if not self._worth_another_try(self._loss):
                    raise self._loss
                logger.warning("%s: %s; connecting again", self.source, self._loss)
            elif not self._removed:
                await self._detach()
                await self._drained.wait()

    async def _attach(self) -> None:
        self._interrupted.clear()
        self._buffer.resume()
        self._loss = None
        await self.source.prepare(self._link)
        resumed = self.source.since is not None
        connection, gap = await self._attach_where_it_is()
        if gap is not None:
            self.gap(gap)
        if resumed:
            logger.info("%s is attached again", self.source)
        else:
            for warning in self.source.warnings:
                logger.warning("%s: %s", self.source, warning.detail)
        if self._loss is None and not self._removed:
            self._connection = connection
            self._attached.set()
        self._changed.set()

    async def _attach_where_it_is(self) -> tuple[Connection, Gap | None]:
        """At the gateway that has the subscription; others say which one that is."""
        for _ in range(_MOST_HOPS):
            gateway, self._gateway = self._gateway, None
            connection = await self._link.connection(gateway)
            if connection.receives(self.source.subscription):
                raise ClientError(f"{self.source} is already being received by this client")
            try:
                gap = await self.source.attach(connection, self, self._buffer)
            except RequestRefused as exc:
                if exc.details.get("code") != "elsewhere":
                    raise
                self._gateway = str(exc.details["url"])
                continue
            self._gateway = gateway
            return connection, gap
        raise ConnectionFailed(f"the gateways do not agree who has {self.source}")

    async def _detach(self) -> None:
        """End what the site holds for this feed on the connection; a lost connection has ended it already."""
        connection, self._connection = self._connection, None
        self._attached.clear()
        if connection is None:
            return
        connection.release(self.source.subscription)
        try:
            await connection.request(Detach(subscription=self.source.subscription))
        except ClientError as exc:
            logger.debug("%s: detaching: %s", self.source, exc)

    def _worth_another_try(self, error: ClientError) -> bool:
        if self.source.since is None or not self._reconnect:
            return False
        if isinstance(error, RequestRefused):
            return bool(error.details.get("retryable"))
        return isinstance(error, ConnectionFailed)

    # --- for the connection (Receiver) ---

    def deliver(self, deliveries: Sequence[DeliveredEvent], size: int) -> None:
        if not self._buffer.offer(self.source.subscription, deliveries, size):
            self._drained.clear()
            self._interrupted.set()
        self._changed.set()

    def gap(self, gap: Gap) -> None:
        self._buffer.announce(gap)
        self._changed.set()

    def ended(self, error: ClientError | None) -> None:
        self._removed = error is None
        self._loss = error
        self._connection = None
        self._attached.clear()
        self._interrupted.set()

    def _message(self, delivery: DeliveredEvent) -> Message:
        return Message(delivery.event, delivery.offset, self.source.subscription, self.acknowledge)


class _Acker:
    """Acknowledges in the background: always the newest offset that is done, one request at a time.

    An acknowledgement covers all before it, so while one is under way only the newest wish is remembered; a reader
    of small events is not slowed to one round trip each. The feed calls `flush` before it detaches. `acknowledge`
    notes its success; `wait_attached` returns when, after a failure, another try makes sense.
    """

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


class Stream(Generic[Item]):
    """Starts with the first `anext` (or `async with`, or `start`), and ends when the subscription is removed.

    Leaving an `async for` early leaves the subscription attached until the stream is closed, is garbage
    collected, or its client is closed. Iteration raises ConnectionFailed where the first connection fails,
    and RequestRefused where the site refuses the subscription. One task reads it at a time.
    """

    def __init__(
        self,
        feed: Feed,
        spawn: Callable[[Feed], "asyncio.Task[None]"],
        *,
        automatic: bool,
        yield_gaps: bool,
        count_gap: Callable[[Gap], None],
    ) -> None:
        self._feed = feed
        self._spawn = spawn
        self._automatic = automatic
        self._yield_gaps = yield_gaps
        self._count_gap = count_gap
        self._in_hand: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.gaps = 0
        """How many gaps were met so far, yielded or not."""

    @property
    def subscription(self) -> str:
        """The subscription's id on the site; empty before the start. A live one's changes with each connection."""
        return self._feed.source.subscription

    @property
    def since(self) -> int | None:
        """The log position from which every matching event is delivered; None before the start."""
        return self._feed.source.since

    @property
    def warnings(self) -> tuple[FilterWarning, ...]:
        """The site's doubts about the filter; they are logged too."""
        return tuple(self._feed.source.warnings)

    async def start(self) -> None:
        """Attach now and wait for it, instead of with the first item."""
        self._launch()
        await self._feed.ready()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        self._launch()
        if self._automatic and self._in_hand is not None:
            self._feed.done_with(self._in_hand)
        self._in_hand = None
        while True:
            item = await self._feed.next()
            if item is None:
                raise StopAsyncIteration
            if isinstance(item, Message):
                self._in_hand = item.offset
                return cast(Item, item)
            self.gaps += 1
            self._count_gap(item)
            if self._yield_gaps:
                return cast(Item, item)
            logger.warning(
                "%s: events from %d to %d may be missing (%s, %s)",
                self._feed.source,
                item.start,
                item.end - 1,
                "number unknown" if item.dropped is None else f"{item.dropped} dropped",
                item.reason,
            )

    async def close(self) -> None:
        """Stop receiving. A live subscription ends; a durable one gets what was not acknowledged again."""
        if self._closed:
            return
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _launch(self) -> None:
        if self._closed:
            raise ClientError("the stream is closed")
        if self._task is None:
            self._task = self._spawn(self._feed)
            # The task keeps the feed, not the stream: a stream that nobody can read any more is ended.
            finalizer = weakref.finalize(self, _cancel, asyncio.get_running_loop(), self._task)
            finalizer.atexit = False


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    """Finalizers run in any thread, also after the loop has gone."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)
