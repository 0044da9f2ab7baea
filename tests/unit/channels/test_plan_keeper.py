from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from culver.channels.core.balance.channel_balancer import BalancerSettings, ChannelBalancer, PlanView
from culver.channels.core.balance.keeper_instructions import (
    DeleteEntry,
    DeleteRoute,
    KeeperInstruction,
    PokeDispatcher,
    ReleaseServer,
    RewriteServer,
    WriteEntry,
    WriteRing,
    WriteRoute,
)
from culver.channels.core.balance.load_estimate import BalancedServer
from culver.channels.core.balance.plan_keeper import MOST_MOVES, PREPARE_SECONDS, PlanKeeper
from culver.channels.core.balance.server_capacity import ServerCapacity
from culver.channels.core.channel_load import ChannelLoad, ServerLoad
from culver.channels.core.channel_plan import MoveRoute, PlanEntry, Ring, ServerAddress, single
from culver.channels.core.dispatcher_notes import ChannelVersion, DispatcherReport


def _ring(servers: Iterable[int], homes: tuple[int, ...] = (1,)) -> Ring:
    return Ring(1, tuple(_address(number) for number in servers), homes)


def _address(number: int) -> ServerAddress:
    return ServerAddress(number, f"redis://h{number}")


@dataclass
class Server:
    """What one server stores, and what its dispatcher has applied."""

    ring: Ring | None = None
    plan: dict[bytes, PlanEntry] = field(default_factory=dict)
    stored: dict[bytes, MoveRoute] = field(default_factory=dict)
    applied: dict[bytes, MoveRoute] = field(default_factory=dict)


class Pool:
    """Carries out instructions on servers that work, and checks every one of them."""

    def __init__(self, keeper: PlanKeeper) -> None:
        self.keeper = keeper
        self.servers = {number: Server() for number in keeper.ring.numbers}
        self.down: set[int] = set()
        self.released: list[int] = []
        self.stored = keeper.dump()
        self.told: dict[int, DispatcherReport] = {}
        self.versions: dict[bytes, PlanEntry] = {}
        self.highest = 0
        self.do(keeper.resume(0.0))

    def do(self, instructions: list[KeeperInstruction]) -> list[KeeperInstruction]:
        if self.keeper.changed:
            self.stored = self.keeper.dump()
        for instruction in instructions:
            if isinstance(instruction, ReleaseServer):
                self.released.append(instruction.server)
                self.servers.pop(instruction.server)
                self.told.pop(instruction.server, None)
                continue
            assert instruction.server not in self.keeper._down
            if instruction.server in self.down:
                # The keeper does not know yet that this server is down.
                continue
            server = self.servers[instruction.server]
            match instruction:
                case WriteRing(ring=ring):
                    assert server.ring is None or ring.version >= server.ring.version
                    server.ring = ring
                case WriteEntry(channel=channel, entry=entry):
                    self._check_visible(channel, entry)
                    server.plan[channel] = entry
                case DeleteEntry(channel=channel):
                    assert self.keeper.ring.home(channel) == instruction.server
                    server.plan.pop(channel, None)
                case WriteRoute(route=route):
                    server.stored[route.channel] = route
                case DeleteRoute(channel=channel):
                    server.stored.pop(channel, None)
                case RewriteServer(entries=entries, routes=routes):
                    server.plan = dict(entries)
                    server.stored = {route.channel: route for route in routes}
        return instructions

    def _check_visible(self, channel: bytes, entry: PlanEntry) -> None:
        """Versions rise; a version returns only with fewer servers, or at another home. Routes were applied."""
        before = self.versions.get(channel)
        if before is not None and entry.version == before.version:
            assert entry.servers <= before.servers
        else:
            assert entry.version > (0 if before is None else before.version)
            self.highest = max(self.highest, entry.version)
            route = self.keeper.routes.get(channel)
            if route is not None and route.current.version == entry.version:
                for server in route.servers:
                    assert ChannelVersion(channel, entry.version) in self.told[server].applied
        assert entry.servers <= self.keeper.ring.numbers
        self.versions[channel] = entry

    def read_routes(self, number: int) -> None:
        server = self.servers[number]
        server.applied = dict(server.stored)

    def report(self, number: int, now: float, *, done: bool = False) -> list[KeeperInstruction]:
        """``done``: no old entry on this server has subscribers or publishers any more."""
        routes = self.servers[number].applied.values()
        old = tuple(
            ChannelVersion(route.channel, entry.version)
            for route in routes
            if route.active and done
            for entry in route.previous
            if number in entry.servers
        )
        applied = tuple(ChannelVersion(route.channel, route.current.version) for route in routes)
        self.told[number] = DispatcherReport(number, 1, 1, applied, old, old)
        return self.do(self.keeper.report(self.told[number], now))

    def settle(self, now: float) -> float:
        """All dispatchers work until nothing is left to do."""
        for _ in range(200):
            now += 1
            for number in list(self.servers):
                if number not in self.down:
                    self.read_routes(number)
                    self.report(number, now, done=True)
            self.do(self.keeper.tick(now))
            if not self.keeper.routes and not self.keeper.moving:
                return now
        raise AssertionError(f"routes that do not end: {self.keeper.routes}, {self.keeper.moving}")


