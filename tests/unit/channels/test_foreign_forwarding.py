"""What a dispatcher does with data of programs without our client, and what it tells of its own commands."""

from random import Random

import msgspec

from culver.channels.core.channel_load import ClientLoadReport
from culver.channels.core.channel_plan import MoveRoute, single
from culver.channels.core.dispatcher_core import DispatcherCore
from culver.channels.core.envelope import pack_message
from culver.channels.core.instructions import Command, Instruction, Send, ServerLink
from culver.channels.core.local_plan import IDLE_SECONDS
from culver.channels.core.reserved_names import LOAD_CHANNEL, ROUTES_CHANNEL


class Dispatcher:
    """The dispatcher of server 1, from which the channel ``c`` has moved to server 2. Servers answer at once."""

    def __init__(self) -> None:
        self.core = DispatcherCore(1, b"secret", Random(1))
        self.route = MoveRoute(b"c", single(2, 2), (single(1, 1),), active=True)
        self.sent: list[tuple[int, Command]] = []
        self.core.start(0.0)
        self.run(self.core.connected(1, ServerLink.PUBLISH, 0.0), 0.0)
        self.run(self.core.connected(1, ServerLink.SUBSCRIBE, 0.0), 0.0)
        self.run(self.core.connected(2, ServerLink.PUBLISH, 0.0), 0.0)
        self.run(self.core.pushed(1, ServerLink.SUBSCRIBE, [b"subscribe", b"c"], 0.0), 0.0)

    def run(self, instructions: list[Instruction], now: float) -> None:
        for each in instructions:
            if isinstance(each, Send):
                self.sent.append((each.server, each.command))
                replies = {b"HGETALL": {b"c": msgspec.msgpack.encode(self.route)}, b"PUBSUB": [b"c", 1]}
                if each.then is not None:
                    self.run(each.then(replies.get(each.command[0], 1), now), now)

    def hears(self, data: bytes, now: float, channel: bytes = b"c") -> None:
        push = [b"message", channel, data]
        self.run(self.core.pushed(1, ServerLink.SUBSCRIBE, push, now), now)

    def reports(self, server: int) -> list[int]:
        """How many commands each load report to a server tells."""
        commands = [command for number, command in self.sent if number == server]
        data = [command[2] for command in commands if command[:2] == (b"PUBLISH", LOAD_CHANNEL)]
        return [msgspec.msgpack.decode(each, type=ClientLoadReport).besides for each in data]


def test_route_stays_while_another_program_publishes_at_the_old_server() -> None:
    dispatcher = Dispatcher()
    for second in range(100):
        dispatcher.hears(b"plain", float(second))
        dispatcher.run(dispatcher.core.tick(float(second)), float(second))
    assert dispatcher.core.report(100.0).quiet == ()
    assert dispatcher.sent.count((2, (b"PUBLISH", b"c", b"plain"))) == 100
    assert [each.version for each in dispatcher.core.report(99 + IDLE_SECONDS).quiet] == [1]


def test_dispatcher_reports_the_copies_of_our_messages_that_it_forwards_and_no_others() -> None:
    dispatcher = Dispatcher()
    dispatcher.run(dispatcher.core.tick(1.0), 1.0)
    dispatcher.sent.clear()
    for sequence in range(7):
        dispatcher.hears(pack_message(5, 1, 1, sequence + 1, b"x"), 1.0)
        dispatcher.hears(b"plain", 1.0)
    dispatcher.run(dispatcher.core.tick(2.1), 2.1)
    assert dispatcher.reports(2) == [7]
    to_itself = [c for server, c in dispatcher.sent if server == 1 and c[0] == b"PUBLISH"]
    assert sum(dispatcher.reports(1)) == len([c for c in to_itself if c[1] != LOAD_CHANNEL])
    dispatcher.sent.clear()
    dispatcher.run(dispatcher.core.tick(3.2), 3.2)
    assert dispatcher.reports(2) == [], "a report does not tell of itself"


def test_dispatcher_counts_what_it_hears_on_reserved_channels() -> None:
    dispatcher = Dispatcher()
    dispatcher.hears(b"", 1.0, ROUTES_CHANNEL)
    dispatcher.hears(msgspec.msgpack.encode(ClientLoadReport(1, ())), 1.0, LOAD_CHANNEL)
    dispatcher.hears(b"plain", 1.0)
    assert dispatcher.core.heard == 2
