"""Tails of publishers that are gone leave the channel's home, and nobody misses the others."""

from collections.abc import Callable
from random import Random

import pytest

from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.core.client_core import ClientCore
from culver.channels.core.dispatcher_notes import decode_tails, encode_tail
from culver.channels.core.instructions import Connect, Instruction, ReportGap, Send, ServerLink
from culver.channels.core.publisher_core import TAIL_LIFE_SECONDS
from culver.channels.core.reserved_names import earlier_tail_key, tail_key
from culver.simulation.redis.redis_keys import KEY_COMMANDS, ErrorReply, RedisKeys

CURRENT, EARLIER = tail_key(b"c"), earlier_tail_key(b"c")


class Home:
    """The home of all channels: its keys, and the clients that are connected to it."""

    def __init__(self) -> None:
        self.keys = RedisKeys()

    def client(self, number: int) -> ClientCore:
        ring = Ring(1, (ServerAddress(1, "redis://h:1"),), (1,))
        return ClientCore(number, ring, b"secret", Random(number))

    def run(self, core: ClientCore, instructions: list[Instruction], now: float) -> list[Instruction]:
        """Carries everything out at once; returns what is for the application."""
        rest: list[Instruction] = []
        for instruction in instructions:
            if isinstance(instruction, Connect):
                more = core.connected(instruction.server, instruction.link, now)
            elif isinstance(instruction, Send):
                reply = self.answer(instruction.command, now)
                more = [] if instruction.then is None else instruction.then(reply, now)
                if instruction.command[0] == b"SUBSCRIBE":
                    for name in instruction.command[1:]:
                        more += core.pushed(1, instruction.link, [b"subscribe", name], now)
            else:
                rest.append(instruction)
                continue
            rest += self.run(core, more, now)
        return rest

    def answer(self, command: tuple[bytes, ...], now: float) -> object:
        self.keys.now = now
        if command[0] == b"HMGET":
            return [b"1", None]
        if command[0] not in KEY_COMMANDS:
            return 1
        try:
            return KEY_COMMANDS[command[0]][0](self.keys, *command[1:])
        except ErrorReply as error:
            return error

    def tails(self, key: bytes, now: float) -> dict[int, tuple[int, int]]:
        return decode_tails(self.answer((b"HGETALL", key), now))


def test_publishers_that_come_and_go_leave_no_more_tails_than_those_of_two_hours() -> None:
    home = Home()
    for minute in range(10 * 60):
        now = minute * 60.0
        core = home.client(minute + 1)
        home.run(core, core.publish(b"c", b"x", now)[1], now)
        home.run(core, core.farewell(now), now)
        current, earlier = home.tails(CURRENT, now), home.tails(EARLIER, now)
        within_an_hour = set(range(max(1, minute - 58), minute + 2))
        assert within_an_hour <= current.keys() | earlier.keys()
        assert len(current.keys() | earlier.keys()) <= 2 * 60 + 2


def test_publisher_that_stays_turns_the_tails_over_and_keeps_its_own() -> None:
    home = Home()
    others = [b"%x" % number for number in range(100, 200)]
    stays = home.client(1)
    home.answer((b"HSET", CURRENT, *[word for name in others for word in (name, encode_tail(1, 5))]), 0.0)
    for minute in range(4 * 60):
        now = minute * 60.0
        home.run(stays, stays.publish(b"c", b"x", now)[1], now)
        home.run(stays, stays.tick(now + 1), now + 1)
        assert {**home.tails(EARLIER, now + 1), **home.tails(CURRENT, now + 1)}[1] == (1, minute + 1)
    assert home.tails(CURRENT, now).keys() | home.tails(EARLIER, now).keys() == {1}


@pytest.mark.parametrize("seed", range(20))
def test_tail_is_read_for_an_hour_however_commands_of_clients_interleave(seed: int) -> None:
    """Writers and a reader each send their commands in order; the server takes them in any."""
    random = Random(seed)
    home = Home()
    written: dict[int, tuple[float, tuple[int, int]]] = {}
    now = 0.0

    def writer(number: int, sequence: int) -> list[Callable[[], object]]:
        def store() -> None:
            home.answer((b"HSET", CURRENT, b"%x" % number, encode_tail(1, sequence)), now)
            written[number] = now, (1, sequence)

        return [
            store,
            lambda: home.answer((b"EXPIRE", CURRENT, b"%d" % TAIL_LIFE_SECONDS), now),
            lambda: home.answer((b"RENAMENX", CURRENT, EARLIER), now),
        ]

    def reader() -> list[Callable[[], object]]:
        must: dict[int, tuple[int, int]] = {}
        current: dict[int, tuple[int, int]] = {}

        def first() -> None:
            must.update(
                {name: tail for name, (at, tail) in written.items() if now < at + TAIL_LIFE_SECONDS - 1}
            )
            current.update(home.tails(CURRENT, now))

        def second() -> None:
            read = {**home.tails(EARLIER, now), **current}
            assert {name: read.get(name, (0, 0)) >= tail for name, tail in must.items()} == dict.fromkeys(
                must, True
            )

        return [first, second]

    for sequence in range(400):
        now += random.choice([0.01, 1.0, 60.0, 900.0])
        queues = [writer(number, sequence) for number in random.sample(range(20), random.randint(1, 4))]
        queues += [reader(), reader()]
        while any(queues):
            random.choice([queue for queue in queues if queue]).pop(0)()
            now += 0.001
    assert len(home.tails(CURRENT, now)) <= 20


def test_subscriber_that_was_cut_off_learns_a_loss_from_tails_that_were_turned_over() -> None:
    home = Home()
    reader, writer = home.client(1), home.client(2)
    home.run(reader, reader.subscribe([b"c"], 0.0), 0.0)
    for step in range(40):
        home.run(reader, reader.tick(step / 10), step / 10)
    home.run(reader, reader.disconnected(1, ServerLink.SUBSCRIBE, 4.0), 4.0)
    home.run(writer, writer.publish(b"c", b"lost", 4.0)[1], 4.0)
    home.run(writer, writer.farewell(4.1), 4.1)
    assert home.tails(CURRENT, 4.1) == {}
    assert home.tails(EARLIER, 4.1) == {2: (1, 1)}
    seen: list[Instruction] = []
    for step in range(30):
        seen += home.run(reader, reader.tick(5 + step / 10), 5 + step / 10)
    gaps = [each.gap for each in seen if isinstance(each, ReportGap)]
    assert [(gap.publisher, gap.first, gap.last) for gap in gaps] == [(2, 1, 1)]