def _pool(servers: int = 3, homes: tuple[int, ...] = (1,)) -> Pool:
    return Pool(PlanKeeper(_ring(range(1, servers + 1), homes)))


def test_a_move_is_prepared_before_anybody_is_told() -> None:
    keeper = PlanKeeper(_ring([1, 2, 3]))
    route = MoveRoute(b"c", single(1, 2), (single(0, 1),), active=False)
    assert keeper.move({b"c": ((2,),)}, now=0.0) == [
        WriteRoute(1, route),
        WriteRoute(2, route),
        PokeDispatcher(1),
        PokeDispatcher(2),
    ]
    applied = (ChannelVersion(b"c", 1),)
    assert keeper.report(DispatcherReport(1, 1, 1, applied, (), ()), now=1.0) == []
    active = MoveRoute(b"c", single(1, 2), (single(0, 1),), active=True)
    assert keeper.report(DispatcherReport(2, 1, 1, applied, (), ()), now=1.5) == [
        WriteEntry(1, b"c", single(1, 2)),
        WriteRoute(1, active),
        WriteRoute(2, active),
        PokeDispatcher(1),
        PokeDispatcher(2),
    ]
    assert keeper.moving == {b"c"}


def test_a_route_first_stops_forwarding_to_an_empty_entry_and_ends_when_it_is_quiet() -> None:
    keeper = PlanKeeper(_ring([1, 2]))
    keeper.move({b"c": ((2,),)}, now=0.0)
    applied, old = (ChannelVersion(b"c", 1),), (ChannelVersion(b"c", 0),)
    for server in (1, 2):
        keeper.report(DispatcherReport(server, 1, 1, applied, (), ()), now=1.0)
    empty = MoveRoute(b"c", single(1, 2), (single(0, 1),), active=True, empty=(0,))
    assert keeper.report(DispatcherReport(1, 1, 2, applied, old, ()), now=2.0) == [
        WriteRoute(1, empty),
        WriteRoute(2, empty),
        PokeDispatcher(1),
        PokeDispatcher(2),
    ]
    assert keeper.moving == set()
    assert keeper.report(DispatcherReport(1, 1, 3, applied, old, old), now=33.0) == [
        DeleteRoute(1, b"c"),
        DeleteRoute(2, b"c"),
        PokeDispatcher(1),
        PokeDispatcher(2),
    ]
    assert keeper.entries == {b"c": single(1, 2)}


def test_a_move_that_a_dispatcher_does_not_apply_is_abandoned() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    pool.read_routes(1)
    pool.report(1, now=1.0)
    assert pool.do(pool.keeper.tick(PREPARE_SECONDS - 1))
    pool.do(pool.keeper.tick(PREPARE_SECONDS))
    assert pool.keeper.routes == {}
    assert pool.keeper.entries == {}
    assert pool.keeper.abandoned == 1
    assert all(not server.stored for server in pool.servers.values())
    pool.do(pool.keeper.move({b"c": ((3,),)}, now=20.0))
    assert pool.keeper.routes[b"c"].current.version == 2


