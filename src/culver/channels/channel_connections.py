"""The connections of a process to the servers of one service.

All ``Channels`` objects of an event loop that have the same address and credentials share one ``ChannelConnections``,
and with it one publish link and one subscribe link to each server. The last one to leave closes it.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from culver.channels.core.channel_plan import PlanEntry
from culver.channels.core.client_core import ClientCore
from culver.channels.core.envelope import Envelope, unpack_entry
from culver.channels.core.instructions import (
    Command,
    Confirm,
    Deliver,
    FetchRing,
    Instruction,
    Interrupt,
    PublicationDone,
    RefuseSubscription,
    Reply,
    ReportGap,
    ServerLink,
    Warn,
)
from culver.channels.core.message_order import LostMessages
from culver.channels.core.reserved_names import PLAN_KEY
from culver.channels.core_runner import CoreRunner, fresh_copy
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings
from culver.channels.service_directory import fetch_directory
from culver.errors import ConnectionFailed, CulverError

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_MOST_UNFINISHED = 20_000
_MOST_UNFINISHED_BYTES = 64 << 20

#: Begins a publication: what ``ClientCore`` returns then.
Begin = Callable[[ClientCore, float], tuple[int, list[Instruction]]]

#: What a server pushes, as redis-py's ``parse_response`` returns it: ``[b"message", channel, data]`` and the like.
Response = list[Any]


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Clients with equal settings share their connections. ``owner`` is set where a client wants its own."""

    url: str
    access: ServerAccess
    publish_timeout_seconds: float
    owner: object = None


class ChannelReader(Protocol):
    """Whoever subscribes; a ``PubSub``. None of these may raise: the connection would end."""

    def deliver(self, response: Response, envelope: Envelope | None) -> None: ...

    def confirmed(self, kind: bytes, name: bytes) -> None: ...

    def interrupted(self, kind: bytes, name: bytes) -> None: ...

    def lost(self, messages: LostMessages, pattern: bytes | None) -> None: ...

    def refused(self, name: bytes, error: Exception, *, pattern: bool) -> None: ...


@dataclass(slots=True)
class _Followers:
    readers: dict[ChannelReader, None] = field(default_factory=dict)
    confirmed: bool = False


