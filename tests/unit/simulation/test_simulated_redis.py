import pytest

from culver.simulation import ErrorReply, OutputLimit, RedisPush, RedisSession, SimulatedRedis


class Wire:
    """Keeps what the server sends; the client reads only when it is told to."""

    def __init__(self) -> None:
        self.outputs: list[object] = []
        self.unsent_bytes = 0
        self.is_closed = False

    def send(self, output: object, size_bytes: int) -> None:
        self.outputs.append(output)
        self.unsent_bytes += size_bytes

    def close(self) -> None:
        self.is_closed = True


class Client:
    def __init__(self, server: SimulatedRedis) -> None:
        self.server = server
        self.wire = Wire()
        self.session: RedisSession = server.accept(self.wire, now=0)
        self.say(b"HELLO", b"3")

    def say(self, *command: bytes, now: float = 0) -> list[object]:
        """Sends a command and reads all that came since the last call."""
        self.server.execute(self.session, command, now)
        return self.read()

    def read(self) -> list[object]:
        outputs, self.wire.outputs = self.wire.outputs, []
        self.wire.unsent_bytes = 0
        return outputs


def test_a_message_reaches_subscribers_by_channel_and_by_pattern_and_is_counted() -> None:
    server = SimulatedRedis()
    one, other = Client(server), Client(server)
    assert one.say(b"SUBSCRIBE", b"a", b"b") == [[b"subscribe", b"a", 1], [b"subscribe", b"b", 2]]
    assert one.say(b"PSUBSCRIBE", b"a*") == [[b"psubscribe", b"a*", 3]]
    assert other.say(b"PUBLISH", b"a", b"x") == [2]
    pushes = one.read()
    assert pushes == [[b"message", b"a", b"x"], [b"pmessage", b"a*", b"a", b"x"]]
    assert all(isinstance(push, RedisPush) for push in pushes)
    assert other.say(b"PUBSUB", b"NUMSUB", b"a", b"c") == [[b"a", 1, b"c", 0]]


def test_a_message_to_oneself_follows_the_reply_and_precedes_it_in_older_servers() -> None:
    for follows in (True, False):
        client = Client(SimulatedRedis(pushes_follow_reply=follows))
        client.say(b"SUBSCRIBE", b"a")
        message = [b"message", b"a", b"x"]
        assert client.say(b"PUBLISH", b"a", b"x") == ([1, message] if follows else [message, 1])


def test_a_closed_connection_takes_its_subscriptions_along() -> None:
    server = SimulatedRedis()
    one, other = Client(server), Client(server)
    one.say(b"SUBSCRIBE", b"a")
    one.say(b"PSUBSCRIBE", b"*")
    server.disconnected(one.session)
    assert other.say(b"PUBLISH", b"a", b"x") == [0]
    assert other.say(b"PUBSUB", b"CHANNELS") == [[]]
    assert one.say(b"GET", b"k") == []


def test_a_crash_empties_the_server() -> None:
    server = SimulatedRedis()
    client = Client(server)
    client.say(b"SET", b"k", b"v")
    server.crash()
    server.disconnected(client.session)
    assert Client(server).say(b"GET", b"k") == [None]
    assert (server.lives, len(server.sessions)) == (2, 1)


def test_keys_expire_when_their_time_has_come() -> None:
    client = Client(SimulatedRedis())
    client.say(b"HSET", b"h", b"f", b"v", now=10)
    assert client.say(b"EXPIRE", b"h", b"5", now=10) == [1]
    assert client.say(b"TTL", b"h", now=12) == [3]
    assert client.say(b"HGETALL", b"h", now=14.9) == [{b"f": b"v"}]
    assert client.say(b"HGETALL", b"h", now=15) == [{}]
    client.say(b"SET", b"k", b"v", b"PX", b"500", now=20)
    assert client.say(b"GET", b"k", now=20.4) == [b"v"]
    assert client.say(b"EXISTS", b"k", now=20.5) == [0]


def test_an_error_is_a_reply_and_the_connection_goes_on() -> None:
    client = Client(SimulatedRedis())
    client.say(b"SET", b"k", b"v")
    (error,) = client.say(b"HGET", b"k", b"f")
    assert isinstance(error, ErrorReply)
    assert str(error).startswith("WRONGTYPE ")
    assert client.say(b"PING") == [b"PONG"]


def test_what_the_simulation_does_not_know_is_an_error_of_the_simulation() -> None:
    server = SimulatedRedis()
    client = Client(server)
    for command in ((b"FLUSHALL",), (b"CLIENT", b"PAUSE"), (b"PUBSUB", b"SHARDCHANNELS"), (b"HELLO", b"2")):
        with pytest.raises(NotImplementedError):
            client.say(*command)
    with pytest.raises(NotImplementedError, match="before HELLO 3"):
        server.execute(server.accept(Wire(), now=0), (b"GET", b"k"), now=0)


def test_a_subscriber_beyond_the_hard_limit_is_cut_and_the_publisher_hears_nothing_of_it() -> None:
    server = SimulatedRedis(OutputLimit(hard_bytes=1_000, soft_bytes=500, socket_bytes=200))
    slow, publisher = Client(server), Client(server)
    slow.say(b"SUBSCRIBE", b"a")
    replies = [publisher.say(b"PUBLISH", b"a", b"x" * 100)[0] for _ in range(12)]
    assert slow.wire.is_closed
    assert replies == [1] * 10 + [0] * 2
    assert server.cut_subscribers == 1


def test_a_subscriber_beyond_the_soft_limit_is_cut_after_a_while_unless_it_catches_up() -> None:
    server = SimulatedRedis(OutputLimit(hard_bytes=10_000, soft_bytes=100, soft_seconds=60, socket_bytes=0))
    slow, quick, publisher = Client(server), Client(server), Client(server)
    for client in (slow, quick):
        client.say(b"SUBSCRIBE", b"a")
    for now in range(0, 80, 10):
        publisher.say(b"PUBLISH", b"a", b"x" * 150, now=now)
        if now == 30:
            quick.read()
            publisher.say(b"PUBLISH", b"a", b"", now=now)
    assert slow.wire.is_closed
    assert not quick.wire.is_closed


def test_the_list_of_clients_has_the_memory_of_those_who_do_not_read() -> None:
    server = SimulatedRedis(OutputLimit(socket_bytes=0))
    slow, publisher = Client(server), Client(server)
    slow.say(b"SUBSCRIBE", b"a")
    publisher.say(b"PUBLISH", b"a", b"x" * 1_000)
    (lines,) = publisher.say(b"CLIENT", b"LIST", b"TYPE", b"pubsub")
    assert isinstance(lines, bytes)
    (line,) = lines.splitlines()
    fields = dict(word.split(b"=", 1) for word in line.split())
    assert fields[b"id"] == b"1"
    assert int(fields[b"omem"]) > 1_000
    (text,) = publisher.say(b"INFO", b"stats")
    assert isinstance(text, bytes)
    assert b"total_net_output_bytes:" in text
    assert b"used_cpu" not in text


def test_messages_can_be_lost_on_their_way_to_one_subscriber() -> None:
    server = SimulatedRedis()
    unlucky, lucky, publisher = Client(server), Client(server), Client(server)
    for client in (unlucky, lucky):
        client.say(b"SUBSCRIBE", b"a")
    server.loses = lambda session, channel, message: session is unlucky.session and message == b"x"
    assert publisher.say(b"PUBLISH", b"a", b"x") == [2]
    assert publisher.say(b"PUBLISH", b"a", b"y") == [2]
    assert unlucky.read() == [[b"message", b"a", b"y"]]
    assert len(lucky.read()) == 2
