from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from culver.channels.core.balance.channel_balancer import (
    BalancerDecision,
    BalancerSettings,
    ChannelBalancer,
    PlanView,
)
from culver.channels.core.balance.load_estimate import BalancedServer, LoadEstimate, ServerState
from culver.channels.core.balance.plan_draft import PlanDraft
from culver.channels.core.balance.server_capacity import LoadThresholds, ServerCapacity
from culver.channels.core.balance.server_groups import Groups
from culver.channels.core.channel_load import ChannelLoad, ServerLoad
from culver.channels.core.channel_plan import PlanEntry, Ring, ServerAddress

MB = 1e6
BANDWIDTH = 10 * MB
THRESHOLDS = LoadThresholds()
SETTINGS = BalancerSettings(max_servers=8, wait_seconds=10, low_seconds=30)

Placed = Mapping[bytes, Groups]
Rates = Mapping[bytes, float]


class World:
    """Servers whose load follows the plan: each channel sends so many bytes per second, spread over its servers."""

    def __init__(self, placed: Placed, rates: Rates, servers: int, subscribers: int = 10) -> None:
        self.entries = {channel: PlanEntry(1, groups) for channel, groups in placed.items()}
        self.rates = dict(rates)
        self.subscribers = subscribers
        self.numbers = list(range(1, servers + 1))
        self.states: dict[int, ServerState] = {}
        self.prices: dict[int, float] = {}
        self.subscribed: dict[int, tuple[bytes, ...]] = {}
        self.moving: set[bytes] = set()
        addresses = tuple(ServerAddress(number, f"redis://h{number}") for number in self.numbers)
        self.ring = Ring(1, addresses, tuple(self.numbers))

    @property
    def plan(self) -> PlanView:
        return PlanView(self.ring, self.entries, self.moving)

    @property
    def servers(self) -> list[BalancedServer]:
        return [self._server(number) for number in self.numbers]

    def _server(self, number: int) -> BalancedServer:
        channels = []
        for channel, rate in self.rates.items():
            groups = self.plan.groups_of(channel)
            for group in groups:
                if number in group:
                    part = rate / len(groups) / len(group)
                    publications = rate / len(groups) / 100 / self.subscribers
                    listed = self.subscribers // len(group)
                    channels.append(
                        ChannelLoad(
                            channel, publications, 1, listed, publications * 50, part, publications * listed
                        )
                    )
        load = ServerLoad(
            number,
            5.0,
            tuple(channels),
            outgoing_bytes=sum(channel.bytes_out for channel in channels),
            cpu=0.05,
        )
        return BalancedServer(
            number,
            ServerCapacity(BANDWIDTH),
            load,
            self.states.get(number, ServerState.UP),
            self.prices.get(number, 1.0),
            self.subscribed.get(number, ()),
        )

    def ratios(self) -> dict[int, float]:
        return {server.number: server.capacity.load_ratio(_load(server)) for server in self.servers}

    def obey(self, decision: BalancerDecision) -> None:
        for channel, groups in decision.entries.items():
            self.entries[channel] = PlanEntry(
                self.entries.get(channel, PlanEntry(0, ((1,),))).version + 1, groups
            )
        self.numbers += [max(self.numbers) + 1 + place for place in range(decision.start)]
        for server in decision.stop:
            self.numbers.remove(server)


def _load(server: BalancedServer) -> ServerLoad:
    assert server.load is not None
    return server.load


def _decide(world: World, balancer: ChannelBalancer | None = None, now: float = 10.0) -> BalancerDecision:
    balancer = balancer or ChannelBalancer(SETTINGS, now=0.0)
    return balancer.decide(world.servers, world.plan, now)


def test_balanced_servers_are_left_alone() -> None:
    world = World({b"a": ((1,),), b"b": ((2,),)}, {b"a": 5 * MB, b"b": 5 * MB}, servers=2)
    assert _decide(world) == BalancerDecision()


def test_the_busiest_channel_of_an_overloaded_server_goes_to_the_least_loaded_one() -> None:
    placed = {b"a": ((1,),), b"b": ((1,),), b"c": ((2,),), b"d": ((3,),)}
    rates = {b"a": 4 * MB, b"b": 5.2 * MB, b"c": 3 * MB, b"d": 2 * MB}
    world = World(placed, rates, servers=3)
    decision = _decide(world)
    assert decision.entries == {b"b": ((3,),)}
    (reason,) = decision.reasons
    assert reason.startswith("b [1] -> [3]: relieves server 1 (")
    assert "5.20 MB/s; server 1 0.92 -> 0.40, server 3 0.20 -> 0.72" in reason


