from collections.abc import Sequence
from random import Random

import pytest

from culver.channels.core.instructions import (
    Connect,
    Deliver,
    Disconnect,
    Instruction,
    Reply,
    Send,
    ServerLink,
    Warn,
)
from culver.simulation import (
    CoreHost,
    LinkQuality,
    RedisNode,
    SimulatedNetwork,
    VirtualClock,
    node_of_server,
)

LINK = ServerLink.SUBSCRIBE
CHANNEL = b"news"


class Listener:
    """A toy core: stays connected to server 1, subscribes to a channel and counts its lives in a key."""

    def __init__(self) -> None:
        self.wants_link = True
        self.has_link = False
        self.ticks: list[float] = []
        self.seen: list[object] = []

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self.seen.append("connected")
        return [
            Send(server, link, (b"HSET", b"lives", b"%f" % now, b"x"), self._stored),
            Send(server, link, (b"SUBSCRIBE", CHANNEL, b"more"), self._subscribed),
            Send(server, link, (b"HGET", b"lives", b"nobody"), self._stored),
        ]

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self.seen.append("disconnected")
        self.has_link = False
        return []

    def pushed(self, server: int, link: ServerLink, push: Sequence[bytes], now: float) -> list[Instruction]:
        if push[0] == b"message":
            return [Deliver(push[1], push[2])]
        self.seen.append(push[:2])
        return []

    def tick(self, now: float) -> list[Instruction]:
        self.ticks.append(round(now, 6))
        if self.wants_link and not self.has_link:
            self.has_link = True
            return [Connect(1, LINK)]
        return []

    def publish(self, payload: bytes) -> list[Instruction]:
        return [
            Send(1, LINK, (b"PUBLISH", CHANNEL, payload), lambda reply, now: [Warn(f"{reply} receivers")])
        ]

    def _stored(self, reply: Reply, now: float) -> list[Instruction]:
        self.seen.append(reply)
        return []

    def _subscribed(self, reply: Reply, now: float) -> list[Instruction]:
        self.seen.append("subscribed")
        return []


