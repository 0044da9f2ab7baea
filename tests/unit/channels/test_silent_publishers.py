"""Losses of the last messages of a publisher that falls silent: no later message shows them."""

from random import Random

import msgspec
import pytest

from culver.channels.core.channel_plan import MoveRoute, PlanEntry, Ring, ServerAddress, single
from culver.channels.core.client_core import ClientCore
from culver.channels.core.dispatcher_core import DispatcherCore
from culver.channels.core.dispatcher_notes import Notice, encode_note, encode_tail
from culver.channels.core.envelope import EnvelopeKind, kind_of, pack_check, pack_entry, pack_message, unpack
from culver.channels.core.instructions import (
    Command,
    Connect,
    Disconnect,
    Instruction,
    ReportGap,
    Send,
    ServerLink,
    Warn,
)
from culver.channels.core.message_order import HOLD_SECONDS, TAIL_AGE_SECONDS
from culver.channels.core.reserved_names import ROUTES_CHANNEL, inbox, tail_key

SECRET = b"secret"
CLIENT = 5
PUBLISHER = 7


def ring_with_homes(*homes: int) -> Ring:
    return Ring(1, tuple(ServerAddress(number, f"redis://h:{number}") for number in (1, 2, 3)), homes)


class Client:
    """A client whose servers answer at once. The only home of channels is server 1, and it has ``tails`` and the
    ``entry`` of the channel. Publications get to ``receivers``."""

    def __init__(self) -> None:
        self.core = ClientCore(CLIENT, ring_with_homes(1), SECRET, Random(1))
        self.tails: dict[bytes, bytes] = {}
        self.entry: PlanEntry | None = None
        self.receivers = 1
        self.connects = True
        self.links: set[tuple[int, ServerLink]] = set()
        self.sent: list[tuple[int, Command]] = []
        self.gaps: list[tuple[int, int]] = []
        self.warnings: list[str] = []

    def run(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            match instruction:
                case Connect(server, link):
                    if self.connects:
                        self.links.add((server, link))
                        self.run(self.core.connected(server, link, now), now)
                case Send(server, link, command, then):
                    assert (server, link) in self.links
                    self.sent.append((server, command))
                    if command[0] == b"SUBSCRIBE":
                        for name in command[1:]:
                            self.push(server, [b"subscribe", name], now, link)
                    elif then is not None:
                        self.run(then(self.reply(command), now), now)
                case ReportGap(gap):
                    self.gaps.append((gap.first, gap.last))
                case Warn(text):
                    self.warnings.append(text)

    def reply(self, command: Command) -> object:
        if command[0] == b"HGETALL":
            return dict(self.tails) if command[1] == tail_key(b"c") else {}
        entry = None if self.entry is None else pack_entry(b"c", self.entry, SECRET)
        return {b"HMGET": [b"1", entry], b"PUBLISH": self.receivers}.get(command[0])

    def asked(self) -> int:
        """How often the client has asked the home for the entry."""
        return sum(command[0] == b"HMGET" for _, command in self.sent)

    def push(
        self, server: int, push: list[bytes], now: float, link: ServerLink = ServerLink.SUBSCRIBE
    ) -> None:
        self.run(self.core.pushed(server, link, push, now), now)

    def lose(self, server: int, link: ServerLink, now: float) -> None:
        self.links.discard((server, link))
        self.run(self.core.disconnected(server, link, now), now)

    def pass_time(self, start: float, end: float) -> None:
        for step in range(round((end - start) * 20) + 1):
            self.run(self.core.tick(start + step / 20), start + step / 20)

    def heartbeats(self) -> list[tuple[int, int, int]]:
        """The server, the version and the sequence of each heartbeat."""
        beats = [
            (server, unpack(command[2]))
            for server, command in self.sent
            if command[:2] == (b"PUBLISH", b"c") and kind_of(command[2]) == EnvelopeKind.HEARTBEAT
        ]
        return [(server, beat.version, beat.sequence) for server, beat in beats]


def steady_subscriber() -> Client:
    """A subscriber of a channel at server 1 that has got message 1."""
    client = Client()
    client.run(client.core.subscribe([b"c"], 0.0), 0.0)
    client.pass_time(0.0, 5.0)
    client.push(1, [b"message", b"c", pack_message(PUBLISHER, 1, 0, 1, b"x")], 5.0)
    client.tails = {b"%x" % PUBLISHER: encode_tail(1, 1)}
    return client


def test_heartbeats_follow_a_channel_to_servers_that_the_publisher_has_no_link_to() -> None:
    client = Client()
    client.run(client.core.publish(b"c", b"x", 0.0)[1], 0.0)
    entry = PlanEntry(4, ((2, 3),))
    notice = encode_note(Notice(b"c", pack_entry(b"c", entry, SECRET)))
    client.push(1, [b"message", inbox(CLIENT), notice], 0.1, ServerLink.PUBLISH)
    assert client.links == {(1, ServerLink.PUBLISH)}
    client.pass_time(0.1, 3.0)
    assert {(2, ServerLink.PUBLISH), (3, ServerLink.PUBLISH)} <= client.links
    assert client.heartbeats() == [(2, 4, 1), (3, 4, 1)] * 2


def test_heartbeats_wait_for_a_server_that_is_down() -> None:
    client = Client()
    client.run(client.core.publish(b"c", b"x", 0.0)[1], 0.0)
    client.connects = False
    client.lose(1, ServerLink.PUBLISH, 0.1)
    client.pass_time(0.1, 4.0)
    assert client.heartbeats() == []


def test_subscriber_reads_the_tails_when_a_dispatcher_asks_for_a_check() -> None:
    client = steady_subscriber()
    client.tails = {b"%x" % PUBLISHER: encode_tail(1, 3)}
    client.pass_time(5.05, 8.0)
    assert client.gaps == []
    client.push(1, [b"message", b"c", pack_check()], 8.0)
    client.pass_time(8.0, 8.1 + HOLD_SECONDS)
    assert client.gaps == [(2, 3)]
    assert client.warnings == []


def test_check_of_a_channel_that_is_not_subscribed_any_more_is_ignored() -> None:
    client = steady_subscriber()
    client.run(client.core.unsubscribe([b"c"]), 6.0)
    client.sent.clear()
    client.push(1, [b"message", b"c", pack_check()], 6.0)
    client.pass_time(6.0, 9.0)
    assert [command for _, command in client.sent if command[0] == b"HGETALL"] == []


def test_tail_that_is_stored_after_the_subscriber_is_back_is_read_too() -> None:
    client = steady_subscriber()
    client.lose(1, ServerLink.SUBSCRIBE, 6.0)
    client.pass_time(6.0, 6.5)
    assert (1, ServerLink.SUBSCRIBE) in client.links
    client.tails = {b"%x" % PUBLISHER: encode_tail(1, 2)}
    client.pass_time(6.5, 6.6 + TAIL_AGE_SECONDS + HOLD_SECONDS)
    assert client.gaps == [(2, 2)]


def test_loss_during_the_second_reading_leads_to_two_more() -> None:
    client = steady_subscriber()
    client.push(1, [b"message", b"c", pack_check()], 6.0)
    second_at = 6.0 + TAIL_AGE_SECONDS
    client.pass_time(6.05, second_at - 0.1)
    second = client.core.tick(second_at + 0.01)
    push = [b"message", b"c", pack_check()]
    first_of_next = client.core.pushed(1, ServerLink.SUBSCRIBE, push, second_at + 0.02)
    client.run(second, second_at + 0.03)
    client.run(first_of_next, second_at + 0.03)
    client.tails = {b"%x" % PUBLISHER: encode_tail(1, 2)}
    client.pass_time(second_at + 0.1, second_at + 0.2 + TAIL_AGE_SECONDS + HOLD_SECONDS)
    assert client.gaps == [(2, 2)]


def test_subscriber_that_no_dispatcher_tells_of_a_move_finds_its_servers_and_its_losses() -> None:
    client = steady_subscriber()
    client.entry = single(4, 2)
    client.tails = {b"%x" % PUBLISHER: encode_tail(1, 3)}
    client.pass_time(5.05, 36.0)
    assert (2, (b"SUBSCRIBE", b"c")) in client.sent
    assert client.gaps == [(2, 3)]


def test_subscriber_asks_the_home_seldom_where_nothing_changes() -> None:
    client = steady_subscriber()
    client.sent.clear()
    client.pass_time(5.05, 95.0)
    assert client.asked() == 3
    assert client.gaps == []


def test_publisher_that_nobody_hears_asks_the_home_now_and_then() -> None:
    client = Client()
    client.receivers = 0
    for second in range(12):
        client.run(client.core.publish(b"c", b"x", second)[1], second)
    # With the first message, because it knows nothing, and three times because nobody hears it.
    assert client.asked() == 4
    client.entry = single(4, 2)
    for second in range(12, 18):
        client.run(client.core.publish(b"c", b"x", second)[1], second)
    published = [server for server, command in client.sent if command[:2] == (b"PUBLISH", b"c")]
    assert published[-1] == 2


def test_publisher_stores_its_tails_at_a_new_home() -> None:
    client = Client()
    client.run(client.core.publish(b"c", b"x", 0.0)[1], 0.0)
    client.pass_time(0.0, 5.0)
    client.sent.clear()
    client.run(client.core.ring_changed(msgspec.structs.replace(ring_with_homes(2), version=2), 5.0), 5.0)
    client.pass_time(5.0, 6.5)
    tail = (b"HSET", tail_key(b"c"), b"%x" % CLIENT, encode_tail(1, 1))
    assert [server for server, command in client.sent if command == tail] == [2]


class Dispatcher:
    """The dispatcher of server 1. Servers answer at once, and server 1 has ``route``, if any."""

    def __init__(self, route: MoveRoute | None) -> None:
        self.core = DispatcherCore(1, SECRET, Random(1))
        self.route = route
        self.links: set[tuple[int, ServerLink]] = set()
        self.checked: list[int] = []
        self.run(self.core.start(0.0), 0.0)

    def run(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            match instruction:
                case Connect(server, link):
                    self.links.add((server, link))
                    self.run(self.core.connected(server, link, now), now)
                case Disconnect(server, link):
                    self.links.discard((server, link))
                case Send(server, link, command, then):
                    assert (server, link) in self.links
                    if command == (b"PUBLISH", b"c", pack_check()):
                        self.checked.append(server)
                    if command[0] == b"SUBSCRIBE":
                        for name in command[1:]:
                            push = [b"subscribe", name]
                            self.run(self.core.pushed(server, link, push, now), now)
                    elif then is not None:
                        self.run(then(self.reply(command), now), now)

    def reply(self, command: Command) -> object:
        if command[0] == b"HGETALL":
            return {} if self.route is None else {b"c": msgspec.msgpack.encode(self.route)}
        return [b"c", 1] if command[0] == b"PUBSUB" else 1

    def poke(self, now: float) -> None:
        self.run(self.core.pushed(1, ServerLink.SUBSCRIBE, [b"message", ROUTES_CHANNEL, b""], now), now)


def test_dispatcher_that_finds_a_route_at_its_start_asks_the_other_servers_for_a_check() -> None:
    entries = single(1, 1), single(2, 2), PlanEntry(3, ((1, 3),))
    for active in (True, False):
        assert Dispatcher(MoveRoute(b"c", entries[2], entries[:2], active)).checked == [2, 3]
    route = MoveRoute(b"c", entries[2], entries[:2], active=True, empty=(2,))
    assert Dispatcher(route).checked == [3]


def test_dispatcher_asks_for_no_check_when_a_move_begins() -> None:
    dispatcher = Dispatcher(None)
    dispatcher.route = MoveRoute(b"c", single(2, 2), (single(1, 1),), active=False)
    dispatcher.poke(1.0)
    dispatcher.route = msgspec.structs.replace(dispatcher.route, active=True)
    dispatcher.poke(2.0)
    assert dispatcher.core.routes == {b"c": dispatcher.route}
    assert dispatcher.checked == []


def test_dispatcher_asks_for_a_check_after_each_loss_of_the_link_that_it_listens_on() -> None:
    dispatcher = Dispatcher(None)
    dispatcher.route = MoveRoute(b"c", single(2, 2), (single(1, 1),), active=True)
    dispatcher.poke(1.0)
    # It was told of the move too late.
    assert dispatcher.checked == [2]
    dispatcher.links.discard((1, ServerLink.SUBSCRIBE))
    dispatcher.run(dispatcher.core.disconnected(1, ServerLink.SUBSCRIBE, 2.0), 2.0)
    dispatcher.run(dispatcher.core.tick(3.0), 3.0)
    assert dispatcher.checked == [2, 2]


def test_dispatcher_that_had_to_drop_messages_asks_for_a_check_when_it_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("culver.channels.core.dispatcher_core._MOST_FORWARDED", 2)
    dispatcher = Dispatcher(None)
    dispatcher.route = MoveRoute(b"c", single(2, 2), (single(1, 1),), active=False)
    dispatcher.poke(1.0)
    dispatcher.run(dispatcher.core.disconnected(2, ServerLink.PUBLISH, 1.5), 1.5)
    unsent: list[Instruction] = []
    for number in range(1, 5):
        message = pack_message(PUBLISHER, 1, 1, number, b"x")
        unsent += dispatcher.core.pushed(1, ServerLink.SUBSCRIBE, [b"message", b"c", message], 2.0)
    assert dispatcher.core.overflowed == 2
    assert dispatcher.checked == []
    dispatcher.run(unsent, 2.0)
    dispatcher.run(dispatcher.core.tick(9.0), 9.0)
    dispatcher.run(dispatcher.core.tick(10.0), 10.0)
    assert dispatcher.checked == [2]