def test_an_overloaded_server_is_relieved_by_a_cheap_one_before_an_idle_dear_one() -> None:
    placed = {b"a": ((1,),), b"b": ((1,),), b"c": ((2,),)}
    world = World(placed, {b"a": 6.5 * MB, b"b": 3 * MB, b"c": 3 * MB}, servers=3)
    world.prices = {3: 2.0}
    # The dear one takes what the cheap one cannot.
    assert _decide(world).entries == {b"a": ((3,),)}
    world.rates[b"a"] = 4 * MB
    world.rates[b"b"] = 5.5 * MB
    world.rates[b"c"] = 1 * MB
    assert _decide(world).entries == {b"b": ((2,),)}


def test_a_channel_that_would_overload_the_receiver_stays_and_a_smaller_one_moves() -> None:
    placed = {b"big": ((1,),), b"small": ((1,),), b"c": ((2,),)}
    world = World(placed, {b"big": 7 * MB, b"small": 2.5 * MB, b"c": 4 * MB}, servers=2)
    assert _decide(world).entries == {b"small": ((2,),)}


def test_a_channel_without_an_entry_is_moved_from_its_home() -> None:
    world = World({}, {}, servers=2)
    at_home = [channel for channel in (b"%d" % n for n in range(100)) if world.ring.home(channel) == 1]
    world.rates = dict.fromkeys(at_home[:10], 0.95 * MB)
    decision = _decide(world)
    assert 2 <= len(decision.entries) <= 3
    assert set(decision.entries.values()) == {((2,),)}


def test_nothing_is_decided_while_the_last_plan_settles() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 5 * MB, b"b": 5 * MB}, servers=2)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    assert _decide(world, balancer, now=9.9).is_empty
    assert not _decide(world, balancer, now=10.0).is_empty
    assert _decide(world, balancer, now=19.9).is_empty
    assert not _decide(world, balancer, now=20.0).is_empty


def test_a_saturated_server_is_judged_by_what_its_channels_ask_for() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 6 * MB, b"b": 6 * MB}, servers=2)
    sends_less = msgspec.structs.replace(_load(world.servers[0]), outgoing_bytes=7 * MB)
    servers = [replace(world.servers[0], load=sends_less), world.servers[1]]
    decision = ChannelBalancer(SETTINGS, now=0.0).decide(servers, world.plan, 10.0)
    assert decision.entries == {b"a": ((2,),)}


def test_channels_that_move_already_stay_as_they_are() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 5 * MB, b"b": 4.5 * MB}, servers=2)
    world.moving = {b"a"}
    assert set(_decide(world).entries) == {b"b"}


def test_a_channel_that_no_server_bears_is_replicated_over_the_least_loaded_servers() -> None:
    placed = {b"hot": ((1,),), b"c": ((2,),), b"d": ((3,),)}
    world = World(placed, {b"hot": 12 * MB, b"c": 3 * MB, b"d": 1 * MB}, servers=4)
    assert _decide(world).entries == {b"hot": ((1,), (4,))}


def test_a_replicated_channel_frees_its_busiest_server_first() -> None:
    placed = {b"cool": ((1,), (2,), (3,)), b"c": ((2,),)}
    world = World(placed, {b"cool": 6 * MB, b"c": 5 * MB}, servers=3)
    assert _decide(world).entries == {b"cool": ((1,), (3,))}


def test_a_channel_that_moves_nowhere_whole_is_spread() -> None:
    placed = {b"hot": ((1,),), b"c": ((2,),), b"d": ((3,),)}
    world = World(placed, {b"hot": 8.9 * MB, b"c": 2 * MB, b"d": 2 * MB}, servers=3)
    world.rates[b"tiny"] = 0.2 * MB
    world.entries[b"tiny"] = PlanEntry(1, ((1,),))
    world.moving = {b"tiny"}
    assert _decide(world).entries == {b"hot": ((1,), (2,))}


def test_a_server_is_asked_for_when_no_plan_helps_and_only_once() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 5 * MB, b"b": 4.5 * MB}, servers=1)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    decision = _decide(world, balancer, now=10.0)
    assert decision.start == 1
    assert decision.reasons == ("server 1 at 0.95 (9.50 MB/s, CPU 5%): a new server is needed",)
    assert _decide(world, balancer, now=20.0).start == 0
    assert _decide(world, balancer, now=71.0).start == 1


def test_a_server_is_asked_for_when_no_plan_makes_all_safe() -> None:
    placed = {b"a": ((1,),), b"b": ((1,),), b"c": ((2,),)}
    world = World(placed, {b"a": 7.5 * MB, b"b": 1.6 * MB, b"c": 7 * MB}, servers=2)
    decision = _decide(world)
    assert decision.entries == {b"b": ((2,),)}
    assert decision.start == 1


