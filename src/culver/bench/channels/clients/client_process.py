"""A process with many clients of a benchmark: subscribers, publishers or players.

It reads one line of JSON with its ``CrowdTask``, and then lines with the number of clients that there shall be; it
writes a ``CrowdReport`` every second. Standard input ends with the parent, and this process with it.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from random import Random
from struct import Struct
from typing import Protocol

import msgspec
import uvloop

from culver.bench.channels.clients.bench_peers import (
    BenchPeer,
    ChannelPeer,
    RedisPeer,
    ServiceAddress,
    ShardedPeer,
)
from culver.bench.channels.clients.game_world import GameWorld, WalkingPlayer
from culver.bench.channels.clients.wide_area import draw_seconds

#: The number of the sender, and when it has sent the message. All processes of a machine share this clock.
_STAMP = Struct(">Qd")
_REPORT_SECONDS = 1.0
_OPENING_AT_ONCE = 20
#: An update that did not come back for so long counts with its age, in case it never comes.
_OVERDUE_SECONDS = 1.0


class CrowdTask(msgspec.Struct):
    """``rate`` is in messages per second and publisher. ``system`` is channels, redis or sharded. ``wide_area`` adds
    two passages of a wide-area network to every response time."""

    role: str
    urls: list[str]
    system: str = "channels"
    channel: str = "hot"
    rate: float = 10.0
    payload_bytes: int = 200
    first: int = 0
    tiles_across: int = 4
    world: str = "game"
    wide_area: bool = False


class CrowdReport(msgspec.Struct):
    """One second of a process. Response times are in seconds; ``lag`` is how late the event loop was at most."""

    size: int
    sent: int
    received: int
    responses: int
    response_sum: float
    p50: float
    p99: float
    cpu: float
    lag: float
    lost: int = 0


class Crowd:
    """Counts for all clients of the process."""

    def __init__(self, task: CrowdTask) -> None:
        self.task = task
        self.sent = self.received = 0
        self.responses: list[float] = []
        self.overdue: Callable[[float], list[float]] = lambda now: []
        self._filler = bytes(max(0, task.payload_bytes - _STAMP.size))
        self._service = ServiceAddress(task.urls[0])
        self._random = Random(task.first)
        self._cpu = time.process_time()
        self._at = time.monotonic()
        self.lag = 0.0

    def peer(self, on_message: Callable[[bytes], None]) -> BenchPeer:
        if self.task.system == "redis":
            return RedisPeer(self.task.urls[0], on_message)
        if self.task.system == "sharded":
            return ShardedPeer(self.task.urls, on_message)
        return ChannelPeer(self._service, on_message)

    def stamped(self, number: int) -> bytes:
        self.sent += 1
        return _STAMP.pack(number, time.monotonic()) + self._filler

    def took(self, payload: bytes) -> tuple[int, float]:
        """The sender and the response time of a message that has come."""
        self.received += 1
        number, sent_at = _STAMP.unpack_from(payload)
        seconds = time.monotonic() - sent_at
        if self.task.wide_area:
            seconds += draw_seconds(self._random.gauss()) + draw_seconds(self._random.gauss())
        return number, seconds

    def report(self, size: int) -> CrowdReport:
        now, cpu = time.monotonic(), time.process_time()
        times = sorted(self.responses + self.overdue(now))
        report = CrowdReport(
            size,
            self.sent,
            self.received,
            len(times),
            sum(times),
            times[len(times) // 2] if times else 0.0,
            times[len(times) * 99 // 100] if times else 0.0,
            (cpu - self._cpu) / (now - self._at),
            self.lag,
            self._service.lost,
        )
        self._at, self._cpu, self.lag = now, cpu, 0.0
        self.sent = self.received = self._service.lost = 0
        self.responses.clear()
        return report

    async def close(self) -> None:
        await self._service.close()


class CrowdMember(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


class CrowdSubscriber:
    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._peer = crowd.peer(self._take)

    async def open(self) -> None:
        await self._peer.open()
        self._peer.subscribe(self._crowd.task.channel.encode())

    async def close(self) -> None:
        await self._peer.close()

    def _take(self, payload: bytes) -> None:
        self._crowd.responses.append(self._crowd.took(payload)[1])


class Paced:
    """Calls back at a steady rate from a random moment on. After a delay it catches up."""

    def __init__(self, rate: float, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = 1.0 / rate
        self._call = call
        self._due = self._loop.time() + Random().random() * self._seconds
        self._handle = self._loop.call_at(self._due, self._fire)

    def cancel(self) -> None:
        self._handle.cancel()

    def _fire(self) -> None:
        self._due += self._seconds
        self._handle = self._loop.call_at(self._due, self._fire)
        self._call()


class CrowdPublisher:
    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._channel = crowd.task.channel.encode()
        self._peer = crowd.peer(lambda payload: None)

    async def open(self) -> None:
        await self._peer.open()
        self._paced = Paced(self._crowd.task.rate, self._publish)

    async def close(self) -> None:
        self._paced.cancel()
        await self._peer.close()

    def _publish(self) -> None:
        self._peer.publish(self._channel, self._crowd.stamped(self._number))


class CrowdPlayer:
    """A player's response time is that of its own updates, as in the paper."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        task = crowd.task
        self._crowd = crowd
        self._number = number
        world = GameWorld(task.tiles_across, task.world)
        self._walk = WalkingPlayer(world, Random(number), time.monotonic())
        self._peer = crowd.peer(self._take)
        self._tile = b""
        self._unanswered: dict[float, None] = {}

    async def open(self) -> None:
        await self._peer.open()
        self._paced = Paced(self._crowd.task.rate, self._update)

    async def close(self) -> None:
        self._paced.cancel()
        await self._peer.close()

    def overdue(self, now: float) -> list[float]:
        return [now - sent for sent in self._unanswered if now - sent > _OVERDUE_SECONDS]

    def _update(self) -> None:
        now = time.monotonic()
        tile = self._walk.tile(now)
        if tile != self._tile:
            self._peer.subscribe(tile)
            if self._tile:
                self._peer.unsubscribe(self._tile)
            self._tile = tile
            self._unanswered.clear()
        payload = self._crowd.stamped(self._number)
        self._unanswered[_STAMP.unpack_from(payload)[1]] = None
        self._peer.publish(tile, payload)

    def _take(self, payload: bytes) -> None:
        number, seconds = self._crowd.took(payload)
        if number == self._number:
            sent_at = _STAMP.unpack_from(payload)[1]
            if sent_at in self._unanswered:
                self._crowd.responses.append(seconds)
            # Updates come back in order: an earlier one was published before the subscription began.
            self._unanswered = {at: None for at in self._unanswered if at > sent_at}


