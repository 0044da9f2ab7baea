"""The service of the channels: a pool of servers, their dispatchers, the keeper of the plan and the balancer.

Everything that decides is in ``core/balance``. This object reads what dispatchers and analysers have stored on the
servers, lets the cores decide, and carries it out. Its state (the plan, the secret, the pool) is in one folder: after
``kill -9`` it goes on with the servers that still run.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from culver.channels.core.balance.channel_balancer import (
    BalancerDecision,
    BalancerSettings,
    ChannelBalancer,
    PlanView,
)
from culver.channels.core.balance.keeper_commands import stages_of
from culver.channels.core.balance.keeper_instructions import KeeperInstruction, ReleaseServer, WriteRing
from culver.channels.core.balance.load_estimate import BalancedServer, ServerState
from culver.channels.core.balance.plan_keeper import PlanKeeper
from culver.channels.core.balance.server_capacity import DEFAULT_BANDWIDTH, ServerCapacity
from culver.channels.core.balance.server_groups import Groups
from culver.channels.core.channel_load import ServerLoad
from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.dispatcher_children import DispatcherChildren
from culver.channels.server_control import ServerControl
from culver.channels.servers.server_pool import ServerProvisioner
from culver.disk import write_whole
from culver.errors import CulverError, LimitExceeded, ServerNotStarted, StorageCorrupt

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_BALANCE_SECONDS = 1.0
_PLAN_NAME = "plan"
_SECRET_NAME = "secret"

#: A server that nobody can start again is taken out of the ring after this time.
_LOST_SECONDS = 10.0
_REMEMBERED_DECISIONS = 100


class ServiceSettings(msgspec.Struct, frozen=True):
    """``bandwidth`` is what a server may send in a second to begin with. What it bears is learnt, which is never more
    if ``bandwidth_is_limit``. ``balance`` can be turned off for benchmarks, which then move channels themselves."""

    first_servers: int = 2
    bandwidth: float = DEFAULT_BANDWIDTH
    bandwidth_is_limit: bool = False
    balancer: BalancerSettings = BalancerSettings()
    balance: bool = True


@dataclass(slots=True)
class _Server:
    control: ServerControl
    capacity: ServerCapacity
    price: float
    load: ServerLoad | None = None
    down_since: float | None = None
    subscribed_channels: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class PastDecision:
    """A decision of the balancer, with the wall clock's time."""

    at: float
    reasons: tuple[str, ...]
    moves: int
    started: int
    stopped: tuple[int, ...]


@dataclass(slots=True)
class ServiceCounts:
    """What has happened since the service started."""

    decisions: int = 0
    moves: int = 0
    server_restarts: int = 0
    lost_servers: int = 0


@dataclass(slots=True)
class _Tasks:
    loop: asyncio.Task[None] | None = None
    pool: set[asyncio.Task[None]] = field(default_factory=set)


