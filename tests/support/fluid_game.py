"""The game of Dynamoth's evaluation with servers that are queues of bytes: minutes of play in a second.

Players walk as in the benchmark, and the balancer is the product's own. A server sends what its bandwidth allows and
keeps the rest, so an update that passes it waits for what is before it. Servers, clients and moves cost nothing else.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from random import Random

from culver.bench.channels.clients.game_world import GameWorld, WalkingPlayer
from culver.channels.core.balance.channel_balancer import BalancerSettings, ChannelBalancer, PlanView
from culver.channels.core.balance.load_estimate import BalancedServer
from culver.channels.core.balance.server_capacity import ServerCapacity
from culver.channels.core.balance.server_groups import Groups
from culver.channels.core.channel_load import ChannelLoad, ServerLoad
from culver.channels.core.channel_plan import PlanEntry, Ring, ServerAddress

UPDATES_PER_SECOND = 3.0
_MESSAGE_BYTES = 276.0
_BANDWIDTH = 600_000.0
_STEPS_OF_A_SECOND = 4
_FIRST_PLAYERS = 40
_MOST_PLAYERS = 600
_PLAYERS_PER_SECOND = 0.25
_BEARABLE_SECONDS = 0.15
_OVERLOAD_SECONDS = 30
_WINDOW_SECONDS = 5
_MOVE_SECONDS = 2.0
_START_SECONDS = 1.0


@dataclass(slots=True)
class _Traffic:
    publications: float = 0.0
    sent: float = 0.0


@dataclass(slots=True)
class _Second:
    """What each server did: its tiles, and the bytes that it sent."""

    tiles: dict[int, dict[bytes, _Traffic]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(_Traffic))
    )
    sent_bytes: dict[int, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True, slots=True)
class _Player:
    walk: WalkingPlayer
    number: int
    first_sequence: int


class FluidGame(ABC):
    """One game until its players have waited too long for half a minute. ``steer`` is called once a second."""

    def __init__(self, world: GameWorld, settings: BalancerSettings, seed: int) -> None:
        self.world = world
        self.settings = settings
        self.now = 0.0
        self.ring = Ring(1, (ServerAddress(1, ""),), (1,))
        self.entries: dict[bytes, PlanEntry] = {}
        self.moving: dict[bytes, tuple[float, PlanEntry]] = {}
        self._seed = seed
        self._versions = 0
        self._capacities = {1: ServerCapacity(_BANDWIDTH, is_limit=True)}
        self._backlog: dict[int, float] = defaultdict(float)
        self._players: list[_Player] = []
        self._window: deque[_Second] = deque(maxlen=_WINDOW_SECONDS)

    def borne(self) -> int:
        """The players that there were when the average response time passed the bearable for good."""
        recent: deque[float] = deque(maxlen=_WINDOW_SECONDS)
        wanted, overloaded_at, borne = float(_FIRST_PLAYERS), None, 0
        while wanted < _MOST_PLAYERS:
            wanted += _PLAYERS_PER_SECOND
            while len(self._players) < int(wanted):
                self._join()
            recent.append(self._play_a_second())
            self.steer()
            if sum(recent) / len(recent) <= _BEARABLE_SECONDS:
                overloaded_at = None
            elif overloaded_at is None:
                overloaded_at, borne = self.now, len(self._players)
            elif self.now - overloaded_at >= _OVERLOAD_SECONDS:
                return borne
        return _MOST_PLAYERS

    @abstractmethod
    def steer(self) -> None:
        """Looks at the servers, and moves tiles or adds a server."""

    def servers(self) -> list[BalancedServer]:
        return [
            BalancedServer(number, self._capacities[number], self._load(number))
            for number in sorted(self.ring.numbers)
        ]

    def add_server(self) -> None:
        number = max(self.ring.numbers) + 1
        servers = (*self.ring.servers, ServerAddress(number, ""))
        self.ring = Ring(self.ring.version + 1, servers, self.ring.homes)
        self._capacities[number] = ServerCapacity(_BANDWIDTH, is_limit=True)

    def move(self, tile: bytes, groups: Groups) -> None:
        self._versions += 1
        self.moving[tile] = (self.now + _MOVE_SECONDS, PlanEntry(self._versions, groups))

    def _join(self) -> None:
        random = Random(f"{self._seed} {len(self._players)}")
        walk = WalkingPlayer(self.world, random, self.now)
        self._players.append(_Player(walk, random.getrandbits(63), random.randrange(64)))

    def _play_a_second(self) -> float:
        """Returns the average time that players' own updates have waited."""
        second = _Second()
        self._window.append(second)
        waited = 0.0
        for _ in range(_STEPS_OF_A_SECOND):
            self.now += 1 / _STEPS_OF_A_SECOND
            self._end_moves()
            crowds: dict[bytes, list[_Player]] = defaultdict(list)
            for player in self._players:
                crowds[player.walk.tile(self.now)].append(player)
            arrived, servers_of_players = self._publish(crowds, second)
            for server in self.ring.numbers:
                waiting = self._backlog[server] + arrived[server]
                sent = min(waiting, _BANDWIDTH / _STEPS_OF_A_SECOND)
                second.sent_bytes[server] += sent
                self._backlog[server] = waiting - sent
            waits = [self._backlog[server] / _BANDWIDTH for server in servers_of_players]
            waited += sum(waits) / len(waits)
        return waited / _STEPS_OF_A_SECOND

    def _publish(
        self, crowds: dict[bytes, list[_Player]], second: _Second
    ) -> tuple[dict[int, float], list[int]]:
        """Everybody on a tile publishes to all others there. Returns the bytes that servers have to send, and the
        server by which each player gets its own update."""
        arrived: dict[int, float] = defaultdict(float)
        own_servers: list[int] = []
        publications = UPDATES_PER_SECOND / _STEPS_OF_A_SECOND
        for tile, crowd in crowds.items():
            entry = self.entries.get(tile) or self.ring.home_entry(tile)
            subscribers: dict[int, int] = defaultdict(int)
            groups: list[tuple[int, ...]] = []
            for player in crowd:
                sequence = player.first_sequence + int(self.now * UPDATES_PER_SECOND)
                group = entry.publish_group(player.number, sequence)
                groups.append(group)
                subscribed = entry.subscribe_servers(player.number)
                own_servers += subscribed.intersection(group)
                for server in subscribed:
                    subscribers[server] += 1
            for server in chain.from_iterable(groups):
                traffic = second.tiles[server][tile]
                traffic.publications += publications
                traffic.sent += publications * subscribers[server]
                arrived[server] += publications * subscribers[server] * _MESSAGE_BYTES
        return arrived, own_servers

    def _end_moves(self) -> None:
        for tile, (at, entry) in list(self.moving.items()):
            if self.now >= at:
                self.entries[tile] = entry
                del self.moving[tile]

    def _load(self, server: int) -> ServerLoad:
        tiles: dict[bytes, _Traffic] = defaultdict(_Traffic)
        for second in self._window:
            for tile, traffic in second.tiles[server].items():
                tiles[tile].publications += traffic.publications
                tiles[tile].sent += traffic.sent
        seconds = len(self._window)
        sent_bytes = sum(second.sent_bytes[server] for second in self._window) / seconds
        channels = tuple(_channel_load(tile, traffic, seconds) for tile, traffic in tiles.items())
        return ServerLoad(server, seconds, channels, outgoing_bytes=sent_bytes, cpu=0.02)


