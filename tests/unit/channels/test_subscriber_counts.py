"""Counts of subscribers where a server answers PUBSUB NUMSUB with nonsense, as Valkey 9.1 does."""

import asyncio
from random import Random
from typing import cast

import msgspec

from culver.channels.core.channel_load import ChannelUse, ClientLoadReport, ServerLoad
from culver.channels.core.channel_plan import MoveRoute, single
from culver.channels.core.dispatcher_core import DispatcherCore
from culver.channels.core.dispatcher_notes import ChannelVersion
from culver.channels.core.instructions import Command, Instruction, Reply, Send, ServerLink
from culver.channels.core.reserved_names import LOAD_KEY
from culver.channels.load_analyser import LoadAnalyser
from culver.channels.servers.redis_link import RedisLink

NONSENSE = 965_872_679


def answer(instructions: list[Instruction], name: bytes, reply: Reply, now: float) -> list[Instruction]:
    """Answers the command of this name among the instructions."""
    for each in instructions:
        if isinstance(each, Send) and each.command[0] == name and each.then is not None:
            return each.then(reply, now)
    raise AssertionError(f"{name!r} is not among {instructions}")


def dispatcher_with_a_move() -> DispatcherCore:
    core = DispatcherCore(1, b"secret", Random(1))
    core.start(0.0)
    core.connected(1, ServerLink.PUBLISH, 0.0)
    greeting = core.connected(1, ServerLink.SUBSCRIBE, 0.0)
    route = MoveRoute(b"c", single(2, 2), (single(1, 1),), active=True)
    answer(greeting, b"HGETALL", {b"c": msgspec.msgpack.encode(route)}, 0.0)
    core.pushed(1, ServerLink.SUBSCRIBE, [b"subscribe", b"c"], 0.0)
    return core


def answer_tick(core: DispatcherCore, now: float, *, switched: int) -> None:
    replies = {b"PUBSUB": [b"c", NONSENSE], b"PUBLISH": switched, b"SET": "OK"}
    sent = [each for each in core.tick(now) if isinstance(each, Send)]
    assert {each.command[0] for each in sent} == replies.keys()
    for each in sent:
        if each.then is not None:
            each.then(replies[each.command[0]], now)


def test_a_move_ends_when_nobody_but_the_dispatcher_got_the_switch() -> None:
    core = dispatcher_with_a_move()
    answer_tick(core, 3.0, switched=2)
    assert core.report(3.0).empty == ()
    answer_tick(core, 5.0, switched=1)
    assert core.report(5.0).empty == (ChannelVersion(b"c", 1),)


class ToldLink:
    """A link that answers from a table, and remembers what was stored."""

    def __init__(self, answers: dict[bytes, object]) -> None:
        self._answers = answers
        self.load: ServerLoad | None = None

    async def request(self, command: Command) -> object:
        if command[:2] == (b"SET", LOAD_KEY):
            self.load = msgspec.msgpack.decode(command[2], type=ServerLoad)
        return self._answers.get(command[0])


def test_the_analyser_believes_no_count_above_the_number_of_clients() -> None:
    link = ToldLink({b"INFO": b"connected_clients:10\r\n", b"PUBSUB": [b"a", 7, b"b", NONSENSE]})
    analyser = LoadAnalyser(1, 0.0)
    report = ClientLoadReport(1, (ChannelUse(b"a", 2, 200, 8), ChannelUse(b"b", 2, 200, 6)))
    analyser.take_report(msgspec.msgpack.encode(report), 1.0)
    asyncio.run(analyser.measure(cast(RedisLink, link), 2.5))
    assert link.load is not None
    assert {load.channel: load.subscribers for load in link.load.channels} == {b"a": 7, b"b": 3}