def test_a_new_server_is_used_as_soon_as_it_is_there() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 5 * MB, b"b": 4.5 * MB}, servers=1)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    assert _decide(world, balancer, now=10.0).start == 1
    world.numbers = [1, 2]
    assert _decide(world, balancer, now=12.0).entries == {b"a": ((2,),)}


def test_no_more_servers_are_asked_for_than_allowed() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 5 * MB, b"b": 4.5 * MB}, servers=1)
    balancer = ChannelBalancer(BalancerSettings(max_servers=1), now=0.0)
    decision = _decide(world, balancer)
    assert decision.is_empty
    assert decision.reasons[-1].endswith("and there are 1 servers, the most allowed")


def test_with_the_most_servers_the_load_is_still_evened_out() -> None:
    placed = {b"%d" % number: ((1 if number < 11 else 2,),) for number in range(20)}
    world = World(placed, dict.fromkeys(placed, 1 * MB), servers=2)
    for channel in list(placed)[:11]:
        world.rates[channel] = 1.05 * MB
    world.rates |= dict.fromkeys(list(placed)[11:], 0.85 * MB)
    balancer = ChannelBalancer(BalancerSettings(max_servers=2), now=0.0)
    before = max(world.ratios().values())
    world.obey(_decide(world, balancer))
    assert max(world.ratios().values()) < before - 0.05


def test_a_new_server_is_filled_in_steps_of_a_tenth_of_the_load() -> None:
    placed = {b"%02d" % number: ((1,),) for number in range(50)}
    world = World(placed, dict.fromkeys(placed, 0.2 * MB), servers=1)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    world.obey(_decide(world, balancer, now=10.0))
    assert world.numbers == [1, 2]
    steps = []
    for now in range(20, 120, 10):
        decision = _decide(world, balancer, now=now)
        world.obey(decision)
        steps.append(len(decision.entries))
    # Each channel is a fiftieth of the load.
    assert max(steps) == 5
    assert world.ratios()[1] < THRESHOLDS.high


def test_a_server_without_a_report_gets_nothing() -> None:
    world = World({b"a": ((1,),), b"b": ((1,),)}, {b"a": 5 * MB, b"b": 4.5 * MB}, servers=2)
    servers = [world.servers[0], replace(world.servers[1], load=None)]
    decision = ChannelBalancer(SETTINGS, now=0.0).decide(servers, world.plan, 10.0)
    assert not decision.entries


def test_channels_of_a_dead_server_get_new_places_at_once() -> None:
    placed = {b"a": ((1,),), b"b": ((1, 2), (3, 4)), b"c": ((1,), (2,))}
    world = World(placed, {b"a": 1 * MB, b"b": 1 * MB}, servers=4)
    world.states = {1: ServerState.DEAD, 2: ServerState.DEAD}
    decision = _decide(world, now=1.0)
    assert decision.entries[b"b"] == ((3, 4),)
    assert decision.entries[b"a"] in {((3,),), ((4,),)}
    assert decision.entries[b"c"] in {((3,),), ((4,),)}


def test_a_draining_server_is_emptied_in_steps_and_then_stops() -> None:
    placed = {b"%02d" % number: ((1 + number % 3,),) for number in range(60)}
    world = World(placed, dict.fromkeys(placed, 0.2 * MB), servers=3)
    world.states = {2: ServerState.DRAINING}
    world.subscribed = {2: (b"quiet", b"__culver:ring")}
    world.entries[b"quiet"] = PlanEntry(1, ((2,),))
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    first = _decide(world, balancer, now=10.0)
    assert first.entries[b"quiet"] in {((1,),), ((3,),)}
    assert sum(0.02 for channel in first.entries if channel != b"quiet") <= 0.1 * 1.2 + 1e-9
    stopped: list[int] = []
    now = 10.0
    world.obey(first)
    while not stopped:
        now += 10
        decision = _decide(world, balancer, now)
        assert not any(2 in group for groups in decision.entries.values() for group in groups)
        stopped += decision.stop
        world.obey(decision)
        assert now < 200
    assert stopped == [2]
    assert max(world.ratios().values()) <= THRESHOLDS.safe