def _channel_load(tile: bytes, traffic: _Traffic, seconds: int) -> ChannelLoad:
    return ChannelLoad(
        tile,
        publications=traffic.publications / seconds,
        publishers=1,
        subscribers=round(traffic.sent / traffic.publications),
        bytes_in=200 * traffic.publications / seconds,
        bytes_out=_MESSAGE_BYTES * traffic.sent / seconds,
        sent=traffic.sent / seconds,
    )


class BalancedGame(FluidGame):
    """The balancer decides. ``moves`` counts the channels that it has moved."""

    def __init__(self, world: GameWorld, settings: BalancerSettings, seed: int) -> None:
        super().__init__(world, settings, seed)
        self._balancer = ChannelBalancer(settings, 0.0)
        self._server_comes_at: float | None = None
        self.moves = 0

    def steer(self) -> None:
        if self._server_comes_at is not None and self.now >= self._server_comes_at:
            self._server_comes_at = None
            self.add_server()
        view = PlanView(self.ring, self.entries, self.moving)
        decision = self._balancer.decide(self.servers(), view, self.now)
        self.moves += len(decision.entries)
        for tile, groups in decision.entries.items():
            self.move(tile, groups)
        if decision.start:
            self._server_comes_at = self.now + _START_SECONDS


class HashedGame(FluidGame):
    """Consistent hashing: at every overload a new server takes its part of the ring."""

    _decided_at = float("-inf")

    def steer(self) -> None:
        overloaded = max(server.load_ratio for server in self.servers()) >= self.settings.thresholds.high
        too_early = self.now < self._decided_at + self.settings.wait_seconds
        if not overloaded or too_early or len(self.ring.servers) >= self.settings.max_servers:
            return
        self._decided_at = self.now
        before = self._homes(self.ring.numbers)
        self.add_server()
        for tile, home in self._homes(self.ring.numbers).items():
            if home != before[tile]:
                self.move(tile, ((home,),))

    def _homes(self, numbers: Iterable[int]) -> dict[bytes, int]:
        ring = Ring(1, self.ring.servers, tuple(sorted(numbers)))
        return {tile: ring.home(tile) for tile in self.world.tiles()}
