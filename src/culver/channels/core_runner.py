"""Carries out the instructions of a core with real connections and the event loop's clock."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from culver.channels.core.instructions import (
    Command,
    Connect,
    Core,
    Disconnect,
    Instruction,
    Reply,
    Send,
    ServerLink,
)
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings, RedisLink
from culver.errors import CulverError, ServerUnreachable

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05


class CoreRunner:
    """Runs one core on the running event loop. ``carry_out`` gets the instructions that are not about connections.

    A server whose address is not known counts as unreachable. ``on_refused`` gets the reason why a server will not
    have this client, where another attempt cannot help, and returns whether somebody is told by an error; if nobody
    is, the reason is logged. Close the runner to close all its connections.
    """

    def __init__(
        self,
        core: Core,
        address_of: Callable[[int], str | None],
        carry_out: Callable[[Instruction], None],
        *,
        access: ServerAccess,
        settings: LinkSettings,
        name: str,
        on_refused: Callable[[int, ServerLink, CulverError], bool] = lambda server, link, reason: False,
        tick_seconds: float = _TICK_SECONDS,
    ) -> None:
        self._core = core
        self._tick_seconds = tick_seconds
        self._address_of = address_of
        self._carry_out = carry_out
        self._access = access
        self._settings = settings
        self._name = name
        self._on_refused = on_refused
        self._refusals: dict[tuple[int, ServerLink], CulverError] = {}
        # Those who wait for a change, and the links that they lack.
        self._waiting: list[tuple[asyncio.Future[None], list[tuple[int, ServerLink]]]] = []
        self._links: dict[tuple[int, ServerLink], RedisLink] = {}
        self._connecting: dict[tuple[int, ServerLink], asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        #: The latest reason why a server could not be reached, for error messages.
        self.last_failure: CulverError | None = None

    def now(self) -> float:
        return self._loop.time()

    def start(self) -> None:
        self._tick()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()
        await asyncio.gather(*(link.wait_closed() for link in links))

    def run(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                self._send(instruction)
            elif isinstance(instruction, Connect):
                self._begin_connect(instruction.server, instruction.link)
            elif isinstance(instruction, Disconnect):
                self._disconnect(instruction.server, instruction.link)
            else:
                self._carry_out(instruction)

    async def drain(self) -> None:
        """Waits while a server takes less than it is sent."""
        for link in list(self._links.values()):
            await link.drain()

    async def wait_open(self, kind: ServerLink, servers: Callable[[], Iterable[int]]) -> None:
        """Waits until links to all these servers are open. ``servers`` is asked again whenever a link has changed.

        :raises CulverError: a server will not have this client.
        """
        while lacking := [(server, kind) for server in servers() if (server, kind) not in self._links]:
            for link in lacking:
                if link in self._refusals:
                    raise fresh_copy(self._refusals[link])
            change: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((change, lacking))
            await change

    async def request(self, server: int, kind: ServerLink, command: Command) -> Reply:
        """
        :raises ServerError: an error reply, or a link that is not open or breaks.
        """
        link = self._links.get((server, kind))
        if link is None:
            raise ServerUnreachable(f"no connection to server {server}")
        return await link.request(command)

    def _send(self, send: Send) -> None:
        link = self._links.get((send.server, send.link))
        if link is None:
            return
        then = send.then
        link.send(send.command, None if then is None else partial(self._replied, then))

    def _replied(self, then: Callable[[Reply, float], list[Instruction]], reply: Reply) -> None:
        instructions = then(reply, self._loop.time())
        if instructions:
            self.run(instructions)

    def _begin_connect(self, server: int, kind: ServerLink) -> None:
        task = self._loop.create_task(self._connect(server, kind))
        self._connecting[server, kind] = task

    def _disconnect(self, server: int, kind: ServerLink) -> None:
        """Also ends an attempt to connect: the number may belong to a server with another address next."""
        attempt = self._connecting.pop((server, kind), None)
        if attempt is not None:
            attempt.cancel()
        self._refusals.pop((server, kind), None)
        link = self._links.pop((server, kind), None)
        if link is not None:
            link.close()

    async def _connect(self, server: int, kind: ServerLink) -> None:
        url = self._address_of(server)
        failure: CulverError | None = None
        try:
            if url is None:
                raise ServerUnreachable(f"the address of server {server} is unknown")
            link = RedisLink(
                url,
                partial(self._pushed, server, kind),
                lambda reason: self._lost(server, kind, reason),
                access=self._access,
                settings=self._settings,
                name=f"{self._name}-{kind.value}",
            )
            await link.connect()
        except CulverError as error:
            failure = error
        # From here on nothing waits, and what the core answers may end this link again.
        self._connecting.pop((server, kind), None)
        self._refusals.pop((server, kind), None)
        if failure is None:
            self._links[server, kind] = link
            self.run(self._core.connected(server, kind, self.now()))
        else:
            self.run(self._core.disconnected(server, kind, self.now()))
            is_told = False
            if not failure.retryable:
                self._refusals[server, kind] = failure
                is_told = self._on_refused(server, kind, failure)
                is_told |= any((server, kind) in lacking for _, lacking in self._waiting)
            self._note_failure(failure, is_told=is_told)
        for waiting, _ in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def _pushed(self, server: int, kind: ServerLink, pushes: list[list[Any]]) -> None:
        now = self._loop.time()
        pushed = self._core.pushed
        for push in pushes:
            instructions = pushed(server, kind, push, now)
            if instructions:
                self.run(instructions)

    def _lost(self, server: int, kind: ServerLink, reason: CulverError) -> None:
        self._note_failure(reason)
        self._links.pop((server, kind), None)
        self.run(self._core.disconnected(server, kind, self.now()))

    def _note_failure(self, error: CulverError, *, is_told: bool = False) -> None:
        is_new = self.last_failure is None or type(error) is not type(self.last_failure)
        if is_new and not is_told:
            logger.warning("%s", error)
        self.last_failure = error

    def _tick(self) -> None:
        self.run(self._core.tick(self.now()))
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)


def fresh_copy(error: CulverError) -> CulverError:
    """The same error to raise once more: an exception collects the traceback of each place that raises it."""
    return type(error)(error.message, field=error.field, **error.details)
