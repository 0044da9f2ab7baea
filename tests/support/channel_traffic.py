"""A service of channels with real servers, and traffic on it whose every message is accounted for."""

import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import uvicorn

from culver.channels import Channels, LostMessages
from culver.channels.channel_api import channel_app
from culver.channels.channel_service import ChannelService, ServiceSettings
from culver.channels.core.message_order import TAIL_AGE_SECONDS
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings
from culver.host_names import HostNames
from support.until import until

_STEP_SECONDS = 0.005
#: Within this time losses on silent channels are reported.
_REPORT_SECONDS = 3.5


@dataclass
class RunningChannels:
    """A service without a balancer: tests move channels themselves."""

    service: ChannelService
    servers: LocalServers
    url: str

    async def moves_ended(self, limit_seconds: float = 30.0) -> None:
        await until(lambda: not self.service.moves_in_progress, limit_seconds)


@contextlib.asynccontextmanager
async def running_channels(
    folder: Path,
    servers: int,
    settings: LocalServerSettings = LocalServerSettings(),  # noqa: B008  frozen
) -> AsyncIterator[RunningChannels]:
    pool = LocalServers(folder, settings)
    service = ChannelService(pool, folder, ServiceSettings(first_servers=servers, balance=False))
    async with service:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            channel_app(service, HostNames("127.0.0.1", setting="hosts")), log_level="warning", lifespan="off"
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield RunningChannels(service, pool, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            await task
            listener.close()


@dataclass
class Account:
    """What one subscriber got of one publisher on one channel: the last number, and the numbers told as lost."""

    last: int = 0
    lost: set[int] = field(default_factory=set)


class ChannelTraffic:
    """Publishers that send numbered messages at a rate, and subscribers that check each of them as it comes.

    ``violations`` lists copies, wrong order, and messages that are missing without a gap having told so.
    """

    def __init__(
        self,
        url: str,
        channels: Sequence[bytes],
        interests: Sequence[Sequence[bytes]],
        publishers: int,
        messages_per_second: float,
    ) -> None:
        self._channels = channels
        self._interests = interests
        self._rate = messages_per_second / publishers
        self.publishers = [Channels(url, own_connections=True) for _ in range(publishers)]
        self.subscribers = [Channels(url, own_connections=True) for _ in interests]
        self._numbers: dict[int, int] = {}
        self._sent: dict[tuple[bytes, int], int] = defaultdict(int)
        self._accounts: dict[tuple[int, bytes, int], Account] = defaultdict(Account)
        self._readers: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.Task[None]] = []
        self._joined = 0
        self._stopped = False
        self.violations: list[str] = []

    @property
    def published(self) -> int:
        return sum(self._sent.values())

    @property
    def reported_lost(self) -> int:
        return sum(len(account.lost) for account in self._accounts.values())

    async def start(self) -> None:
        """Returns when all subscriptions are steady and messages flow."""
        for number, client in enumerate(self.publishers):
            self._numbers[await client.publisher_id()] = number
        self._readers = [asyncio.create_task(self._read(number)) for number in range(len(self.subscribers))]
        await until(lambda: self._joined == sum(map(len, self._interests)))
        # From then on no loss goes unnoticed.
        await asyncio.sleep(TAIL_AGE_SECONDS + 0.5)
        self._writers = [asyncio.create_task(self._write(number)) for number in range(len(self.publishers))]
        await asyncio.sleep(0.5)

    async def stop(self) -> None:
        """Stops publishing, waits until losses are reported, and looks for messages that are still missing."""
        self._stopped = True
        await asyncio.gather(*self._writers)
        await asyncio.sleep(_REPORT_SECONDS)
        for subscriber, names in enumerate(self._interests):
            for channel in names:
                for publisher in range(len(self.publishers)):
                    account = self._accounts[subscriber, channel, publisher]
                    missing = set(range(account.last + 1, self._sent[channel, publisher] + 1)) - account.lost
                    if missing:
                        self.violations.append(
                            f"{channel!r} of {publisher}: {sorted(missing)[:5]} are missing"
                        )
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for client in [*self.publishers, *self.subscribers]:
            await client.aclose()

    async def all_settled(self, limit_seconds: float) -> float:
        """Waits until every subscription is where the plan wants it; returns the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(lambda: all(client.settled for client in self.subscribers), limit_seconds)
        return loop.time() - began

    async def _read(self, subscriber: int) -> None:
        pubsub = self.subscribers[subscriber].pubsub()
        await pubsub.subscribe(*self._interests[subscriber])
        async for message in pubsub.listen():
            if message["type"] == "subscribe":
                self._joined += 1
            elif message["type"] == "gap":
                lost: LostMessages = message["data"]
                account = self._accounts[subscriber, message["channel"], self._numbers[lost.publisher]]
                account.lost.update(range(lost.first, lost.last + 1))
            elif message["type"] == "message":
                self._check(subscriber, message["channel"], message["data"])

    def _check(self, subscriber: int, channel: bytes, data: bytes) -> None:
        publisher, number = map(int, data.split(b":"))
        account = self._accounts[subscriber, channel, publisher]
        if number <= account.last:
            self.violations.append(f"{channel!r} of {publisher}: {number} came after {account.last}")
        missing = set(range(account.last + 1, number)) - account.lost
        if missing:
            self.violations.append(
                f"{channel!r} of {publisher}: {sorted(missing)[:5]} are missing before {number}"
            )
        account.last = max(account.last, number)

    async def _write(self, publisher: int) -> None:
        random = Random(publisher)
        loop = asyncio.get_running_loop()
        began, count = loop.time(), 0
        async with asyncio.TaskGroup() as group:
            while not self._stopped:
                while count < (loop.time() - began) * self._rate:
                    count += 1
                    channel = random.choice(self._channels)
                    self._sent[channel, publisher] += 1
                    data = b"%d:%d" % (publisher, self._sent[channel, publisher])
                    group.create_task(self.publishers[publisher].publish(channel, data))
                await asyncio.sleep(_STEP_SECONDS)