def test_an_abandoned_move_returns_to_the_route_before() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    applied, old = (ChannelVersion(b"c", 1),), (ChannelVersion(b"c", 0),)
    for server in (1, 2, 1):
        pool.told[server] = DispatcherReport(server, 1, 1, applied, old if server == 1 else (), ())
        pool.do(pool.keeper.report(pool.told[server], now=1.0))
    before = pool.keeper.routes[b"c"]
    assert before.empty == (0,)
    pool.do(pool.keeper.move({b"c": ((3,),)}, now=2.0))
    assert pool.keeper.routes[b"c"].previous == (single(0, 1), single(1, 2))
    pool.do(pool.keeper.tick(now=2 + PREPARE_SECONDS))
    assert pool.keeper.routes[b"c"] == before
    assert b"c" not in pool.servers[3].stored


def test_moves_of_one_channel_wait_for_each_other_and_the_last_wish_wins() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    pool.do(pool.keeper.move({b"c": ((3,),)}, now=0.0))
    pool.do(pool.keeper.move({b"c": ((1, 3),)}, now=0.0))
    assert pool.keeper.routes[b"c"].current == single(1, 2)
    pool.settle(now=0.0)
    assert pool.keeper.entries[b"c"].groups == ((1, 3),)


def test_only_so_many_moves_are_made_at_once() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"%d" % number: ((2,),) for number in range(MOST_MOVES + 50)}, now=0.0))
    assert len(pool.keeper.routes) == MOST_MOVES
    assert len(pool.keeper.moving) == MOST_MOVES + 50
    pool.settle(now=0.0)
    assert len(pool.keeper.entries) == MOST_MOVES + 50


def test_a_wish_that_changes_nothing_is_forgotten() -> None:
    pool = _pool()
    assert pool.do(pool.keeper.move({b"c": ((1,),)}, now=0.0)) == []
    assert pool.keeper.moving == set()


def test_wishes_for_unknown_or_leaving_servers_are_ignored() -> None:
    pool = _pool()
    pool.do(pool.keeper.retire_server(3, now=0.0))
    assert pool.do(pool.keeper.move({b"c": ((9,),), b"d": ((3,),)}, now=0.0)) == []
    with pytest.raises(ValueError, match="disjoint"):
        pool.keeper.move({b"c": ((2,), (2,))}, now=0.0)


def test_a_forgotten_channel_moves_home_before_its_entry_is_deleted() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),), b"d": ((3,),)}, now=0.0))
    now = pool.settle(0.0)
    pool.do(pool.keeper.forget([b"c", b"unknown"], now))
    assert pool.keeper.routes[b"c"].current.groups == ((1,),)
    now = pool.settle(now)
    assert set(pool.keeper.entries) == set(pool.servers[1].plan) == {b"d"}
    pool.do(pool.keeper.move({b"c": ((2,),)}, now))
    route = pool.keeper.routes[b"c"]
    assert route.previous == (single(0, 1),)
    assert route.current.version == 4


def test_a_channel_that_moves_again_is_not_forgotten() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    now = pool.settle(0.0)
    pool.do(pool.keeper.forget([b"c"], now))
    pool.do(pool.keeper.move({b"c": ((1,),)}, now))
    pool.settle(now)
    assert pool.keeper.entries[b"c"].groups == ((1,),)


def test_no_move_begins_while_one_of_its_servers_is_down() -> None:
    pool = _pool()
    pool.do(pool.keeper.server_down(2, now=0.0))
    assert pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0)) == []
    assert pool.do(pool.keeper.server_restarted(2, now=1.0))
    assert b"c" in pool.keeper.routes


def test_a_server_that_was_started_again_gets_all_that_it_had() -> None:
    pool = _pool(homes=(1,))
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    now = pool.settle(0.0)
    pool.do(pool.keeper.move({b"d": ((3,),)}, now))
    rewrite, ring, poke = pool.do(pool.keeper.server_restarted(1, now))
    assert isinstance(rewrite, RewriteServer)
    assert rewrite.entries == {b"c": single(1, 2)}
    assert [route.channel for route in rewrite.routes] == [b"d"]
    assert ring == WriteRing(1, pool.keeper.ring)
    assert poke == PokeDispatcher(1)


def test_what_a_dispatcher_had_applied_before_its_server_restarted_does_not_count() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    pool.read_routes(1)
    pool.report(1, now=1.0)
    pool.do(pool.keeper.server_restarted(1, now=2.0))
    pool.read_routes(2)
    pool.report(2, now=3.0)
    assert not pool.keeper.routes[b"c"].active