def test_when_servers_are_idle_the_least_loaded_is_emptied_slowly_and_stopped() -> None:
    placed = {b"%02d" % number: ((1 + number % 3,),) for number in range(30)}
    world = World(placed, dict.fromkeys(placed, 0.2 * MB), servers=3)
    world.rates[b"02"] = 0.1 * MB
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    stopped: list[int] = []
    moved = []
    for now in range(200):
        decision = _decide(world, balancer, float(now))
        assert now >= 30 or decision.is_empty
        moved.append(len(decision.entries))
        stopped += decision.stop
        world.obey(decision)
        if stopped:
            break
    assert stopped == [3]
    assert max(moved) <= 3
    assert max(world.ratios().values()) <= THRESHOLDS.safe


def test_a_server_whose_subscribers_are_not_known_does_not_stop() -> None:
    world = World({b"a": ((1,),)}, {b"a": 1 * MB}, servers=2)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    for now in range(100):
        servers = [replace(server, subscribed_channels=None) for server in world.servers]
        assert balancer.decide(servers, world.plan, float(now)).is_empty
    assert balancer.sparing == 2
    assert balancer.decide(world.servers, world.plan, 100.0).stop == (2,)


def test_of_idle_servers_the_dear_one_goes() -> None:
    placed = {b"%02d" % number: ((1 + number % 3,),) for number in range(30)}
    world = World(placed, dict.fromkeys(placed, 0.2 * MB), servers=3)
    world.prices = {2: 4.0}
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    reasons = [reason for now in range(32) for reason in _decide(world, balancer, float(now)).reasons]
    assert balancer.sparing == 2
    assert "server 2 (price 4) is given back" in reasons[0]


def test_a_dear_server_goes_though_a_cheap_one_does_even_less() -> None:
    world = World({b"a": ((1,),)}, {b"a": 0.02 * MB}, servers=2)
    world.prices = {1: 3.0}
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    for now in range(32):
        _decide(world, balancer, float(now))
    assert balancer.sparing == 1


def test_a_server_that_is_being_spared_stays_when_the_load_rises() -> None:
    placed = {b"%02d" % number: ((1 + number % 3,),) for number in range(30)}
    world = World(placed, dict.fromkeys(placed, 0.2 * MB), servers=3)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    for now in range(32):
        world.obey(_decide(world, balancer, float(now)))
    assert balancer.sparing is not None
    world.rates = dict.fromkeys(placed, 0.5 * MB)
    decision = _decide(world, balancer, 33.0)
    assert balancer.sparing is None
    assert "stays" in decision.reasons[0]


def test_the_last_servers_are_never_stopped() -> None:
    world = World({b"a": ((1,),)}, {b"a": 0.1 * MB}, servers=2)
    balancer = ChannelBalancer(BalancerSettings(min_servers=2), now=0.0)
    for now in range(200):
        assert _decide(world, balancer, float(now)).is_empty


def test_entries_of_idle_channels_are_forgotten_when_there_are_many() -> None:
    placed: dict[bytes, Groups] = {b"%02d" % number: ((1,),) for number in range(20)}
    placed[b"wide"] = ((1, 2),)
    world = World(placed, dict.fromkeys(list(placed)[:5], 1 * MB), servers=2)
    balancer = ChannelBalancer(BalancerSettings(most_entries=12, min_servers=2), now=0.0)
    assert not any(_decide(world, balancer, float(now)).forget for now in range(600))
    decision = _decide(world, balancer, 620.0)
    assert decision.forget == tuple(b"%02d" % number for number in range(5, 14))
    assert decision.reasons == ("9 of 21 entries are of idle channels",)


def test_load_that_grows_and_falls_adds_and_returns_servers_without_flapping() -> None:
    placed = {b"%02d" % number: ((1,),) for number in range(60)}
    world = World(placed, dict.fromkeys(placed, 0.01 * MB), servers=1)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    moves, servers = [], []
    for now in range(3000):
        level = 0.01 + 0.49 * min(1.0, now / 600) if now < 1500 else 0.02
        world.rates = dict.fromkeys(placed, level * MB)
        decision = _decide(world, balancer, float(now))
        world.obey(decision)
        moves.append(len(decision.entries))
        servers.append(len(world.numbers))
    # 30 MB/s need four servers of 7.5 MB/s, or a few that stay just below the high mark.
    assert 4 <= servers[1499] <= 5
    assert servers[-1] == 1
    assert sum(moves[700:1500]) == 0
    assert sum(moves[2500:]) == 0


channels = st.dictionaries(
    st.binary(min_size=1, max_size=3).filter(lambda name: not name.startswith(b"__")),
    st.tuples(st.floats(0, 12), st.integers(0, 3), st.integers(1, 2)),
    max_size=25,
)


