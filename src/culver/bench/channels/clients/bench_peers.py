"""A subscriber or publisher of a benchmark, on each of the systems: the channels, plain redis-py, sharded pub/sub.

Every peer has connections of its own, so it counts as one client on the servers, and their outgoing bytes are real.
A peer of the channels is the product's client core with the product's connections, without the queues of ``PubSub``:
a process then bears hundreds of them.
"""

import asyncio
import base64
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Protocol

import httpx
import msgspec

from culver.channels.core.client_core import ClientCore
from culver.channels.core.instructions import Deliver, FetchRing, Instruction, ReportGap
from culver.channels.core_runner import CoreRunner
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings, RedisLink
from culver.channels.service_directory import ServiceDirectory

#: Timers of hundreds of clients in one process would take a good part of it. Nothing but heartbeats and reports of
#: load depends on them, which are due after half a second and more.
_TICK_SECONDS = 0.25

OnMessage = Callable[[bytes], None]


class BenchPeer(Protocol):
    """Messages go to the callback that the peer was made with."""

    async def open(self) -> None: ...

    def publish(self, channel: bytes, payload: bytes) -> None: ...

    def subscribe(self, channel: bytes) -> None: ...

    def unsubscribe(self, channel: bytes) -> None: ...

    async def close(self) -> None: ...


class ServiceAddress:
    """The directory of one service, fetched once for all peers of a process and again when one of them asks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._task: asyncio.Task[ServiceDirectory] | None = None
        self._http = httpx.AsyncClient(timeout=5.0)
        #: Messages that the servers have lost, as the peers report it.
        self.lost = 0

    async def directory(self, *, fresh: bool = False) -> ServiceDirectory:
        if self._task is None or (fresh and self._task.done()) or (self._task.done() and self._failed()):
            self._task = asyncio.create_task(self._fetch())
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        await self._http.aclose()

    def _failed(self) -> bool:
        return self._task is not None and (self._task.cancelled() or self._task.exception() is not None)

    async def _fetch(self) -> ServiceDirectory:
        answer = await self._http.get(f"{self._url}/v1/channels/servers")
        return msgspec.json.decode(answer.content, type=ServiceDirectory)


class ChannelPeer:
    """A client of the channels."""

    def __init__(self, service: ServiceAddress, on_message: OnMessage) -> None:
        self._service = service
        self._on_message = on_message
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        directory = await self._service.directory()
        client = secrets.randbits(64)
        self._core = ClientCore(client, directory.ring(), base64.b64decode(directory.secret), Random(client))
        self._runner = CoreRunner(
            self._core,
            self._address,
            self._carry_out,
            access=ServerAccess(),
            settings=LinkSettings(),
            name=f"culver-{client:x}",
            tick_seconds=_TICK_SECONDS,
        )
        self._runner.start()

    def publish(self, channel: bytes, payload: bytes) -> None:
        self._runner.run(self._core.publish(channel, payload, self._runner.now())[1])

    def subscribe(self, channel: bytes) -> None:
        self._runner.run(self._core.subscribe([channel], self._runner.now()))

    def unsubscribe(self, channel: bytes) -> None:
        self._runner.run(self._core.unsubscribe([channel]))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._runner.close()

    def _address(self, server: int) -> str | None:
        return next((each.url for each in self._core.ring.servers if each.number == server), None)

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Deliver):
            self._on_message(instruction.payload)
        elif isinstance(instruction, ReportGap):
            self._service.lost += 1
        elif isinstance(instruction, FetchRing):
            task = asyncio.get_running_loop().create_task(self._refresh())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _refresh(self) -> None:
        with suppress(httpx.HTTPError, msgspec.DecodeError):
            directory = await self._service.directory(fresh=True)
            self._runner.run(self._core.ring_changed(directory.ring(), self._runner.now()))


class RedisPeer:
    """Plain redis-py on one server."""

    def __init__(self, url: str, on_message: OnMessage) -> None:
        self._url = url
        self._on_message = on_message
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        from redis import asyncio as redis

        self._client = redis.Redis.from_url(self._url)
        self._pubsub = self._client.pubsub()
        self._read: asyncio.Task[None] | None = None

    def publish(self, channel: bytes, payload: bytes) -> None:
        self._spawn(self._client.publish(channel, payload))

    def subscribe(self, channel: bytes) -> None:
        self._spawn(self._follow(channel))

    def unsubscribe(self, channel: bytes) -> None:
        self._spawn(self._pubsub.unsubscribe(channel))

    async def close(self) -> None:
        tasks = [*self._tasks, *([self._read] if self._read is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pubsub.aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()

    async def _follow(self, channel: bytes) -> None:
        await self._pubsub.subscribe(channel)
        if self._read is None:
            self._read = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self._pubsub.listen():
            if message["type"] == "message":
                self._on_message(message["data"])

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ShardedPeer:
    """Sharded pub/sub on a cluster whose servers have equal shares of the slots, in the order of ``urls``."""

    def __init__(self, urls: Sequence[str], on_message: OnMessage) -> None:
        self._urls = urls
        self._on_message = on_message
        self._links: dict[int, RedisLink] = {}

    async def open(self) -> None:
        for index, url in enumerate(self._urls):
            self._links[index] = link = RedisLink(url, self._pushed)
            await link.connect()

    def publish(self, channel: bytes, payload: bytes) -> None:
        self._owner(channel).send((b"SPUBLISH", channel, payload))

    def subscribe(self, channel: bytes) -> None:
        self._owner(channel).send((b"SSUBSCRIBE", channel))

    def unsubscribe(self, channel: bytes) -> None:
        self._owner(channel).send((b"SUNSUBSCRIBE", channel))

    async def close(self) -> None:
        for link in self._links.values():
            link.close()
            await link.wait_closed()

    def _owner(self, channel: bytes) -> RedisLink:
        from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

        return self._links[key_slot(channel) * len(self._urls) // REDIS_CLUSTER_HASH_SLOTS]

    def _pushed(self, pushes: list[list[Any]]) -> None:
        for push in pushes:
            if push[0] == b"smessage":
                self._on_message(push[2])