def test_a_new_server_is_in_the_ring_before_anything_moves_there() -> None:
    pool = _pool(servers=1)
    pool.servers[2] = Server()
    pool.do(pool.keeper.server_added(_address(2), now=0.0))
    assert pool.keeper.ring == Ring(2, (_address(1), _address(2)), (1,))
    assert pool.servers[1].ring == pool.servers[2].ring == pool.keeper.ring
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=1.0))
    assert pool.servers[2].stored[b"c"].current == single(1, 2)


def test_a_lost_server_is_taken_from_the_ring_and_from_all_entries() -> None:
    pool = _pool(servers=4, homes=(1, 2))
    assert [pool.keeper.ring.home(name) for name in (b"b", b"e")] == [1, 2]
    groups = {b"b": ((2,),), b"e": ((1, 2), (3, 4)), b"c": ((2,), (3,)), b"d": ((3,),)}
    pool.do(pool.keeper.move(groups, now=0.0))
    now = pool.settle(0.0)
    pool.down.add(2)
    versions = {channel: entry.version for channel, entry in pool.keeper.entries.items()}
    instructions = pool.do(pool.keeper.server_lost(2, now))
    entries = pool.keeper.entries
    assert {channel: entry.groups for channel, entry in entries.items()} == {
        b"b": ((1,),),
        b"e": ((1,), (3, 4)),
        b"c": ((3,),),
        b"d": ((3,),),
    }
    assert entries[b"b"].version > max(versions.values())
    assert entries[b"e"].version == versions[b"e"]
    assert pool.keeper.ring.numbers == {1, 3, 4}
    assert pool.keeper.ring.homes == (1,)
    assert pool.servers[1].plan == entries
    rings = [place for place, one in enumerate(instructions) if isinstance(one, WriteRing)]
    assert min(rings) > max(p for p, one in enumerate(instructions) if isinstance(one, WriteEntry))


def test_losing_the_only_home_makes_the_others_homes() -> None:
    pool = _pool(servers=3, homes=(1,))
    pool.do(pool.keeper.server_lost(1, now=0.0))
    assert pool.keeper.ring.homes == (2, 3)


def test_a_server_that_was_to_leave_stays_when_the_others_are_lost() -> None:
    pool = _pool(servers=2, homes=(1, 2))
    pool.do(pool.keeper.retire_server(1, now=0.0))
    pool.do(pool.keeper.server_lost(2, now=1.0))
    pool.do(pool.keeper.tick(now=100.0))
    assert pool.released == []
    assert pool.keeper.ring.homes == (1,)


def test_the_last_server_is_not_taken_from_the_ring() -> None:
    pool = _pool(servers=1)
    assert pool.do(pool.keeper.server_lost(1, now=0.0)) == []
    assert pool.keeper.ring.numbers == {1}
    assert pool.do(pool.keeper.retire_server(1, now=0.0)) == []


def test_a_move_from_a_lost_server_begins_again_from_the_new_home() -> None:
    pool = _pool(servers=3, homes=(1,))
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    pool.down.add(1)
    pool.do(pool.keeper.server_lost(1, now=1.0))
    home = pool.keeper.ring.home(b"c")
    if home != 2:
        assert pool.keeper.routes[b"c"].previous == (single(0, home),)
    pool.settle(1.0)
    assert pool.keeper.entries.get(b"c", single(0, home)).groups == ((2,),)


def test_a_move_whose_new_server_is_lost_goes_home_once_that_is_prepared() -> None:
    pool = _pool(servers=3, homes=(1,))
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    for number in (1, 2):
        pool.read_routes(number)
        pool.report(number, now=1.0)
    assert pool.keeper.routes[b"c"].active
    pool.down.add(2)
    pool.do(pool.keeper.server_lost(2, now=2.0))
    route = pool.keeper.routes[b"c"]
    assert not route.active
    assert route.current.groups == ((1,),)
    pool.do(pool.keeper.tick(now=500.0))
    assert pool.keeper.routes[b"c"] == route
    pool.settle(500.0)
    assert pool.keeper.entries[b"c"].groups == ((1,),)