def _random_world(
    drawn: Mapping[bytes, tuple[float, int, int]], servers: int, subscribers: int = 10
) -> World:
    placed = {}
    for channel, (_, first, copies) in drawn.items():
        chosen = [1 + (first + place) % servers for place in range(min(copies, servers))]
        placed[channel] = (tuple(chosen),) if first % 2 else tuple((server,) for server in chosen)
    return World(
        placed, {channel: rate * MB for channel, (rate, _, _) in drawn.items()}, servers, subscribers
    )


@given(channels, st.integers(1, 6), st.sampled_from([0.75, 0.9, 1.0]))
def test_algorithm_2_ends_and_never_raises_the_highest_load_ratio(
    drawn: Mapping[bytes, tuple[float, int, int]], servers: int, limit: float
) -> None:
    world = _random_world(drawn, servers)
    draft = PlanDraft(world.servers, world.plan.groups_of, THRESHOLDS)
    before = {number: draft.estimate.ratio(number) for number in world.numbers}
    stuck = draft.relieve(limit)
    after = {number: draft.estimate.ratio(number) for number in world.numbers}
    assert max(after.values()) <= max(before.values()) + 1e-9
    for number in world.numbers:
        assert after[number] <= max(limit, before[number]) + 1e-9
        assert after[number] < THRESHOLDS.high or number in stuck or limit >= THRESHOLDS.high
    for groups in draft.entries.values():
        PlanEntry(1, groups)


@given(channels, st.integers(1, 6))
def test_estimates_agree_with_what_is_measured_after_the_moves(
    drawn: Mapping[bytes, tuple[float, int, int]], servers: int
) -> None:
    world = _random_world(drawn, servers)
    draft = PlanDraft(world.servers, world.plan.groups_of, THRESHOLDS)
    draft.relieve(1.0)
    world.obey(BalancerDecision(draft.entries))
    measured = LoadEstimate(world.servers, world.plan.groups_of)
    for number in world.numbers:
        if draft.estimate.ratio(number) > 0.1:
            assert draft.estimate.ratio(number) == pytest.approx(measured.ratio(number), abs=0.06)


@settings(max_examples=60, deadline=None)
@given(
    channels,
    st.integers(1, 5),
    st.sets(st.integers(1, 5), max_size=2),
    st.sets(st.integers(1, 5), max_size=1),
    st.lists(st.floats(0.2, 3), min_size=1, max_size=4),
    st.sampled_from([10, 3000]),
)
def test_every_decision_is_valid_and_waits_and_spares_dead_servers(
    drawn: Mapping[bytes, tuple[float, int, int]],
    servers: int,
    dead: set[int],
    draining: set[int],
    levels: list[float],
    subscribers: int,
) -> None:
    world = _random_world(drawn, servers, subscribers)
    world.states = dict.fromkeys(draining, ServerState.DRAINING)
    world.states |= dict.fromkeys(dead, ServerState.DEAD)
    base = dict(world.rates)
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    decided_at = 0.0
    for now in range(0, 200, 5):
        world.rates = {name: rate * levels[now // 5 % len(levels)] for name, rate in base.items()}
        up = {n for n in world.numbers if world.states.get(n, ServerState.UP) is ServerState.UP}
        was_dead = {
            channel
            for channel in {*world.entries, *base}
            if any(n in dead for group in world.plan.groups_of(channel) for n in group)
        }
        decision = balancer.decide(world.servers, world.plan, float(now))
        assert len(set(world.numbers) - dead) + decision.start <= 8
        for channel, groups in decision.entries.items():
            entry = PlanEntry(1, groups)
            assert not entry.servers & dead
            old = {n for group in world.plan.groups_of(channel) for n in group}
            assert entry.servers - old <= up
        if not decision.is_empty:
            if now < decided_at + 10:
                assert set(decision.entries) <= was_dead
                assert not decision.start
                assert not decision.stop
            # A server that was asked for changes no plan.
            if decision.entries or decision.stop or decision.forget:
                decided_at = now
        world.obey(decision)


@settings(max_examples=60, deadline=None)
@given(channels, st.integers(2, 6))
def test_low_load_never_takes_a_server_above_the_safe_ratio(
    drawn: Mapping[bytes, tuple[float, int, int]], servers: int
) -> None:
    world = _random_world(drawn, servers)
    world.rates = {channel: rate / 6 for channel, rate in world.rates.items()}
    balancer = ChannelBalancer(SETTINGS, now=0.0)
    for now in range(0, 600, 5):
        before = world.ratios()
        decision = balancer.decide(world.servers, world.plan, float(now))
        calm = max(before.values()) < THRESHOLDS.safe
        world.obey(decision)
        if calm and decision.entries:
            assert max(world.ratios().values()) <= THRESHOLDS.safe + 1e-9
