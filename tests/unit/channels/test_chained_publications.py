"""Messages whose ids the caller gives: their tails and heartbeats tell of what servers have, and of nothing else."""

from random import Random

from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.core.client_core import ClientCore
from culver.channels.core.dispatcher_notes import decode_tails
from culver.channels.core.envelope import EnvelopeKind, unpack
from culver.channels.core.instructions import Instruction, PublicationDone, Send, ServerLink
from culver.channels.core.reserved_names import tail_key

PUBLISHER = 77


class Server:
    """One server that a core is connected to. It answers while it is told to."""

    def __init__(self) -> None:
        ring = Ring(1, (ServerAddress(1, "redis://127.0.0.1:1"),), (1,))
        self.core = ClientCore(5, ring, b"secret", Random(1), publish_timeout_seconds=5.0)
        self.answers = True
        self.commands: list[tuple[bytes, ...]] = []
        self.done: list[PublicationDone] = []
        self.core.publish_chained(b"c", PUBLISHER, 1, 0, 10, b"a", 0.0)
        self.run(self.core.connected(1, ServerLink.PUBLISH, 0.0), 0.0)

    def run(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                self.commands.append(instruction.command)
                if self.answers and instruction.then is not None:
                    reply = 1 if instruction.command[0] == b"PUBLISH" else None
                    self.run(instruction.then(reply, now), now)
            elif isinstance(instruction, PublicationDone):
                self.done.append(instruction)

    def pass_time(self, start: float, seconds: float) -> None:
        for step in range(int(seconds * 10) + 1):
            self.run(self.core.tick(start + step / 10), start + step / 10)

    def heartbeats(self) -> list[tuple[int, int, int]]:
        sent = [unpack(command[2]) for command in self.commands if command[:2] == (b"PUBLISH", b"c")]
        return [
            (each.publisher, each.epoch, each.sequence)
            for each in sent
            if each.kind == EnvelopeKind.HEARTBEAT
        ]

    def tails(self) -> dict[int, tuple[int, int]]:
        stored = [command for command in self.commands if command[:2] == (b"HSET", tail_key(b"c"))]
        return decode_tails({command[2]: command[3] for command in stored})


def test_chained_message_gets_heartbeats_and_a_tail_of_its_publisher() -> None:
    server = Server()
    assert [each.error for each in server.done] == [None]
    server.pass_time(0.1, 3.0)
    assert server.heartbeats() == [(PUBLISHER, 1, 10)] * 2
    assert server.tails() == {PUBLISHER: (1, 10)}


def test_a_client_that_closes_tells_its_last_numbers_at_once() -> None:
    server = Server()
    _, sent = server.core.publish(b"c", b"x", 0.1)
    server.run(sent, 0.1)
    server.run(server.core.farewell(0.2), 0.2)
    assert sorted(server.heartbeats()) == [(5, 1, 1), (PUBLISHER, 1, 10)]
    assert server.tails() == {5: (1, 1), PUBLISHER: (1, 10)}


def test_chained_message_without_an_answer_is_in_no_heartbeat() -> None:
    server = Server()
    server.pass_time(0.1, 3.0)
    server.commands.clear()
    server.answers = False
    _, sent = server.core.publish_chained(b"c", PUBLISHER, 1, 10, 14, b"b", 4.0)
    server.run(sent, 4.0)
    server.pass_time(4.1, 6.0)
    assert isinstance(server.done[-1].error, TimeoutError)
    assert server.heartbeats() == []
    assert server.tails() == {}


def test_message_that_is_published_again_takes_nothing_back() -> None:
    server = Server()
    for sequence in (14, 10):
        _, sent = server.core.publish_chained(b"c", PUBLISHER, 1, 0, sequence, b"b", 1.0)
        server.run(sent, 1.0)
    server.pass_time(1.1, 3.0)
    assert server.heartbeats() == [(PUBLISHER, 1, 14)] * 2
    assert server.tails() == {PUBLISHER: (1, 14)}


def test_chained_stream_and_the_clients_own_are_told_apart() -> None:
    server = Server()
    _, sent = server.core.publish(b"c", b"own", 0.0)
    server.run(sent, 0.0)
    server.pass_time(0.1, 1.5)
    assert server.tails() == {PUBLISHER: (1, 10), 5: (1, 1)}