def test_a_retired_home_leaves_the_homes_first_and_the_ring_when_no_route_needs_it() -> None:
    pool = _pool(servers=3, homes=(1, 2))
    homes = {name: pool.keeper.ring.home(name) for name in (b"%d" % number for number in range(50))}
    active = {channel: ((1,),) for channel, home in homes.items() if home == 2}
    pool.do(pool.keeper.move(active, now=0.0))
    pool.do(pool.keeper.retire_server(2, now=0.0))
    pool.do(pool.keeper.tick(now=0.5))
    assert set(pool.keeper.ring.homes) == {1, 2}
    now = pool.settle(0.5)
    pool.do(pool.keeper.tick(now))
    assert set(pool.keeper.ring.homes) == {1}
    assert 2 in pool.keeper.ring.numbers
    assert set(active) <= set(pool.servers[1].plan)
    pool.do(pool.keeper.tick(now + 20))
    assert pool.released == []
    pool.do(pool.keeper.tick(now + 31))
    assert pool.released == [2]
    assert pool.keeper.ring.numbers == {1, 3}


def test_a_retired_server_waits_for_its_entries_to_move() -> None:
    pool = _pool(servers=3)
    pool.do(pool.keeper.move({b"c": ((3,),)}, now=0.0))
    now = pool.settle(0.0)
    pool.do(pool.keeper.retire_server(3, now))
    pool.do(pool.keeper.tick(now + 100))
    assert pool.released == []
    pool.do(pool.keeper.move({b"c": ((2,),)}, now + 100))
    now = pool.settle(now + 100)
    pool.do(pool.keeper.tick(now))
    pool.do(pool.keeper.tick(now + 31))
    assert pool.released == [3]


def test_a_restarted_keeper_goes_on_with_higher_versions() -> None:
    pool = _pool()
    pool.do(pool.keeper.move({b"c": ((2,),)}, now=0.0))
    pool.keeper = PlanKeeper.load(pool.stored)
    pool.do(pool.keeper.resume(now=0.0))
    assert pool.servers[1].ring is not None
    assert pool.servers[1].ring.version > 1
    # It does not know whether clients were told, so it never gives up.
    pool.do(pool.keeper.tick(now=100.0))
    assert b"c" in pool.keeper.routes
    now = pool.settle(100.0)
    assert pool.keeper.entries == {b"c": single(1, 2)}
    pool.do(pool.keeper.move({b"c": ((3,),)}, now))
    assert pool.keeper.routes[b"c"].current.version > 1000


def test_a_keeper_without_its_state_goes_on_from_the_entries_of_the_servers() -> None:
    keeper = PlanKeeper(_ring([1, 2, 3]), {b"c": single(41, 2)})
    keeper.move({b"c": ((3,),)}, now=0.0)
    assert keeper.routes[b"c"].current.version == 42


def test_bytes_that_are_no_state_are_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        PlanKeeper.load(b"\xff")


def test_the_keeper_carries_out_what_the_balancer_decides_while_servers_come_and_go() -> None:
    """60 channels grow from almost nothing to what four servers bear, and fall again; server 1 is the first home."""
    pool = _pool(servers=1)
    balancer = ChannelBalancer(BalancerSettings(max_servers=6), now=0.0)
    channels = [b"%02d" % number for number in range(60)]
    most, added = 1, 1

    def server(number: int, rate: float) -> BalancedServer:
        keeper = pool.keeper
        here = [
            channel
            for channel in channels
            if number in (keeper.entries.get(channel) or keeper.ring.home_entry(channel)).servers
        ]
        loads = tuple(ChannelLoad(name, 10, 1, 10, 100, rate, 100) for name in here)
        load = ServerLoad(number, 5.0, loads, outgoing_bytes=rate * len(here), cpu=0.01)
        return BalancedServer(number, ServerCapacity(10e6), load, subscribed_channels=tuple(here))

    for second in range(3000):
        now = float(second)
        rate = 0.5e6 * min(1.0, 0.02 + second / 600) if second < 1200 else 0.01e6
        for number in list(pool.servers):
            pool.read_routes(number)
            pool.report(number, now, done=True)
        pool.do(pool.keeper.tick(now))
        keeper = pool.keeper
        servers = [server(number, rate) for number in sorted(keeper.ring.numbers)]
        decision = balancer.decide(servers, PlanView(keeper.ring, keeper.entries, keeper.moving), now)
        pool.do(keeper.move(decision.entries, now))
        pool.do(keeper.forget(decision.forget, now))
        for number in decision.stop:
            pool.do(keeper.retire_server(number, now))
        for _ in range(decision.start):
            added += 1
            pool.servers[added] = Server()
            pool.do(keeper.server_added(_address(added), now))
        most = max(most, len(pool.servers))
        if second == 1199:
            assert max(one.load_ratio for one in servers) < 0.9
    assert 4 <= most <= 5
    assert len(pool.servers) == 1
    assert pool.keeper.ring.numbers == set(pool.servers)
    assert not pool.keeper.routes
    assert pool.keeper.abandoned == 0