class ChannelService:
    """Use it as ``async with``; entering returns when all servers and their dispatchers can be used.

    :raises StorageCorrupt: the stored plan cannot be read.
    :raises CulverError: none of the servers that others run can be used.
    """

    def __init__(self, provisioner: ServerProvisioner, folder: Path, settings: ServiceSettings) -> None:
        self._provisioner = provisioner
        self._folder = folder
        self._settings = settings
        self._stack = AsyncExitStack()
        self._servers: dict[int, _Server] = {}
        self._tasks = _Tasks()
        self._writing = asyncio.Lock()
        self.decisions: deque[PastDecision] = deque(maxlen=_REMEMBERED_DECISIONS)
        self.counts = ServiceCounts()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.secret = _stored_secret(self._folder / _SECRET_NAME)
            await stack.enter_async_context(self._provisioner)
            while len(self._provisioner.servers) < self._settings.first_servers:
                await self._provisioner.start()
            self._children = DispatcherChildren(self.secret, self._folder)
            stack.push_async_callback(self._children.close)
            stack.push_async_callback(self._disconnect)
            addresses = self._provisioner.servers
            failures = [error for address in addresses if (error := await self._take_in(address))]
            if len(failures) == len(addresses) and not self._provisioner.crashed():
                raise failures[-1]
            for error in failures:
                logger.warning("%s", error)
            self._keeper = self._stored_keeper()
            #: The ring that clients are told: everything that they look for in it is stored.
            self.told_ring = self.ring
            now = _now()
            self._balancer = ChannelBalancer(self._settings.balancer, now)
            await self._carry_out(self._keeper.resume(now))
            await self._reconcile(now)
            self._tasks.loop = asyncio.create_task(self._run())
            stack.push_async_callback(self._end_tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def ring(self) -> Ring:
        return self._keeper.ring

    @property
    def plan(self) -> PlanView:
        return PlanView(self.ring, self._keeper.entries, self._keeper.moving)

    @property
    def dispatchers(self) -> DispatcherChildren:
        return self._children

    @property
    def moves_in_progress(self) -> int:
        return len(self._keeper.moving)

    def servers(self) -> list[BalancedServer]:
        """All servers as the balancer sees them."""
        return [self._balanced(number) for number in sorted(self._servers)]

    def address_of(self, number: int) -> tuple[str, bool]:
        """A server's URL, and whether it answers."""
        server = self._servers[number]
        return server.control.url, server.down_since is None and server.control.is_up

    async def move(self, groups: Mapping[bytes, Groups]) -> None:
        """Moves channels by hand: for tests, benchmarks and operators."""
        self.counts.moves += len(groups)
        await self._carry_out(self._keeper.move(groups, _now()))

    async def add_server(self) -> ServerAddress:
        """
        :raises LimitExceeded: there can be no more servers.
        :raises ServerNotStarted: the server does not come up.
        """
        address = await self._provisioner.start()
        failure = await self._take_in(address)
        if failure is not None:
            logger.warning("%s", failure)
        await self._carry_out(self._keeper.server_added(address, _now()))
        return address

    async def retire_server(self, number: int) -> None:
        """Lets a server go when its channels have left it. The balancer moves them, or ``move`` does."""
        await self._carry_out(self._keeper.retire_server(number, _now()))

    async def _run(self) -> None:
        balanced_at = 0.0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                now = _now()
                await self._look_at_servers(now)
                await self._carry_out(self._keeper.tick(now))
                if self._settings.balance and now >= balanced_at + _BALANCE_SECONDS:
                    balanced_at = now
                    await self._balance(now)
            except CulverError as error:
                logger.warning("%s", error)
            except Exception:
                logger.exception("the service of the channels goes on after an error")

    async def _look_at_servers(self, now: float) -> None:
        await asyncio.gather(*(self._look_at(number, now) for number in list(self._servers)))

    async def _look_at(self, number: int, now: float) -> None:
        server = self._servers[number]
        try:
            if not server.control.is_up:
                await self._bring_up(number, server, now)
            report, load = await server.control.read()
        except CulverError as error:
            await self._is_down(number, server, error, now)
            return
        if load is not None and load != server.load:
            server.load = load
            server.capacity.observe(load, now)
        if report is not None:
            await self._carry_out(self._keeper.report(report, now))

    async def _bring_up(self, number: int, server: _Server, now: float) -> None:
        if number in self._provisioner.crashed():
            self.counts.server_restarts += 1
            logger.warning("server %d has ended and is started again", number)
            await self._provisioner.restart(number)
        await server.control.connect()
        server.down_since = None
        if number not in self.ring.numbers:
            address = next(each for each in self._provisioner.servers if each.number == number)
            await self._carry_out(self._keeper.server_added(address, now))
        await self._carry_out(self._keeper.server_restarted(number, now))

    async def _is_down(self, number: int, server: _Server, error: CulverError, now: float) -> None:
        await server.control.close()
        if server.down_since is None:
            server.down_since = now
            server.load = None
            logger.warning("server %d is down: %s", number, error)
            await self._carry_out(self._keeper.server_down(number, now))
        elif (
            now >= server.down_since + _LOST_SECONDS
            and number in self.ring.numbers
            and len(self.ring.numbers) > 1
        ):
            self.counts.lost_servers += 1
            logger.error("server %d is lost: its channels get other servers", number)
            await self._carry_out(self._keeper.server_lost(number, now))

    async def _balance(self, now: float) -> None:
        spared = self._balancer.sparing
        for number, server in self._servers.items():
            wanted = number == spared and server.control.is_up
            server.subscribed_channels = await server.control.subscribed_channels() if wanted else None
        decision = self._balancer.decide(self.servers(), self.plan, now)
        if decision.is_empty:
            return
        self._remember(decision)
        self.counts.moves += len(decision.entries)
        await self._carry_out(self._keeper.move(decision.entries, now))
        await self._carry_out(self._keeper.forget(decision.forget, now))
        for number in decision.stop:
            await self.retire_server(number)
        for _ in range(decision.start):
            self._spawn(self._start_server())

    def _remember(self, decision: BalancerDecision) -> None:
        self.counts.decisions += 1
        for reason in decision.reasons:
            logger.info("balancer: %s", reason)
        moves, started = len(decision.entries), decision.start
        self.decisions.append(PastDecision(time.time(), decision.reasons, moves, started, decision.stop))

    async def _start_server(self) -> None:
        try:
            await self.add_server()
        except (LimitExceeded, ServerNotStarted) as error:
            logger.error("no server could be added: %s", error)

    async def _carry_out(self, instructions: list[KeeperInstruction]) -> None:
        """Carries out what one call of the keeper has returned, after all that earlier calls have: no server may end
        up with an older route or ring."""
        ring = self.ring
        if self._keeper.changed:
            write_whole(self._folder / _PLAN_NAME, [self._keeper.dump()], durable=True)
        if not instructions and ring is self.told_ring:
            return
        async with self._writing:
            for stage in stages_of(instructions):
                if isinstance(stage[0], WriteRing):
                    self.told_ring = ring
                await self._write(stage)
            self.told_ring = ring
            for instruction in instructions:
                if isinstance(instruction, ReleaseServer):
                    await self._release(instruction.server)

    async def _write(self, instructions: list[KeeperInstruction]) -> None:
        """Writes to all servers at once."""
        servers = [server.control for server in self._servers.values()]
        written = (control.carry_out(instructions) for control in servers)
        for control, failure in zip(
            servers, await asyncio.gather(*written, return_exceptions=True), strict=True
        ):
            if isinstance(failure, CulverError):
                logger.warning("server %d: %s", control.number, failure)
            elif failure is not None:
                raise failure

    async def _release(self, number: int) -> None:
        server = self._servers.pop(number, None)
        if server is not None:
            await self._children.stop(number)
            await server.control.close()
            await self._provisioner.stop(number)

    async def _take_in(self, address: ServerAddress) -> CulverError | None:
        """Returns why the server cannot be used yet; the service goes on trying."""
        access = self._provisioner.access(address.number)
        control = ServerControl(address.number, address.url, access, self.secret)
        settings = self._settings
        capacity = ServerCapacity(settings.bandwidth, is_limit=settings.bandwidth_is_limit)
        price = self._provisioner.price(address.number)
        self._servers[address.number] = _Server(control, capacity, price)
        failure = None
        try:
            await control.connect()
        except CulverError as error:
            failure = error
        self._children.start(address, access)
        return failure

    def _stored_keeper(self) -> PlanKeeper:
        path = self._folder / _PLAN_NAME
        if path.exists():
            try:
                return PlanKeeper.load(path.read_bytes())
            except (msgspec.DecodeError, ValueError) as error:
                raise StorageCorrupt(
                    f"the plan in {path} cannot be read: {error}; remove it to begin with an empty plan"
                ) from error
        servers = self._provisioner.servers
        return PlanKeeper(Ring(1, servers, tuple(server.number for server in servers)))

    async def _reconcile(self, now: float) -> None:
        """Brings a stored ring in line with the servers that there are."""
        known = {server.number: server for server in self._provisioner.servers}
        for number in known.keys() - self.ring.numbers:
            await self._carry_out(self._keeper.server_added(known[number], now))
        for number in self.ring.numbers - known.keys():
            await self._carry_out(self._keeper.server_lost(number, now))

    def _balanced(self, number: int) -> BalancedServer:
        server = self._servers[number]
        down = server.down_since is not None
        state = ServerState.DEAD if down and number not in self.ring.numbers else ServerState.UP
        return BalancedServer(
            number, server.capacity, server.load, state, server.price, server.subscribed_channels
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.pool.add(task)
        task.add_done_callback(self._tasks.pool.discard)

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks.pool, *([self._tasks.loop] if self._tasks.loop is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _disconnect(self) -> None:
        await asyncio.gather(*(server.control.close() for server in self._servers.values()))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _stored_secret(path: Path) -> bytes:
    if path.exists():
        return path.read_bytes()
    secret = secrets.token_bytes(32)
    write_whole(path, [secret], durable=True)
    path.chmod(0o600)
    return secret
