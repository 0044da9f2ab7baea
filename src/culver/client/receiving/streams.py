"""Streams, which `subscribe` and its like return."""

import asyncio
import logging
import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast

from culver.client.receiving.feed import Feed
from culver.client.receiving.group_feed import GroupFeed
from culver.client.receiving.item_supply import ItemSupply
from culver.client.receiving.received_messages import GroupGap, GroupMessage, Message
from culver.errors import ClientError
from culver.messages import FilterWarning, Gap

logger = logging.getLogger("culver.client")

AnyStreamItem = Message | GroupMessage | Gap | GroupGap
Item = TypeVar("Item", bound=AnyStreamItem)
Supply = TypeVar("Supply", bound=ItemSupply[Any])


class ItemStream(Generic[Item, Supply]):
    """Starts with the first `anext` (or `async with`, or `start`), and ends when the subscription is removed.

    Leaving an `async for` early leaves the subscription attached until the stream is closed, is garbage
    collected, or its client is closed. Iteration raises ConnectionFailed where the first connection fails,
    and RequestRefused where the site refuses the subscription. One task reads it at a time.
    """

    def __init__(
        self,
        feed: Supply,
        spawn: Callable[[ItemSupply[Any]], "asyncio.Task[None]"],
        *,
        automatic: bool,
        yield_gaps: bool,
        count_gap: Callable[[], None],
    ) -> None:
        self._feed = feed
        self._spawn = spawn
        self._automatic = automatic
        self._yield_gaps = yield_gaps
        self._count_gap = count_gap
        self._in_hand: Message | GroupMessage | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.gaps = 0
        """How many gaps were met so far, yielded or not."""

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
            if isinstance(item, Message | GroupMessage):
                self._in_hand = item
                return cast(Item, item)
            self.gaps += 1
            self._count_gap()
            if self._yield_gaps:
                return cast(Item, item)
            logger.warning(
                "%s: events from %d to %d may be missing (%s, %s)",
                self._feed.describe(item),
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


class Stream(ItemStream[Item, Feed]):
    """The events of one subscription."""

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


class GroupStream(ItemStream[Item, GroupFeed]):
    """The events of many durable subscriptions. It ends when a set, or all of a list, is removed."""

    @property
    def count(self) -> int | None:
        """How many subscriptions there were at the start; None before it."""
        return self._feed.count


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    """Finalizers run in any thread, also after the loop has gone."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)