EVENTS = ["move", "read", "report", "done", "up"] * 2
EVENTS += ["tick", "forget", "crash", "lost", "add", "retire", "balancer"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(10, 120))
def test_whatever_happens_versions_rise_clients_are_told_last_and_routes_end(
    seed: int, servers: int, steps: int
) -> None:
    random = Random(seed)
    pool = _pool(servers, homes=tuple(range(1, random.randint(1, servers) + 1)))
    channels = [b"%d" % number for number in range(4)]
    now, added = 0.0, servers

    def groups() -> tuple[tuple[int, ...], ...]:
        chosen = random.sample(
            sorted(pool.keeper.ring.numbers), random.randint(1, len(pool.keeper.ring.numbers))
        )
        width = random.randint(1, len(chosen))
        return tuple(tuple(chosen[at : at + width]) for at in range(0, len(chosen), width))

    for _ in range(steps):
        now += random.choice([0.1, 1.0, 4.0, 11.0])
        number = random.choice(sorted(pool.servers))
        up = number not in pool.down
        event = random.choice(EVENTS)
        if event == "move":
            pool.do(pool.keeper.move({random.choice(channels): groups()}, now))
        elif event == "forget":
            pool.do(pool.keeper.forget([random.choice(channels)], now))
        elif event == "read" and up:
            pool.read_routes(number)
        elif event in ("report", "done") and up:
            pool.report(number, now, done=event == "done")
        elif event == "tick":
            pool.do(pool.keeper.tick(now))
        elif event == "crash" and up:
            pool.down.add(number)
            pool.servers[number] = Server()
            if random.random() < 0.8:
                pool.told.pop(number, None)
                pool.do(pool.keeper.server_down(number, now))
        elif event == "up" and not up:
            pool.down.discard(number)
            pool.told.pop(number, None)
            pool.do(pool.keeper.server_restarted(number, now))
        elif event == "lost" and not up and len(pool.keeper.ring.numbers) > 1:
            pool.do(pool.keeper.server_lost(number, now))
            pool.servers.pop(number)
            pool.down.discard(number)
        elif event == "add" and len(pool.servers) < 6:
            added += 1
            pool.servers[added] = Server()
            pool.do(pool.keeper.server_added(_address(added), now))
        elif event == "retire" and random.random() < 0.5:
            pool.do(pool.keeper.retire_server(number, now))
        elif event == "balancer":
            down = set(pool.keeper._down)
            pool.keeper = PlanKeeper.load(pool.stored)
            pool.told.clear()
            for gone in sorted(down):
                pool.do(pool.keeper.server_down(gone, now))
            pool.do(pool.keeper.resume(now))
        assert pool.keeper._state.next_version > pool.highest
        for channel, route in pool.keeper.routes.items():
            seen = pool.keeper.entries.get(channel) or pool.keeper.ring.home_entry(channel)
            assert seen.groups in [entry.groups for entry in (route.current, *route.previous)]
            assert not route.active or seen == route.current

    for number in sorted(pool.down):
        pool.down.discard(number)
        pool.told.pop(number, None)
        pool.do(pool.keeper.server_restarted(number, now))
    pool.settle(now)
    ring = pool.keeper.ring
    assert set(pool.servers) == ring.numbers
    for number, server in pool.servers.items():
        assert server.stored == {}
        assert server.ring == ring
        for channel, entry in pool.keeper.entries.items():
            assert entry.servers <= ring.numbers
            if ring.home(channel) == number:
                assert server.plan[channel] == entry
        for channel in server.plan:
            assert channel in pool.keeper.entries or ring.home(channel) != number
