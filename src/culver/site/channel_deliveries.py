"""The subscriber of every subscription that delivers to a channel: it reads the mailbox, publishes and acknowledges.

    mailbox --receive--> publish each delivery under its own id --all answered--> acknowledge the last

A message's id is (publisher, sequence): the publisher stands for this site and the subscription, and the sequence is
the delivery's offset + 1. A delivery that is published again, because the site was killed before it acknowledged or
because no answer came, has the same id, and the subscribers' clients drop it. Each message also names the one before,
so clients notice what is lost between two.
"""

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from culver.channels import Channels
from culver.delivery import Delivery, DeliveryGap, Hub
from culver.errors import ConnectionFailed, CulverError, NotFound, Unavailable

logger = logging.getLogger(__name__)

# Positions never go back in one data directory, which the publisher's number stands for, so one epoch is enough.
_EPOCH = 1
_BATCH = 128
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 30.0
# A client forgets a publisher's tail after ten minutes. A message after such a silence must not name the one before:
# a subscriber that joined meanwhile would take that for lost.
_LINK_SECONDS = 300.0


@dataclass(slots=True)
class _Chain:
    """The messages of one subscription on its channel: `previous` is the sequence of the last one acknowledged, and
    `gap_end` that of the last event that is missing, where a gap comes next. `is_reached` says that the service has
    answered since the last failure."""

    channel: str
    publisher: int
    previous: int = 0
    gap_end: int = 0
    published_at: float = 0.0
    pause_seconds: float = 0.0
    is_reached: bool = False


class ChannelDeliveries:
    """Runs one task for each subscription of a hub that names a channel. A service that does not answer never stops
    the site: the mailbox keeps what is owed, and the task tries again with growing pauses."""

    def __init__(self, hub: Hub, client: Channels, identity: bytes) -> None:
        self._hub = hub
        self._client = client
        self._identity = identity
        # The channel and the task of each subscription.
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Future[int] | None = None
        self.published = 0
        self.failures: dict[str, str] = {}
        """The reasons why deliveries of a subscription wait, by its id."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        targets = self._hub.channel_targets
        targets.on_change = self._follow
        for subscription in list(targets.current):
            self._follow(subscription)
        try:
            yield
        finally:
            targets.on_change = lambda subscription: None
            for subscription in list(self._running):
                self._stop(subscription)
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._opening is not None:
                self._opening.cancel()

    def _follow(self, subscription: str) -> None:
        registration = self._hub.channel_targets.current.get(subscription)
        channel = None if registration is None else registration.channel
        if channel is not None and subscription in self._running:
            before, task = self._running[subscription]
            if before == channel and not task.done():
                return  # the mailbox stays, whatever the filter is now
        self._stop(subscription)
        if channel is not None:
            chain = _Chain(channel, publisher_number(self._identity, subscription))
            task = asyncio.create_task(self._serve(subscription, chain))
            self._running[subscription] = channel, task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _stop(self, subscription: str) -> None:
        self.failures.pop(subscription, None)
        if subscription in self._running:
            self._running.pop(subscription)[1].cancel()

    async def _serve(self, subscription: str, chain: _Chain) -> None:
        while True:
            try:
                await self._deliver(subscription, chain)
            except (NotFound, Unavailable):
                return  # the subscription has ended, or the site is stopping
            except Exception as exc:
                if subscription not in self.failures:
                    unexpected = None if isinstance(exc, CulverError) else exc
                    logger.warning("deliveries of %s wait: %s", subscription, exc, exc_info=unexpected)
                self.failures[subscription] = str(exc)
            chain.is_reached = False
            pause = max(2 * chain.pause_seconds, _FIRST_PAUSE_SECONDS)
            chain.pause_seconds = min(pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(chain.pause_seconds * random.uniform(0.5, 1.0))

    async def _deliver(self, subscription: str, chain: _Chain) -> None:
        """Publish what the mailbox has and gets, for ever."""
        chain.gap_end = 0
        session = await self._hub.open_session(self._hub.channel_targets.current[subscription])
        try:
            while True:
                items = await session.receive(_BATCH, None)
                try:
                    if not chain.is_reached:
                        await self._reach_service()
                        chain.is_reached = True
                    last = await self._publish(items, chain)
                except CulverError as exc:
                    # Not to be mistaken for an error of the session.
                    raise ConnectionFailed(exc.message) from exc
                if last is None:
                    continue  # a gap is told with the message after it; until then the mailbox keeps it
                await session.acknowledge(last)
                chain.previous, chain.gap_end, chain.pause_seconds = last + 1, 0, 0.0
                self.failures.pop(subscription, None)
        finally:
            await session.close()

    async def _publish(self, items: list[Delivery | DeliveryGap], chain: _Chain) -> int | None:
        """Publish the deliveries and return the offset of the last one. Raises what the client raises."""
        now = asyncio.get_running_loop().time()
        previous = chain.previous if now < chain.published_at + _LINK_SECONDS else 0
        publications = []
        last = None
        for item in items:
            if isinstance(item, DeliveryGap):
                chain.gap_end = item.end
                continue
            last, sequence = item.offset, item.offset + 1
            publications.append(
                self._client.publish_chained(
                    chain.channel,
                    item.payload,
                    publisher=chain.publisher,
                    epoch=_EPOCH,
                    previous=max(previous, chain.gap_end),
                    sequence=sequence,
                )
            )
            previous = sequence
        # The calls begin in this order, and so do the messages.
        for answer in await asyncio.gather(*publications, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
        if last is not None:
            chain.published_at = now
            self.published += len(publications)
        return last

    async def _reach_service(self) -> None:
        """Have the client find the servers, once for all subscriptions that wait for that."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._client.publisher_id())
        await asyncio.shield(self._opening)


def publisher_number(identity: bytes, subscription: str) -> int:
    """The publisher of a subscription's messages: the same after a restart, and another in every other site."""
    digest = hashlib.blake2b(subscription.encode(), key=identity, digest_size=8)
    return int.from_bytes(digest.digest(), "big")
