"""Channels in memory, for the fake site."""

import asyncio
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from culver.channels import check_channel_name
from culver.roles import ChannelLoss, ChannelsStatus, no_channel_service

if TYPE_CHECKING:
    from support.fake_site import FakeSite


class FakeChannels:
    """Implements the role `channels` for a site whose settings name a channel service. `limit` bounds what waits for
    a reader."""

    def __init__(self, site: "FakeSite", limit: int = 100) -> None:
        self._site = site
        self.limit = limit
        self.readers: dict[str, set[FakeChannelReader]] = defaultdict(set)

    async def publish(self, channel: str, data: bytes) -> int:
        self._check(channel, "channels.publish")
        for reader in self.readers[channel]:
            reader.put(data)
        return len(self.readers[channel])

    async def subscribe(self, channel: str) -> "FakeChannelReader":
        self._check(channel, "channels.subscribe")
        reader = FakeChannelReader(self, channel)
        self.readers[channel].add(reader)
        return reader

    def status(self) -> ChannelsStatus:
        url = self._site.settings.channels.url
        return ChannelsStatus(url, "running") if url else ChannelsStatus()

    def lose(self, channel: str, loss: ChannelLoss) -> None:
        """Have all readers of a channel hear of a loss."""
        for reader in self.readers[channel]:
            reader.put(loss)

    def check_reading(self) -> None:
        self._site.fail("channels.receive")

    def interrupt(self, channel: str, error: Exception) -> None:
        """Have the readers of a channel fail."""
        self._site.failures["channels.receive"] = error
        for reader in self.readers[channel]:
            reader.wake()

    def _check(self, channel: str, method: str) -> None:
        check_channel_name(channel.encode())
        if not self._site.settings.channels.url:
            raise no_channel_service("channel")
        self._site.fail(method)


class FakeChannelReader:
    def __init__(self, channels: FakeChannels, channel: str) -> None:
        self._channels = channels
        self._channel = channel
        self._items: deque[bytes | ChannelLoss] = deque()
        self._dropped = 0
        self._arrived = asyncio.Event()

    def put(self, item: bytes | ChannelLoss) -> None:
        if len(self._items) >= self._channels.limit:
            self._dropped += 1
        else:
            self._items.append(item)
        self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    async def receive(self, limit: int, wait_seconds: float | None) -> list[bytes | ChannelLoss]:
        try:
            async with asyncio.timeout(wait_seconds):
                while not self._items:
                    self._channels.check_reading()
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        items = [self._items.popleft() for _ in range(min(limit, len(self._items)))]
        if self._dropped and not self._items:
            self._items.append(ChannelLoss(1, 1, self._dropped, is_slow=True))
            self._dropped = 0
        return items

    async def close(self) -> None:
        self._channels.readers[self._channel].discard(self)
