"""A process with one client whose every message is accounted for: a publisher or a subscriber of many channels.

It reads one line of JSON with its ``NumberedTask``, and prints a line when it is ready. When standard input ends,
which it does with the parent, the client ends in an orderly way.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any

import msgspec
import uvloop

from culver.bench.channels.clients.message_journal import JournalKind, JournalWriter
from culver.channels import Channels, LostMessages
from culver.errors import CulverError

_STAMP = Struct(">QQ")
_FLUSH_SECONDS = 0.05
#: redis-py's cluster client looks at the connections of all servers in turn; it has no call that waits for any.
_POLL_SECONDS = 0.002
_JOIN_AGAIN_SECONDS = 0.05


class NumberedTask(msgspec.Struct):
    """``rate`` is in messages per second over all channels. ``system`` is channels or cluster, which is redis-py's
    client for sharded pub/sub. ``urls`` is the service, or the servers of the cluster. ``channels`` gives each name
    its number in the journals. ``seed`` decides the order in which a publisher takes them."""

    role: str
    urls: list[str]
    channels: dict[str, int]
    journal: str
    system: str = "channels"
    rate: float = 100.0
    payload_bytes: int = 200
    seed: int = 0


Publish = Callable[[str, bytes], Awaitable[object]]


class NumberedPublisher:
    """Publishes on all channels in turn, at a steady rate. After a delay it catches up.

    It awaits each publication before the next one. With several at once, redis-py 8.1 fares much worse: it closes all
    connections to read the slots anew after some redirections, publications that are under way fail by it and are
    sent again, and so it goes on without end.
    """

    def __init__(self, task: NumberedTask, journal: JournalWriter) -> None:
        self._task = task
        self._journal = journal
        self._filler = bytes(max(0, task.payload_bytes - _STAMP.size))
        self._random = Random(task.seed)

    async def run(self, stopped: asyncio.Event, ready: Callable[[], None]) -> None:
        if self._task.system == "channels":
            async with Channels(self._task.urls[0], own_connections=True) as channels:
                await self._publish_all(channels.publish, await channels.publisher_id(), stopped, ready)
            return
        async with _cluster(self._task.urls) as cluster:
            await self._publish_all(cluster.spublish, secrets.randbits(63), stopped, ready)

    async def _publish_all(
        self, publish: Publish, publisher: int, stopped: asyncio.Event, ready: Callable[[], None]
    ) -> None:
        ready()
        loop = asyncio.get_running_loop()
        due = loop.time()
        channels = list(self._task.channels.items())
        self._random.shuffle(channels)
        for turn in count():
            number = turn // len(channels) + 1
            channel, index = channels[turn % len(channels)]
            if stopped.is_set():
                return
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            due += 1.0 / self._task.rate
            began = time.monotonic()
            kind = JournalKind.SENT
            try:
                await publish(channel, _STAMP.pack(publisher, number) + self._filler)
            except Exception as error:
                # redis-py 8.1 also raises RuntimeError and AttributeError, where it closes connections that are in
                # use to read the slots anew.
                if self._task.system == "channels" and not isinstance(error, CulverError):
                    raise
                kind = JournalKind.FAILED
            self._journal.add(kind, index, publisher, number, number, began, time.monotonic())


class NumberedSubscriber:
    """Subscribes to all channels of its task and writes down what comes."""

    def __init__(self, task: NumberedTask, journal: JournalWriter) -> None:
        self._task = task
        self._journal = journal
        self._indices = {name.encode(): index for name, index in task.channels.items()}
        self._joined: set[int] = set()

    async def run(self, stopped: asyncio.Event, ready: Callable[[], None]) -> None:
        read = self._read_channels if self._task.system == "channels" else self._read_cluster
        reading = asyncio.create_task(read(ready))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if reading.done():
            reading.result()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading

    async def _read_channels(self, ready: Callable[[], None]) -> None:
        async with (
            Channels(self._task.urls[0], own_connections=True) as channels,
            channels.pubsub() as pubsub,
        ):
            await pubsub.subscribe(*self._task.channels)
            async for message in pubsub.listen():
                match message["type"]:
                    case "message":
                        self._take(message)
                    case "subscribe":
                        self._join(message["channel"], ready)
                    case "gap":
                        lost: LostMessages = message["data"]
                        self._journal.add(
                            JournalKind.LOST,
                            self._indices[message["channel"]],
                            lost.publisher,
                            lost.first,
                            lost.last,
                            time.monotonic(),
                        )

    async def _read_cluster(self, ready: Callable[[], None]) -> None:
        """Reads as redis-py documents it, and mends what redis-py leaves to its user.

        A server whose slot has moved ends the subscriptions there. redis-py follows where its own client learns of
        the move, which a client that only subscribes does not. So this program asks for the slots and subscribes
        again whenever a subscription ends or redis-py raises an error, until the server confirms it.
        """
        from redis.crc import key_slot
        from redis.exceptions import MovedError, RedisError

        async with _cluster(self._task.urls) as cluster:
            pubsub = cluster.pubsub()
            absent: set[bytes] = set()
            joining: asyncio.Task[None] | None = None

            async def join_again() -> None:
                while absent:
                    try:
                        await cluster.nodes_manager.initialize()
                        for name in list(absent):
                            await pubsub.ssubscribe(name)
                    except RedisError:
                        self._journal.add(JournalKind.ERROR, began=time.monotonic())
                    await asyncio.sleep(_JOIN_AGAIN_SECONDS)

            await pubsub.ssubscribe(*self._task.channels)
            while True:
                try:
                    message = await pubsub.get_sharded_message()
                except (RedisError, RuntimeError) as error:
                    # RuntimeError: redis-py 8.1 reads from a connection that it has just closed after a move.
                    self._journal.add(JournalKind.ERROR, began=time.monotonic())
                    slot = error.slot_id if isinstance(error, MovedError) else None
                    absent.update(name for name in self._indices if slot in (None, key_slot(name)))
                    message = None
                if message is None:
                    await asyncio.sleep(_POLL_SECONDS)
                elif message["type"] == "smessage":
                    self._take(message)
                elif message["type"] == "ssubscribe":
                    absent.discard(message["channel"])
                    self._join(message["channel"], ready)
                elif message["type"] == "sunsubscribe":
                    absent.add(message["channel"])
                if absent and (joining is None or joining.done()):
                    joining = asyncio.create_task(join_again())

    def _take(self, message: dict[str, Any]) -> None:
        publisher, number = _STAMP.unpack_from(message["data"])
        index = self._indices[message["channel"]]
        self._journal.add(JournalKind.RECEIVED, index, publisher, number, number, time.monotonic())

    def _join(self, channel: bytes, ready: Callable[[], None]) -> None:
        index = self._indices[channel]
        self._journal.add(JournalKind.JOINED, index, began=time.monotonic())
        self._joined.add(index)
        if len(self._joined) == len(self._indices):
            ready()


def _cluster(urls: list[str]) -> Any:
    """redis-py's cluster client with its own retries."""
    from redis.asyncio.cluster import ClusterNode, RedisCluster

    places = [url.removeprefix("redis://").rpartition(":") for url in urls]
    return RedisCluster(startup_nodes=[ClusterNode(host, int(port)) for host, _, port in places])


async def run(task: NumberedTask) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    journal = JournalWriter(Path(task.journal))
    stopped = asyncio.Event()
    told = False

    def ready() -> None:
        nonlocal told
        if not told:
            told = True
            sys.stdout.write("ready\n")
            sys.stdout.flush()

    async def flush() -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            journal.flush()

    async def watch() -> None:
        await lines.read()
        stopped.set()

    helpers = [asyncio.create_task(flush()), asyncio.create_task(watch())]
    client = (NumberedPublisher if task.role == "publisher" else NumberedSubscriber)(task, journal)
    await client.run(stopped, ready)
    for helper in helpers:
        helper.cancel()
    await asyncio.gather(*helpers, return_exceptions=True)
    journal.close()


def main() -> None:
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=NumberedTask)
    # redis-py turns the errors of asyncio's own connections into its errors, and not all of uvloop's.
    start = uvloop.run if task.system == "channels" else asyncio.run
    start(run(task))


if __name__ == "__main__":
    main()
