"""The role `channels` of a process with a gateway: a client of the channel service."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from culver.channels import SLOW_READER, Channels, LostMessages, PubSub, QueueLimits
from culver.config import Settings
from culver.delivery import Hub
from culver.errors import ClientError, Unavailable
from culver.roles import ChannelLoss, ChannelsStatus
from culver.site.channel_deliveries import ChannelDeliveries
from culver.site.site_channels import channel_tls

# How long a subscription may take, connections to its servers included.
_SUBSCRIBE_SECONDS = 10.0
_MOST_WAITING_BYTES = 16 * 1024 * 1024


class ServiceChannels:
    """Implements the role `channels` with one client for all subscribers and deliveries of this process."""

    def __init__(self, settings: Settings, hub: Hub, identity: bytes) -> None:
        self._settings = settings
        self._hub = hub
        given = settings.channels
        self._client = Channels(
            given.url,
            username=given.username or None,
            password=given.password or None,
            ssl=channel_tls(given),
        )
        self._deliveries = ChannelDeliveries(hub, self._client, identity)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Publish what subscriptions deliver to channels. Nothing waits for the service."""
        try:
            async with self._deliveries.running():
                yield
        finally:
            await self._client.aclose()

    async def publish(self, channel: str, data: bytes) -> int:
        with _service_errors():
            return await self._client.publish(channel, data)

    async def subscribe(self, channel: str) -> "PubSubSession":
        limits = QueueLimits(self._settings.delivery.live_buffer, _MOST_WAITING_BYTES)
        pubsub = self._client.pubsub(limits=limits)
        try:
            with _service_errors():
                async with asyncio.timeout(_SUBSCRIBE_SECONDS):
                    await pubsub.subscribe(channel)
                    # The first message says that the subscription is in effect.
                    await pubsub.take_many(None, 1)
        except TimeoutError:
            await pubsub.aclose()
            raise Unavailable(
                f"no server of the channel service at {self._client.url} confirms the subscription"
            ) from None
        except BaseException:
            await pubsub.aclose()
            raise
        return PubSubSession(pubsub)

    def status(self) -> ChannelsStatus:
        deliveries = self._deliveries
        return ChannelsStatus(
            url=self._settings.channels.url,
            state=next(iter(deliveries.failures.values()), "running"),
            subscriptions=len(self._hub.channel_targets.current),
            failing=len(deliveries.failures),
            published=deliveries.published,
        )


class PubSubSession:
    """Implements ChannelSession with a `PubSub` of one channel."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    async def receive(self, limit: int, wait_seconds: float | None) -> list[bytes | ChannelLoss]:
        loop = asyncio.get_running_loop()
        deadline = None if wait_seconds is None else loop.time() + wait_seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - loop.time())
            with _service_errors():
                responses = await self._pubsub.take_many(left, limit)
            items = [_item(each) for each in responses if each[0] in (b"message", b"gap")]
            # Other messages say that a subscription is served again after a lost connection.
            if items or (deadline is not None and loop.time() >= deadline):
                return items

    async def close(self) -> None:
        await self._pubsub.aclose()


def _item(response: list[Any]) -> bytes | ChannelLoss:
    data: bytes | LostMessages = response[-1]
    if isinstance(data, bytes):
        return data
    return ChannelLoss(data.publisher, data.first, data.last, is_slow=data.reason == SLOW_READER)


@contextmanager
def _service_errors() -> Iterator[None]:
    """To a client of the gateway, a service that cannot be reached is a site that is not available."""
    try:
        yield
    except ClientError as exc:
        raise Unavailable(exc.message) from exc