class Stage:
    """A server and one host with a toy core."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(self.clock, Random(1), LinkQuality(0.001, 0))
        self.server = RedisNode(node_of_server(1), self.clock, self.network)
        self.server.start()
        self.done: list[Instruction] = []
        self.sent: list[bytes] = []
        self.host = CoreHost[Listener](
            "ann",
            self.clock,
            self.network,
            self.done.append,
            on_send=lambda send: self.sent.append(send.command[0]),
        )
        self.host.start(Listener())

    @property
    def core(self) -> Listener:
        return self.host.core


def test_a_core_is_ticked_connected_and_answered_in_order() -> None:
    stage = Stage()
    stage.clock.run_until(0.12)
    assert stage.core.ticks == [0.0, 0.05, 0.1]
    confirmations = [[b"subscribe", CHANNEL], [b"subscribe", b"more"], "subscribed"]
    assert stage.core.seen == ["connected", 1, *confirmations, None]
    assert stage.sent == [b"HSET", b"SUBSCRIBE", b"HGET"]


def test_messages_and_what_a_reply_leads_to_reach_the_application() -> None:
    stage = Stage()
    stage.clock.run_until(0.1)
    stage.host.call(lambda core, now: core.publish(b"hello"))
    assert stage.done == []
    stage.clock.run_for(0.1)
    assert stage.done == [Warn("1 receivers"), Deliver(CHANNEL, b"hello")]


def test_a_crash_of_the_server_is_told_and_the_link_is_opened_again_to_an_empty_server() -> None:
    stage = Stage()
    stage.clock.run_until(0.1)
    stage.core.seen.clear()
    stage.server.crash()
    stage.clock.run_for(0.5)
    assert set(map(str, stage.core.seen)) == {"disconnected"}
    stage.server.start()
    stage.clock.run_for(0.5)
    assert stage.core.seen[-6:-4] == ["connected", 1]
    assert [len(session.channels) for session in stage.server.redis.sessions] == [2]


def test_a_silent_server_is_pinged_and_then_taken_for_lost() -> None:
    stage = Stage()
    stage.clock.run_until(10)
    assert stage.core.seen.count("disconnected") == 0
    commands = stage.server.redis.commands
    stage.network.make_half_open(stage.network.connections("ann")[0])
    stage.core.wants_link = False
    stage.clock.run_for(1)
    assert stage.core.seen.count("disconnected") == 0
    stage.clock.run_for(1.1)
    assert stage.core.seen.count("disconnected") == 1
    assert stage.server.redis.commands == commands
    assert len(stage.server.redis.sessions) == 1
    stage.clock.run_for(15)
    assert stage.server.redis.sessions == []


def test_an_unknown_or_unreachable_server_is_told_as_disconnected() -> None:
    stage = Stage()
    stage.host.call(lambda core, now: [Connect(2, LINK)])
    stage.clock.run_for(0.04)
    assert stage.core.seen.count("disconnected") == 1
    stage.server.crash(silently=True)
    stage.core.has_link = stage.core.wants_link = False
    stage.host.call(lambda core, now: [Connect(1, ServerLink.PUBLISH)])
    stage.clock.run_for(1.9)
    assert stage.core.seen.count("disconnected") == 1
    stage.clock.run_for(0.2)
    assert stage.core.seen.count("disconnected") == 3


def test_a_link_that_the_core_closes_is_not_told_and_its_replies_are_dropped() -> None:
    stage = Stage()
    stage.clock.run_until(0.1)
    stage.core.seen.clear()
    stage.host.call(lambda core, now: [*core.publish(b"x"), Disconnect(1, LINK), Disconnect(1, LINK)])
    stage.clock.run_for(1)
    assert (stage.core.seen, stage.done) == ([], [])
    assert stage.server.redis.sessions == []


def test_a_killed_host_does_nothing_more_and_a_new_life_starts_from_nothing() -> None:
    stage = Stage()
    stage.clock.run_until(0.1)
    old = stage.core
    stage.host.kill()
    stage.clock.run_for(1)
    assert not stage.host.is_running
    assert old.ticks[-1] == 0.1
    assert stage.server.redis.sessions == []
    with pytest.raises(RuntimeError, match="not running"):
        stage.host.call(lambda core, now: [])
    stage.host.start(Listener())
    stage.clock.run_for(0.1)
    assert stage.core.seen[0] == "connected"
    with pytest.raises(RuntimeError, match="running already"):
        stage.host.start(Listener())


def test_a_host_that_vanishes_is_noticed_by_the_server_after_the_time_out() -> None:
    stage = Stage()
    stage.clock.run_until(0.1)
    stage.host.kill(silently=True)
    stage.clock.run_for(14)
    assert len(stage.server.redis.sessions) == 1
    stage.clock.run_for(2)
    assert stage.server.redis.sessions == []


def test_a_paused_host_reads_and_ticks_when_it_goes_on_and_keeps_its_links() -> None:
    stage = Stage()
    stage.clock.run_until(0.1)
    stage.host.call(lambda core, now: core.publish(b"hello"))
    stage.host.pause()
    stage.clock.run_for(10)
    assert stage.done == []
    assert stage.core.ticks[-1] == 0.1
    stage.host.resume()
    stage.clock.run_for(0.01)
    assert len(stage.done) == 2
    assert stage.core.ticks[-1] == 10.1
    stage.clock.run_for(5)
    assert stage.core.seen.count("disconnected") == 0


def test_a_core_that_misuses_its_links_is_found_out() -> None:
    stage = Stage()
    with pytest.raises(RuntimeError, match="which is not open"):
        stage.host.call(lambda core, now: core.publish(b"too early"))
    stage.clock.run_until(0.1)
    with pytest.raises(RuntimeError, match="twice"):
        stage.host.call(lambda core, now: [Connect(1, LINK)])
    with pytest.raises(RuntimeError, match="must name"):
        stage.host.call(lambda core, now: [Send(1, LINK, (b"UNSUBSCRIBE",))])
