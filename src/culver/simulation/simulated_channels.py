"""A world of Redis servers, dispatchers, the keeper of the plan and clients, with an oracle that watches the clients.

Everything but the servers is a core of production in a ``CoreHost``. A scenario builds a world on a run, lets clients
publish and subscribe, moves channels, breaks what it likes, and calls ``check`` at the end:

    world = ChannelWorld(run, servers=3)
    ann = world.add_client("ann")
    ann.subscribe(b"news")
    world.move({b"news": ((1, 2),)})
    run.clock.run_for(30)
    world.check()
"""

from collections.abc import Callable, Mapping

from culver.channels.core.balance.keeper_instructions import KeeperInstruction
from culver.channels.core.balance.plan_keeper import PlanKeeper
from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.core.client_core import ClientCore
from culver.channels.core.dispatcher_core import DispatcherCore
from culver.channels.core.envelope import EnvelopeKind, is_ours, kind_of, unpack
from culver.channels.core.instructions import (
    Confirm,
    Deliver,
    FetchRing,
    Instruction,
    PublicationDone,
    ReportGap,
    Send,
    Warn,
)
from culver.channels.core.message_order import TAIL_AGE_SECONDS
from culver.simulation.core_host import CoreHost, HostTiming, node_of_server
from culver.simulation.delivery_oracle import DeliveryOracle
from culver.simulation.redis.redis_node import RedisNode
from culver.simulation.redis.simulated_redis import OutputLimit
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_keeper import SimulatedKeeper
from culver.simulation.simulated_network import LinkQuality, SimulatedNetwork

_SECRET = b"the secret of a simulated service"
_FETCH_SECONDS = 0.02

Groups = tuple[tuple[int, ...], ...]


