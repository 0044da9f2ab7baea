"""Scenarios of the channels: clients publish and subscribe while channels move, and while things break.

python -m culver.simulation culver.simulation.channel_scenarios:troubled_channels --seeds 0 10000
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from culver.channels.core.envelope import EnvelopeKind, is_ours, kind_of
from culver.channels.core.reserved_names import RESERVED_PREFIX
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_channels import ChannelWorld, Groups, SimulatedClient
from culver.simulation.simulated_network import LinkQuality

_SERVERS = (1, 2, 3)
_CHANNELS = (b"alpha", b"beta", b"gamma", b"delta")
_PATTERN = b"*a"

#: One server, both kinds of replication, and both at once.
_PLACES: tuple[Groups, ...] = (
    *(((1,),), ((2,),), ((3,),)),
    *(((1, 2),), ((1, 2, 3),)),
    *(((1,), (2,)), ((2,), (3,)), ((1,), (2,), (3,))),
    *(((1, 2), (3,)), ((1,), (2, 3))),
)

_TRAFFIC_SECONDS = 25.0
#: Servers that leave are gone half a minute after their last use.
_RESIZING_SECONDS = 75.0
#: Within this time every message has come or been reported, and moves have calmed down.
_CALM_SECONDS = 15.0
_PUBLICATIONS_PER_SECOND = 25.0
#: A subscriber has read the tails of a channel by then, also if it was cut off meanwhile.
_STEADY_SECONDS = 8.0
#: A publisher has stored its tail by then.
_LAST_WORDS_SECONDS = 2.0
_FAULTS_PER_SECOND = 0.4
_CHANGES_PER_SECOND = 0.25
_FAULT_SECONDS = (0.05, 0.3, 1.0, 3.0)
#: A publisher is back at a server by then: it notices a silent end, connects again, and waits for subscribers.
_BACK_SECONDS = 4.0


def moving_channels(run: SeededRun) -> None:
    """Channels move all the time and are replicated, and nothing breaks: no message may be lost, not even with a
    report."""
    traffic = _Traffic(run, moves_per_second=2.0)
    traffic.go_on()
    _check_without_losses(traffic)


def resized_channels(run: SeededRun) -> None:
    """Channels move, servers are added and leave, and the keeper dies now and then: no message may be lost."""
    traffic = _Traffic(run, moves_per_second=1.0, traffic_seconds=_RESIZING_SECONDS)
    pool = _Pool(traffic)
    traffic.place = pool.place
    run.clock.at(4, pool.change)
    traffic.go_on()
    _check_without_losses(traffic)


def troubled_channels(run: SeededRun) -> None:
    """Channels move while servers, dispatchers, the keeper, clients, connections and messages get lost.

    Nobody subscribes by a pattern here: such a subscriber cannot read tails of channels that it does not know, so it
    does not notice the loss of the first messages of a publisher.
    """
    traffic = _Traffic(run, patterns=False)
    faults = _Faults(traffic)
    run.clock.at(4, faults.strike)
    traffic.go_on()
    traffic.world.check()


def random_groups(servers: Sequence[int], random: Random) -> Groups:
    """Any entry on some of these servers: one server, either replication, or both at once."""
    chosen = random.sample(servers, random.randint(1, len(servers)))
    groups = []
    while chosen:
        width = random.randint(1, len(chosen))
        groups.append(tuple(chosen[:width]))
        chosen = chosen[width:]
    return tuple(groups)


def _check_without_losses(traffic: "_Traffic") -> None:
    traffic.world.check()
    lost = traffic.world.oracle.reported_losses
    if lost:
        traffic.run.violate(f"{lost} messages are reported as lost, and nothing was broken")


class _Traffic:
    """Four clients that publish and subscribe, and channels that move. Links differ from run to run."""

    def __init__(
        self,
        run: SeededRun,
        *,
        patterns: bool = True,
        moves_per_second: float = 0.5,
        traffic_seconds: float = _TRAFFIC_SECONDS,
    ) -> None:
        self.run = run
        self.place: Callable[[], Groups] = lambda: self.random.choice(_PLACES)
        self._traffic_seconds = traffic_seconds
        self._moves_per_second = moves_per_second
        self._patterns = patterns
        self.random = run.random("traffic")
        jitter = self.random.choice((0.0005, 0.005, 0.02))
        self.world = ChannelWorld(
            run,
            len(_SERVERS),
            quality=LinkQuality(0.0005, jitter),
            grace_seconds=12,
            steady_after_seconds=_STEADY_SECONDS,
            last_words_seconds=_LAST_WORDS_SECONDS,
        )
        self.clients = [self.world.add_client(name) for name in ("ann", "bob", "cid", "dee")]
        run.clock.run_until(1)
        for client in self.clients:
            self.subscribe(client)

    def subscribe(self, client: SimulatedClient) -> None:
        client.subscribe(*self.random.sample(_CHANNELS, 2))
        if self._patterns and self.random.random() < 0.25:
            client.psubscribe(_PATTERN)

    def go_on(self) -> None:
        """Runs to the end."""
        self._publish()
        self._move()
        self.run.clock.run_until(self._traffic_seconds + _CALM_SECONDS)

    def again(self, per_second: float, action: Callable[[], None]) -> None:
        if self.run.clock.now < self._traffic_seconds:
            self.run.clock.after(self.random.expovariate(per_second), action)

    def _publish(self) -> None:
        client = self.random.choice(self.clients)
        if client.host.is_running:
            client.publish(self.random.choice(_CHANNELS))
        self.again(_PUBLICATIONS_PER_SECOND, self._publish)

    def _move(self) -> None:
        if self.world.keeper.is_running:
            self.world.move({self.random.choice(_CHANNELS): self.place()})
        self.again(self._moves_per_second, self._move)


class _Pool:
    """Adds servers and lets others go, between two and six of them."""

    def __init__(self, traffic: _Traffic) -> None:
        self._traffic = traffic
        self._world = traffic.world
        self._random = traffic.run.random("pool")
        self._leaving: set[int] = set()

    def place(self) -> Groups:
        return random_groups(self._usable(), self._random)

    def change(self) -> None:
        if self._world.keeper.is_running:
            self._world.stop_released_servers()
            choice, usable = self._random.random(), self._usable()
            if choice < 0.2:
                self._world.kill_keeper()
                self._world.clock.after(self._random.choice(_FAULT_SECONDS), self._world.start_keeper)
            elif choice < 0.6 and len(self._world.servers) < 6:
                self._world.add_server()
            elif len(usable) > 2:
                self._let_go(self._random.choice(usable))
        self._traffic.again(_CHANGES_PER_SECOND, self.change)

    def _usable(self) -> list[int]:
        return sorted(self._world.servers.keys() - self._leaving)

    def _let_go(self, server: int) -> None:
        """Moves everything from the server, as the balancer does, and lets it go."""
        self._leaving.add(server)
        self._world.move({channel: ((self._random.choice(self._usable()),),) for channel in _CHANNELS})
        self._world.retire_server(server)


class _Faults:
    """Breaks something now and then, and mends it after a while."""

    def __init__(self, traffic: _Traffic) -> None:
        self._traffic = traffic
        self._world = traffic.world
        self._random = traffic.run.random("faults")
        self._kinds = (
            self._crash_server,
            self._kill_dispatcher,
            self._kill_keeper,
            self._kill_client,
            self._break_connection,
            self._cut_off_client,
            self._pause_client,
            self._lose_notes,
        )

    def strike(self) -> None:
        self._random.choice(self._kinds)(self._random.choice(_FAULT_SECONDS))
        self._traffic.again(_FAULTS_PER_SECOND, self.strike)

    def _crash_server(self, seconds: float) -> None:
        server = self._random.choice(_SERVERS)
        if self._world.servers[server].is_running:
            self._world.crash_server(server, silently=self._random.random() < 0.2)
            self._world.clock.after(seconds, lambda: self._world.start_server(server))
            self._mute(seconds, lambda _, home: home == server)

    def _kill_dispatcher(self, seconds: float) -> None:
        server = self._random.choice(_SERVERS)
        if self._world.dispatchers[server].is_running:
            self._world.kill_dispatcher(server)
            self._world.clock.after(seconds, lambda: self._world.start_dispatcher(server))

    def _kill_keeper(self, seconds: float) -> None:
        if self._world.keeper.is_running:
            self._world.kill_keeper()
            self._world.clock.after(seconds, self._world.start_keeper)

    def _kill_client(self, seconds: float) -> None:
        client = self._random.choice(self._traffic.clients)
        if client.host.is_running:
            client.kill(silently=self._random.random() < 0.2)
            self._world.clock.after(seconds, partial(self._revive, client))

    def _revive(self, client: SimulatedClient) -> None:
        client.start()
        self._traffic.subscribe(client)

    def _break_connection(self, seconds: float) -> None:
        ends = self._world.network.connections(f"server-{self._random.choice(_SERVERS)}")
        if ends:
            end = self._random.choice(ends)
            is_silent = self._random.random() < 0.3
            self._world.run.record("break connection", end.node, end.peer_node, is_silent)
            (self._world.network.make_half_open if is_silent else self._world.network.reset)(end)

    def _cut_off_client(self, seconds: float) -> None:
        client = self._random.choice(self._traffic.clients)
        servers = self._random.sample([f"server-{server}" for server in _SERVERS], self._random.randint(1, 3))
        self._world.run.record("cut off", client.name, str(servers), seconds)
        cut = self._world.network.partition([client.name], servers)
        self._world.clock.after(seconds, cut.end)
        self._mute(
            seconds, lambda publisher, home: publisher in client.publishers and f"server-{home}" in servers
        )

    def _pause_client(self, seconds: float) -> None:
        client = self._random.choice(self._traffic.clients)
        if client.host.is_running:
            self._world.run.record("pause", client.life, seconds)
            client.host.pause()
            self._world.clock.after(seconds, client.host.resume)
            self._mute(seconds, lambda publisher, _: publisher in client.publishers)

    def _mute(self, seconds: float, is_muted: Callable[[int, int], bool]) -> None:
        """Tells the oracle which publishers cannot reach which homes of channels."""
        now, ring = self._world.clock.now, self._world.ring
        end = now + seconds + _BACK_SECONDS
        self._world.oracle.mutes(lambda publisher, channel: is_muted(publisher, ring.home(channel)), now, end)

    def _lose_notes(self, seconds: float) -> None:
        """Half of the switch messages and notes of the service vanish on their way to clients and dispatchers."""
        redis = self._world.servers[self._random.choice(_SERVERS)].redis
        random = self._world.run.random(f"lost at {self._world.clock.now}")
        self._world.run.record("lose notes", seconds)
        redis.loses = lambda session, channel, message: _is_note(channel, message) and random.random() < 0.5
        self._world.clock.after(seconds, lambda: setattr(redis, "loses", None))


def _is_note(channel: bytes, message: bytes) -> bool:
    return channel.startswith(RESERVED_PREFIX) or (
        is_ours(message) and kind_of(message) == EnvelopeKind.SWITCH
    )