class ChannelConnections:
    """Use it from one event loop. Get it with ``share_connections`` and give it back with ``release``."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._opening = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._core: ClientCore | None = None
        self._runner: CoreRunner | None = None
        self._ring_task: asyncio.Task[None] | None = None
        self._service_away = False
        self._unfinished: dict[int, tuple[asyncio.Future[int], int]] = {}
        self._unfinished_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turns_given = 0
        self._channels: dict[bytes, _Followers] = {}
        self._patterns: dict[bytes, _Followers] = {}
        self.users = 0

    @property
    def core(self) -> ClientCore:
        assert self._core is not None, "not open"
        return self._core

    @property
    def runner(self) -> CoreRunner:
        assert self._runner is not None, "not open"
        return self._runner

    async def open(self) -> None:
        """Asks the service for its servers, the first time.

        :raises ConnectionFailed: no service answers.
        :raises RequestRefused: something else answers.
        """
        async with self._opening:
            if self._core is not None:
                return
            directory = await fetch_directory(self._settings.url)
            client = secrets.randbits(64)
            self._core = ClientCore(
                client,
                directory.ring(),
                directory.signing_secret(),
                Random(client),
                self._settings.publish_timeout_seconds,
            )
            self._runner = CoreRunner(
                self._core,
                self._address_of,
                self._carry_out,
                access=self._settings.access,
                settings=LinkSettings(),
                name=f"culver-{client:x}",
                on_refused=self._refused,
            )
            self._runner.start()

    async def release(self) -> None:
        """Closes all connections when the last user has gone. Publications that are not finished fail."""
        self.users -= 1
        if self.users:
            return
        _shared.get(self._loop, {}).pop(self._settings, None)
        async with self._opening:
            if self._ring_task is not None:
                self._ring_task.cancel()
                await asyncio.gather(self._ring_task, return_exceptions=True)
            if self._runner is not None:
                self._runner.run(self.core.farewell(self._runner.now()))
                await self._runner.close()
        futures: list[asyncio.Future[Any]] = [future for future, _ in self._unfinished.values()]
        for waiting in (*futures, *self._waiting):
            if not waiting.done():
                waiting.set_exception(ConnectionFailed("the client was closed"))
        self._unfinished.clear()
        self._waiting.clear()

    async def publish(self, begin: Begin, size: int) -> int:
        """Returns how many subscribers the servers have sent the message to. Waits while too much is unfinished;
        publications that wait go on in their order.

        :raises CulverError: a server refuses it, or does not answer in time.
        """
        if self._waiting or self._is_full():
            await self._turn()
        runner = self.runner
        token, instructions = begin(self.core, runner.now())
        future: asyncio.Future[int] = self._loop.create_future()
        self._unfinished[token] = (future, size)
        self._unfinished_bytes += size
        runner.run(instructions)
        if self._waiting:
            self._next_turn()
        return await future

    async def follow(self, reader: ChannelReader, names: Sequence[bytes], *, pattern: bool) -> None:
        """Subscribes, and returns when connections to the servers are open. ``reader`` hears of the confirmations.

        :raises CulverError: a server refuses this client, or cannot be reached in time. Nothing has changed then.
        """
        table = self._patterns if pattern else self._channels
        core, runner = self.core, self.runner
        joined: list[bytes] = []
        new: list[bytes] = []
        for name in names:
            followers = table.get(name)
            if followers is None:
                followers = table[name] = _Followers()
                new.append(name)
            if reader not in followers.readers:
                followers.readers[reader] = None
                joined.append(name)
            if followers.confirmed:
                reader.confirmed(b"psubscribe" if pattern else b"subscribe", name)
        runner.run((core.psubscribe if pattern else core.subscribe)(new, runner.now()))
        try:
            await self._wait_open(lambda: core.ring.numbers if pattern else core.servers_of(names))
        except BaseException:
            self.unfollow(reader, joined, pattern=pattern)
            raise

    def unfollow(self, reader: ChannelReader, names: Sequence[bytes], *, pattern: bool) -> None:
        """Unsubscribes; the servers are told when the last reader has gone."""
        table = self._patterns if pattern else self._channels
        deserted = []
        for name in names:
            followers = table.get(name)
            if followers is not None and reader in followers.readers:
                del followers.readers[reader]
                if not followers.readers:
                    del table[name]
                    deserted.append(name)
        if deserted:
            leave = self.core.punsubscribe if pattern else self.core.unsubscribe
            self.runner.run(leave(deserted))

    async def ask_all(self, command: Command, kind: ServerLink = ServerLink.PUBLISH) -> dict[int, Reply]:
        """Sends a command to every server.

        :raises CulverError: a server refuses it, or cannot be reached in time.
        """
        servers = self.core.ring.numbers
        for server in servers:
            self.runner.run(self.core.want(server, kind, self.runner.now()))
        await self._wait_open(lambda: servers & self.core.ring.numbers, kind)
        servers &= self.core.ring.numbers
        replies = await asyncio.gather(*(self.runner.request(server, kind, command) for server in servers))
        return dict(zip(servers, replies, strict=True))

    async def entries_of(self, channels: Sequence[bytes]) -> list[PlanEntry]:
        """Where these channels are served, as their homes say now."""
        ring = self.core.ring
        answers = await self.ask_all((b"HMGET", PLAN_KEY, *channels))
        entries = []
        for index, channel in enumerate(channels):
            answer = answers.get(ring.home(channel))
            signed = answer[index] if isinstance(answer, list) else None
            entries.append(
                unpack_entry(channel, signed, self.core.secret)
                if isinstance(signed, bytes)
                else ring.home_entry(channel)
            )
        return entries

    async def _wait_open(self, servers: Any, kind: ServerLink = ServerLink.SUBSCRIBE) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self.runner.wait_open(kind, servers)
        except TimeoutError as error:
            failure = self.runner.last_failure
            raise ConnectionFailed(
                f"no connection to a server of {self._settings.url} within {_CONNECT_SECONDS:g} s"
                + (f" ({failure})" if failure is not None else "")
            ) from error

    async def _turn(self) -> None:
        """Waits in line until fewer publications are unfinished."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._turns_given -= 1
                self._next_turn()
            raise
        self._turns_given -= 1

    def _next_turn(self) -> None:
        while self._waiting and not self._is_full():
            turn = self._waiting.popleft()
            if not turn.done():
                self._turns_given += 1
                turn.set_result(None)
                return

    def _is_full(self) -> bool:
        begun = len(self._unfinished) + self._turns_given
        return begun >= _MOST_UNFINISHED or self._unfinished_bytes >= _MOST_UNFINISHED_BYTES

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Deliver):
            channel, pattern = instruction.channel, instruction.pattern
            if pattern is None:
                followers = self._channels.get(channel)
                response: Response = [b"message", channel, instruction.payload]
            else:
                followers = self._patterns.get(pattern)
                response = [b"pmessage", pattern, channel, instruction.payload]
            if followers is not None:
                for reader in followers.readers:
                    reader.deliver(response, instruction.envelope)
        elif isinstance(instruction, PublicationDone):
            self._finish(instruction)
        elif isinstance(instruction, Confirm):
            if instruction.kind in ("subscribe", "psubscribe"):
                table = self._channels if instruction.kind == "subscribe" else self._patterns
                followers = table.get(instruction.channel)
                if followers is not None:
                    followers.confirmed = True
                    for reader in followers.readers:
                        reader.confirmed(instruction.kind.encode(), instruction.channel)
        elif isinstance(instruction, Interrupt):
            self._interrupt(self._channels, b"subscribe", instruction.channels)
            self._interrupt(self._patterns, b"psubscribe", instruction.patterns)
        elif isinstance(instruction, RefuseSubscription):
            table = self._patterns if instruction.is_pattern else self._channels
            for reader in table.pop(instruction.channel, _Followers()).readers:
                reader.refused(instruction.channel, instruction.error, pattern=instruction.is_pattern)
        elif isinstance(instruction, ReportGap):
            gap, pattern = instruction.gap, instruction.pattern
            followers = self._channels.get(gap.channel) if pattern is None else self._patterns.get(pattern)
            for reader in followers.readers if followers is not None else ():
                reader.lost(gap, pattern)
        elif isinstance(instruction, FetchRing):
            if self._ring_task is None or self._ring_task.done():
                self._ring_task = self._loop.create_task(self._refresh_ring())
        elif isinstance(instruction, Warn):
            logger.warning("%s", instruction.text)

    @staticmethod
    def _interrupt(table: dict[bytes, _Followers], kind: bytes, names: Sequence[bytes]) -> None:
        for name in names:
            followers = table.get(name)
            if followers is not None:
                followers.confirmed = False
                for reader in followers.readers:
                    reader.interrupted(kind, name)

    def _finish(self, done: PublicationDone) -> None:
        future, size = self._unfinished.pop(done.token)
        self._unfinished_bytes -= size
        if not future.done():
            if done.error is None:
                future.set_result(done.receivers)
            elif isinstance(done.error, CulverError):
                future.set_exception(fresh_copy(done.error))
            else:
                failure = self.runner.last_failure
                reason = f"{done.error}" + (f" ({failure})" if failure is not None else "")
                future.set_exception(ConnectionFailed(reason))
        if self._waiting:
            self._next_turn()

    def _refused(self, server: int, link: ServerLink, error: CulverError) -> bool:
        instructions = self.core.refused(server, link, error, self.runner.now())
        self.runner.run(instructions)
        return bool(instructions)

    def _address_of(self, server: int) -> str | None:
        return next((each.url for each in self.core.ring.servers if each.number == server), None)

    async def _refresh_ring(self) -> None:
        try:
            directory = await fetch_directory(self._settings.url)
        except CulverError as error:
            # The client asks once a second; saying so once is enough.
            if not self._service_away:
                logger.warning("%s", error)
            self._service_away = True
            return
        self._service_away = False
        ring, secret = directory.ring(), directory.signing_secret()
        if secret != self.core.secret:
            logger.warning("the service at %s has begun anew, and so does this client", self._settings.url)
        self.runner.run(self.core.directory_fetched(ring, secret, self.runner.now()))


_shared: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ConnectionSettings, ChannelConnections]]" = (
    WeakKeyDictionary()
)


def share_connections(settings: ConnectionSettings) -> ChannelConnections:
    """The connections of the running event loop with these settings. They may have to be opened."""
    of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
    connections = of_loop.get(settings)
    if connections is None:
        connections = of_loop[settings] = ChannelConnections(settings)
    connections.users += 1
    return connections