class ChannelWorld:
    """Starts ``servers`` servers with their dispatchers, and the keeper. All servers are homes.

    A subscription is promised everything that is published ``steady_after_seconds`` after its confirmation: before
    that, a client that knows no publisher yet cannot notice the loss of a first message.
    """

    def __init__(
        self,
        run: SeededRun,
        servers: int,
        *,
        quality: LinkQuality = LinkQuality(),  # noqa: B008  (frozen)
        limit: OutputLimit | None = None,
        steady_after_seconds: float = TAIL_AGE_SECONDS + 1.0,
        grace_seconds: float = 5.0,
        last_words_seconds: float = 0.0,
    ) -> None:
        self.run = run
        self.clock = run.clock
        self.random = run.random("cores")
        self.network = SimulatedNetwork(run.clock, run.random("network"), quality)
        self.oracle = DeliveryOracle(grace_seconds, last_words_seconds)
        self.steady_after_seconds = steady_after_seconds
        self.servers: dict[int, RedisNode] = {}
        self.dispatchers: dict[int, CoreHost[DispatcherCore]] = {}
        self.clients: dict[str, SimulatedClient] = {}
        self._limit = limit
        numbers = range(1, servers + 1)
        addresses = tuple(ServerAddress(number, node_of_server(number)) for number in numbers)
        self._told_ring = Ring(1, addresses, tuple(numbers))
        self._saved = PlanKeeper(self._told_ring).dump()
        self._last_server = servers
        for number in numbers:
            self._add_server(number)
        self.keeper = CoreHost[SimulatedKeeper]("keeper", run.clock, self.network, self._warn)
        self.start_keeper()

    @property
    def ring(self) -> Ring:
        """The ring that the service tells; the last one while its keeper is down."""
        if self.keeper.is_running:
            return self.keeper.core.told_ring
        return self._told_ring

    def _add_server(self, number: int) -> None:
        node = RedisNode(node_of_server(number), self.clock, self.network, self._limit)
        self.servers[number] = node
        node.start()
        self.dispatchers[number] = CoreHost(f"dispatcher-{number}", self.clock, self.network, self._warn)
        self.start_dispatcher(number)

    def add_server(self) -> None:
        """Starts another server and tells the keeper."""
        self._last_server += 1
        address = ServerAddress(self._last_server, node_of_server(self._last_server))
        self.run.record("add server", address.number)
        self._add_server(address.number)
        self._act(lambda keeper, now: keeper.server_added(address, now))

    def retire_server(self, number: int) -> None:
        """Asks the keeper to let a server go. `stop_released_servers` ends it some time later."""
        self.run.record("retire server", number)
        self._act(lambda keeper, now: keeper.retire_server(number, now))

    def stop_released_servers(self) -> None:
        released = self.keeper.core.released
        while released:
            number = released.pop()
            self.run.record("stop server", number)
            self.dispatchers.pop(number).kill()
            self.servers.pop(number).crash()

    def start_server(self, number: int) -> None:
        """Starts a server that has crashed; it is empty."""
        self.run.record("start server", number)
        self.servers[number].start()

    def crash_server(self, number: int, *, silently: bool = False) -> None:
        self.run.record("crash server", number, silently)
        self.servers[number].crash(silently=silently)
        self.oracle.loses_homes(lambda channel: self.ring.home(channel) == number, self.clock.now)

    def start_dispatcher(self, number: int) -> None:
        core = DispatcherCore(number, _SECRET, self.random)
        self.dispatchers[number].start(core, self._some_tick())
        self.dispatchers[number].call(DispatcherCore.start)

    def kill_dispatcher(self, number: int) -> None:
        self.run.record("kill dispatcher", number)
        self.dispatchers[number].kill()

    def start_keeper(self) -> None:
        """Starts the keeper with what the last one has saved."""
        keeper = PlanKeeper.load(self._saved)
        core = SimulatedKeeper(keeper, self._told_ring, _SECRET, self.random, self._save, self.clock.now)
        self.keeper.start(core, self._some_tick())

    def kill_keeper(self) -> None:
        self.run.record("kill keeper")
        self._told_ring = self.ring
        self.keeper.kill()

    def add_client(self, name: str) -> "SimulatedClient":
        client = self.clients[name] = SimulatedClient(self, name)
        return client

    def move(self, groups: Mapping[bytes, Groups]) -> None:
        """Asks the keeper to serve channels by other groups of servers."""
        for channel, wanted in groups.items():
            self.run.record("move", channel, str(wanted))
        self._act(lambda keeper, now: keeper.move(groups, now))

    def _act(self, action: Callable[[PlanKeeper, float], list[KeeperInstruction]]) -> None:
        self.keeper.call(lambda core, now: core.act(action, now))

    def check(self) -> None:
        """Hands the oracle's violations to the run."""
        for text in self.oracle.check(self.clock.now):
            self.run.violate(text)

    def _save(self, data: bytes) -> None:
        self._saved = data

    def _some_tick(self) -> float:
        return self.random.random() * HostTiming().tick_seconds

    def _warn(self, instruction: Instruction) -> None:
        if isinstance(instruction, Warn):
            self.run.record("warning", instruction.text)


