"""A client whose service has lost its data directory: another secret, other servers, versions from the beginning."""

from random import Random

import pytest

from culver.channels.core.channel_plan import PlanEntry, Ring, ServerAddress, single
from culver.channels.core.client_core import ClientCore
from culver.channels.core.envelope import pack_entry, pack_ring, unpack
from culver.channels.core.instructions import (
    Command,
    Connect,
    Disconnect,
    FetchRing,
    Instruction,
    Interrupt,
    PublicationDone,
    Send,
    ServerLink,
)
from culver.channels.core.reserved_names import RING_CHANNEL, RING_KEY, tail_key

OLD, NEW = b"old secret", b"new secret"


def ring_of(version: int, *ports: int) -> Ring:
    servers = tuple(ServerAddress(number, f"redis://h:{port}") for number, port in enumerate(ports, 1))
    return Ring(version, servers, tuple(server.number for server in servers))


class Client:
    """A core whose servers answer at once. Addresses are those of the ring when a link was opened."""

    def __init__(self, ring: Ring, secret: bytes) -> None:
        self.core = ClientCore(5, ring, secret, Random(1))
        self.entry: bytes | None = None
        self.answers = True
        self.ring_key: bytes | None = None
        self.links: set[tuple[int, ServerLink]] = set()
        self.sent: list[tuple[int, Command]] = []
        self.seen: list[Instruction] = []

    def run(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            match instruction:
                case Connect(server, link):
                    assert (server, link) not in self.links
                    self.links.add((server, link))
                    self.run(self.core.connected(server, link, now), now)
                case Disconnect(server, link):
                    self.links.discard((server, link))
                case Send(server, link, command):
                    assert (server, link) in self.links
                    self.sent.append((server, command))
                    self._answer(instruction, now)
                case _:
                    self.seen.append(instruction)

    def _answer(self, send: Send, now: float) -> None:
        command = send.command
        if command[0] in (b"SUBSCRIBE", b"PSUBSCRIBE"):
            for name in command[1:]:
                push = [command[0].lower(), name]
                self.run(self.core.pushed(send.server, send.link, push, now), now)
        elif send.then is not None and self.answers:
            replies = {b"PUBLISH": 1, b"HGETALL": {}, b"HMGET": [b"1", self.entry], b"GET": self.ring_key}
            self.run(send.then(replies.get(command[0]), now), now)

    def servers_of(self, *beginning: bytes) -> list[int]:
        return [server for server, command in self.sent if command[: len(beginning)] == beginning]


def test_client_follows_a_service_with_another_secret_though_its_versions_are_lower() -> None:
    client = Client(ring_of(9, 1, 2), OLD)
    client.entry = pack_entry(b"c", single(8, 1), OLD)
    client.run(client.core.subscribe([b"c"], 0.0), 0.0)
    client.run(client.core.psubscribe([b"p*"], 0.0), 0.0)
    client.run(client.core.tick(1.0), 1.0)
    assert client.core.servers_of([b"c"]) == {1}
    client.sent.clear()
    client.seen.clear()
    client.entry = pack_entry(b"c", single(1, 2), NEW)
    client.run(client.core.directory_fetched(ring_of(0, 3, 4), NEW, 5.0), 5.0)
    assert client.core.ring.version == 0
    assert client.core.secret == NEW
    interrupted = [each for each in client.seen if isinstance(each, Interrupt)]
    assert [name for each in interrupted for name in each.channels] == [b"c"]
    assert [name for each in interrupted for name in each.patterns] == [b"p*"]
    assert client.core.servers_of([b"c"]) == {2}
    assert 2 in client.servers_of(b"SUBSCRIBE", b"c")
    assert sorted(client.servers_of(b"PSUBSCRIBE", b"p*")) == [1, 2]


def test_unfinished_publications_reach_the_new_servers_and_sequences_go_on() -> None:
    client = Client(ring_of(9, 1), OLD)
    client.run(client.core.publish(b"c", b"first", 0.0)[1], 0.0)
    client.answers = False
    client.run(client.core.publish(b"c", b"second", 1.0)[1], 1.0)
    assert client.core.pending == 1
    client.sent.clear()
    client.answers = True
    client.run(client.core.directory_fetched(ring_of(0, 3), NEW, 2.0), 2.0)
    assert client.core.pending == 1, "the new servers rest until subscribers are back"
    client.run(client.core.tick(3.0), 3.0)
    assert client.core.pending == 0
    assert [each.error for each in client.seen if isinstance(each, PublicationDone)] == [None, None]
    published = [unpack(command[2]) for _, command in client.sent if command[:2] == (b"PUBLISH", b"c")]
    assert (published[0].sequence, published[0].version, published[0].payload) == (2, 0, b"second")
    assert client.servers_of(b"HSET", tail_key(b"c")) == [1]


@pytest.mark.parametrize("told", ["message", "key"])
def test_ring_that_another_service_has_signed_makes_the_client_ask_until_the_service_answers(
    told: str,
) -> None:
    client = Client(ring_of(9, 1), OLD)
    foreign = pack_ring(ring_of(0, 3), NEW)
    client.ring_key = foreign if told == "key" else None
    client.run(client.core.publish(b"c", b"first", 0.0)[1], 0.0)
    if told == "message":
        push = [b"message", RING_CHANNEL, foreign]
        client.run(client.core.pushed(1, ServerLink.PUBLISH, push, 0.0), 0.0)
    else:
        assert client.servers_of(b"GET", RING_KEY) == [1]
    assert client.core.ring.version == 9
    for step in range(50):
        client.run(client.core.tick(10 + step / 10), 10 + step / 10)
    assert len([each for each in client.seen if isinstance(each, FetchRing)]) == 5
    client.seen.clear()
    client.run(client.core.directory_fetched(ring_of(9, 1), OLD, 15.0), 15.0)
    client.run(client.core.tick(17.0), 17.0)
    assert [each for each in client.seen if isinstance(each, FetchRing)] == []
    assert client.core.secret == OLD


def test_entries_of_the_old_service_count_no_more() -> None:
    client = Client(ring_of(9, 1, 2), OLD)
    client.run(client.core.subscribe([b"c"], 0.0), 0.0)
    client.run(client.core.directory_fetched(ring_of(0, 3, 4), NEW, 1.0), 1.0)
    home = client.core.ring.home(b"c")
    old = PlanEntry(12, ((1, 2),))
    client.entry = pack_entry(b"c", old, OLD)
    client.run(client.core.disconnected(home, ServerLink.SUBSCRIBE, 2.0), 2.0)
    client.links.discard((home, ServerLink.SUBSCRIBE))
    client.run(client.core.tick(4.0), 4.0)
    assert client.core.servers_of([b"c"]) == {home}