_ROLES: dict[str, Callable[[Crowd, int], CrowdMember]] = {
    "subscribers": CrowdSubscriber,
    "publishers": CrowdPublisher,
    "players": CrowdPlayer,
}


async def run() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    crowd = Crowd(msgspec.json.decode(await lines.readline(), type=CrowdTask))
    members: list[CrowdMember] = []
    crowd.overdue = lambda now: [
        age for member in members if isinstance(member, CrowdPlayer) for age in member.overdue(now)
    ]
    tasks = [asyncio.create_task(_report(crowd, members)), asyncio.create_task(_watch_lag(crowd))]
    make = _ROLES[crowd.task.role]
    while line := await lines.readline():
        wanted = int(line)
        while len(members) != wanted:
            if len(members) > wanted:
                await members.pop().close()
                continue
            first = crowd.task.first + len(members)
            new = [make(crowd, first + i) for i in range(min(_OPENING_AT_ONCE, wanted - len(members)))]
            await asyncio.gather(*(member.open() for member in new))
            members += new
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(member.close() for member in members))
    await crowd.close()


async def _report(crowd: Crowd, members: list[CrowdMember]) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        sys.stdout.write(msgspec.json.encode(crowd.report(len(members))).decode() + "\n")
        sys.stdout.flush()


async def _watch_lag(crowd: Crowd) -> None:
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.05)
        crowd.lag = max(crowd.lag, time.monotonic() - began - 0.05)


if __name__ == "__main__":
    uvloop.run(run())