class SimulatedClient:
    """One client. It is started at once; each life after a ``kill`` is another publisher and subscriber."""

    def __init__(self, world: ChannelWorld, name: str) -> None:
        self._world = world
        self.name = name
        self._host = CoreHost[ClientCore](
            name, world.clock, world.network, self._carry_out, on_send=self._numbers
        )
        self._lives = 0
        #: The numbers of all its lives as a publisher.
        self.publishers: set[int] = set()
        self._publications = 0
        self._tokens: dict[int, tuple[bytes, bytes]] = {}
        self.start()

    @property
    def life(self) -> str:
        """This life's name as a subscriber."""
        return f"{self.name}/{self._lives}"

    @property
    def host(self) -> CoreHost[ClientCore]:
        return self._host

    def start(self) -> None:
        self._lives += 1
        self._tokens.clear()
        random = self._world.random
        core = ClientCore(random.getrandbits(64), self._world.ring, _SECRET, random)
        self.publishers.add(core.client)
        self._host.start(core, self._world._some_tick())

    def kill(self, *, silently: bool = False) -> None:
        self._world.run.record("kill client", self.life, silently)
        self._world.oracle.vanishes(self.life, self._world.clock.now)
        self._world.oracle.dies(self._host.core.client, self._world.clock.now)
        self._host.kill(silently=silently)

    def publish(self, channel: bytes) -> bytes:
        """Publishes a payload that nobody else publishes, and returns it."""
        self._publications += 1
        payload = b"%s:%d" % (self.life.encode(), self._publications)
        now = self._world.clock.now
        self._world.run.record("publish", channel, payload)
        self._world.oracle.begins(channel, payload, self._host.core.client, now)
        token, instructions = self._host.core.publish(channel, payload, now)
        self._tokens[token] = (channel, payload)
        self._host.run(instructions)
        return payload

    def subscribe(self, *channels: bytes) -> None:
        for channel in channels:
            self._world.oracle.joins(self.life, channel)
        self._host.call(lambda core, now: core.subscribe(channels, now))

    def unsubscribe(self, *channels: bytes) -> None:
        for channel in channels:
            self._world.oracle.leaves(self.life, channel, self._world.clock.now)
        self._host.call(lambda core, now: core.unsubscribe(channels))

    def psubscribe(self, *patterns: bytes) -> None:
        for pattern in patterns:
            self._world.oracle.joins(self.life, pattern, is_pattern=True)
        self._host.call(lambda core, now: core.psubscribe(patterns, now))

    def punsubscribe(self, *patterns: bytes) -> None:
        for pattern in patterns:
            self._world.oracle.leaves(self.life, pattern, self._world.clock.now, is_pattern=True)
        self._host.call(lambda core, now: core.punsubscribe(patterns))

    def _carry_out(self, instruction: Instruction) -> None:
        world, now, life = self._world, self._world.clock.now, self.life
        match instruction:
            case Deliver(channel, payload, pattern):
                world.run.record("deliver", life, channel, payload, pattern)
                world.oracle.delivers(life, channel, payload, now, pattern)
            case ReportGap(gap):
                world.run.record("gap", life, gap.channel, gap.publisher, gap.epoch, gap.first, gap.last)
                world.oracle.reports(life, gap)
            case Confirm(kind, channel):
                world.run.record(kind, life, channel)
                self._confirmed(kind, channel)
            case PublicationDone(token, receivers, error):
                channel, payload = self._tokens.pop(token)
                world.run.record("done", channel, payload, receivers, None if error is None else str(error))
                if error is None:
                    world.oracle.accepts(channel, payload, now)
            case FetchRing():
                world.clock.after(_FETCH_SECONDS, lambda: self._ring_fetched(life))
            case Warn(text):
                world.run.record("warning", life, text)

    def _confirmed(self, kind: str, name: bytes) -> None:
        oracle, clock, life = self._world.oracle, self._world.clock, self.life
        is_pattern = kind.startswith("p")
        if "unsubscribe" in kind:
            oracle.has_left(life, name, clock.now, is_pattern=is_pattern)
        else:
            oracle.confirms(life, name, clock.now, is_pattern=is_pattern)
            steady = self._world.steady_after_seconds
            clock.after(steady, lambda: oracle.is_steady(life, name, clock.now, is_pattern=is_pattern))

    def _ring_fetched(self, life: str) -> None:
        if self._host.is_running and self.life == life:
            self._host.call(lambda core, now: core.directory_fetched(self._world.ring, _SECRET, now))

    def _numbers(self, send: Send) -> None:
        """Tells the oracle the number of each publication that is sent."""
        if send.command[0] != b"PUBLISH" or not is_ours(send.command[2]):
            return
        if kind_of(send.command[2]) in (EnvelopeKind.MESSAGE, EnvelopeKind.CHAINED):
            envelope = unpack(send.command[2])
            channel = send.command[1]
            self._world.oracle.numbers(channel, envelope.payload, envelope.epoch, envelope.sequence)
