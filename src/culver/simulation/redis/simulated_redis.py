"""A Redis server in memory, with the part of Redis that the channels use and its order of replies and pushes.

It speaks RESP3 only. Replies are what a client's parser makes of them: bytes, integers, None, lists, dicts, and an
``ErrorReply`` for an error; what the server sends of its own accord is a ``RedisPush``. Each connection gets its
replies and pushes in one order. ``tests/integration/test_simulated_redis.py`` compares all this with a real server.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from culver.simulation.redis.glob_pattern import matches_glob
from culver.simulation.redis.redis_keys import KEY_COMMANDS, ErrorReply, RedisKeys

RedisCommand = tuple[bytes, ...]


class RedisPush(list[object]):
    """What a server sends without being asked: a message, or the confirmation of a subscription."""


class _NoReply:
    """The commands that subscribe are answered by pushes alone."""


_NO_REPLY = _NoReply()


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """When the server cuts a subscriber that does not read (``client-output-buffer-limit pubsub``)."""

    hard_bytes: int = 32 << 20
    soft_bytes: int = 8 << 20
    soft_seconds: float = 60.0
    #: What the kernel takes before anything counts as the server's own memory.
    socket_bytes: int = 256 << 10


class RedisTransport(Protocol):
    """Carries what the server sends to one client."""

    @property
    def unsent_bytes(self) -> int: ...

    def send(self, output: object, size_bytes: int) -> None: ...

    def close(self) -> None:
        """The server cuts the connection."""


class RedisSession:
    """One client's connection as the server sees it."""

    def __init__(self, number: int, transport: RedisTransport, opened_at: float) -> None:
        self.number = number
        self.transport = transport
        self.opened_at = opened_at
        self.name = b""
        self.is_open = True
        self.speaks_resp3 = False
        # Dicts serve as ordered sets, so that runs do not depend on the order of hashes.
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.beyond_soft_limit_since: float | None = None
        #: The commands since MULTI, which EXEC carries out; None outside of a transaction.
        self.transaction: list[RedisCommand] | None = None

    @property
    def subscriptions(self) -> int:
        return len(self.channels) + len(self.patterns)


class SimulatedRedis:
    """The state of one server. A crash empties it and forgets its connections; the same object then starts anew.

    ``loses`` may be set to make pub/sub messages vanish on their way to a client, as when Redis drops the buffer of a
    slow subscriber: it gets the session, the channel and the message. ``pushes_follow_reply`` is how a server of
    version 7 and later treats a client that publishes to itself; an older one sends the message first.
    """

    def __init__(self, limit: OutputLimit | None = None, *, pushes_follow_reply: bool = True) -> None:
        self._limit = limit or OutputLimit()
        self._pushes_follow_reply = pushes_follow_reply
        self.loses: Callable[[RedisSession, bytes, bytes], bool] | None = None
        self.lives = 0
        self.crash()

    def crash(self) -> None:
        """Forgets everything. The caller breaks the connections."""
        self.lives += 1
        self._keys = RedisKeys()
        self._sessions: dict[int, RedisSession] = {}
        self._channels: dict[bytes, dict[int, RedisSession]] = {}
        self._patterns: dict[bytes, dict[int, RedisSession]] = {}
        self._numbers = 0
        self._now = 0.0
        self._deferred: list[tuple[RedisSession, RedisPush]] = []
        self.commands = 0
        self.input_bytes = 0
        self.output_bytes = 0
        self.outputs = 0
        self.cut_subscribers = 0

    @property
    def sessions(self) -> list[RedisSession]:
        return list(self._sessions.values())

    def accept(self, transport: RedisTransport, now: float) -> RedisSession:
        """Takes a new connection."""
        self._numbers += 1
        session = self._sessions[self._numbers] = RedisSession(self._numbers, transport, now)
        return session

    def disconnected(self, session: RedisSession) -> None:
        """A connection is gone, and its subscriptions with it."""
        session.is_open = False
        if self._sessions.get(session.number) is not session:
            return
        del self._sessions[session.number]
        for channel in list(session.channels):
            self._leave(session, session.channels, self._channels, channel)
        for pattern in list(session.patterns):
            self._leave(session, session.patterns, self._patterns, pattern)

    def execute(self, session: RedisSession, command: RedisCommand, now: float) -> None:
        """Carries out a command, and sends the reply and all pushes that it leads to.

        :raises NotImplementedError: a command that real servers may know and this one does not.
        """
        if not session.is_open:
            return
        self._now = now
        self.commands += 1
        self.input_bytes += encoded_bytes(command)
        try:
            reply = self._call(session, command)
        except ErrorReply as error:
            reply = error
        if not isinstance(reply, _NoReply):
            self._send(session, reply)
        deferred, self._deferred = self._deferred, []
        for subscriber, push in deferred:
            self._send(subscriber, push)

    def _call(self, session: RedisSession, command: RedisCommand) -> object:
        name = command[0].upper()
        known = _COMMANDS.get(name) or KEY_COMMANDS.get(name)
        if known is None:
            raise NotImplementedError(f"the simulated server does not know the command {name.decode()}")
        if not session.speaks_resp3 and name != b"HELLO":
            raise NotImplementedError(f"the simulated server gets {name.decode()} before HELLO 3")
        function, fewest, most = known
        given = len(command) - 1
        if given < fewest or (most is not None and given > most):
            if session.transaction is not None:
                raise NotImplementedError("the simulated server does not abort transactions")
            raise ErrorReply(f"ERR wrong number of arguments for '{name.decode().lower()}' command")
        if session.transaction is not None and name not in (b"MULTI", b"EXEC"):
            if name not in KEY_COMMANDS:
                raise NotImplementedError(f"the simulated server does not take {name.decode()} behind MULTI")
            session.transaction.append(command)
            return b"QUEUED"
        if name in KEY_COMMANDS:
            self._keys.now = self._now
            return function(self._keys, *command[1:])
        return function(self, session, *command[1:])

    def _send(self, session: RedisSession, output: object) -> None:
        if not session.is_open:
            return
        size = encoded_bytes(output)
        self.outputs += 1
        self.output_bytes += size
        session.transport.send(output, size)
        if session.subscriptions:
            self._cut_if_slow(session)

    def output_memory(self, session: RedisSession) -> int:
        """The bytes that wait in the server for this client to read (``omem``)."""
        return max(0, session.transport.unsent_bytes - self._limit.socket_bytes)

    def _cut_if_slow(self, session: RedisSession) -> None:
        memory = self.output_memory(session)
        if memory <= self._limit.soft_bytes:
            session.beyond_soft_limit_since = None
        elif session.beyond_soft_limit_since is None:
            session.beyond_soft_limit_since = self._now
        since = session.beyond_soft_limit_since
        too_long = since is not None and self._now - since > self._limit.soft_seconds
        if memory > self._limit.hard_bytes or too_long:
            self.cut_subscribers += 1
            self.disconnected(session)
            session.transport.close()

    # Connections

    def _hello(self, session: RedisSession, *arguments: bytes) -> object:
        if arguments and not arguments[0].isdigit():
            raise ErrorReply("ERR Protocol version is not an integer or out of range")
        if arguments and int(arguments[0]) not in (2, 3):
            raise ErrorReply("NOPROTO unsupported protocol version")
        options = list(arguments[1:])
        name = None
        while options:
            option = options.pop(0)
            if option.upper() == b"AUTH" and len(options) >= 2:
                user, _ = options.pop(0), options.pop(0)
                if user != b"default":
                    raise ErrorReply("WRONGPASS invalid username-password pair or user is disabled.")
            elif option.upper() == b"SETNAME" and options:
                name = options.pop(0)
            else:
                raise ErrorReply(f"ERR Syntax error in HELLO option '{option.decode(errors='replace')}'")
        if arguments and arguments[0] != b"3":
            raise NotImplementedError("the simulated server speaks RESP3 only")
        session.speaks_resp3 = session.speaks_resp3 or bool(arguments)
        session.name = session.name if name is None else name
        return {
            b"server": b"valkey",
            b"version": b"9.1.2",
            b"proto": 3,
            b"id": session.number,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }

    def _ping(self, session: RedisSession, message: bytes = b"PONG") -> object:
        return message

    def _multi(self, session: RedisSession) -> object:
        if session.transaction is not None:
            raise NotImplementedError("servers answer MULTI behind MULTI in different words")
        session.transaction = []
        return b"OK"

    def _exec(self, session: RedisSession) -> object:
        if session.transaction is None:
            raise ErrorReply("ERR EXEC without MULTI")
        commands, session.transaction = session.transaction, None
        replies: list[object] = []
        for command in commands:
            try:
                replies.append(self._call(session, command))
            except ErrorReply as error:
                replies.append(error)
        return replies

    def _client(self, session: RedisSession, subcommand: bytes, *arguments: bytes) -> object:
        match subcommand.upper(), len(arguments):
            case b"ID", 0:
                return session.number
            case b"SETNAME", 1:
                session.name = arguments[0]
                return b"OK"
            case b"LIST", 0:
                return self._client_list(self.sessions)
            case b"LIST", 2 if arguments[0].upper() == b"TYPE":
                wanted = arguments[1].lower() == b"pubsub"
                return self._client_list(s for s in self.sessions if bool(s.subscriptions) == wanted)
        raise NotImplementedError(f"the simulated server does not know CLIENT {subcommand.decode()}")

    def _client_list(self, sessions: Iterable[RedisSession]) -> bytes:
        return b"".join(
            b"id=%d addr=127.0.0.1:%d name=%s age=%d flags=%s sub=%d psub=%d omem=%d resp=3\n"
            % (
                session.number,
                50_000 + session.number,
                session.name,
                int(self._now - session.opened_at),
                b"P" if session.subscriptions else b"N",
                len(session.channels),
                len(session.patterns),
                self.output_memory(session),
            )
            for session in sessions
        )

    def _info(self, session: RedisSession, *sections: bytes) -> bytes:
        """Figures of the sections that the analyser reads; a command costs 2 µs of CPU time, an output 1 µs."""
        memory = sum(self.output_memory(each) for each in self.sessions)
        figures: dict[bytes, dict[bytes, object]] = {
            b"Server": {b"redis_version": "7.2.4", b"run_id": f"{self.lives:040x}"},
            b"Clients": {b"connected_clients": len(self._sessions)},
            b"Memory": {b"used_memory": 1_000_000 + memory},
            b"Stats": {
                b"total_commands_processed": self.commands,
                b"total_net_input_bytes": self.input_bytes,
                b"total_net_output_bytes": self.output_bytes,
                b"pubsub_channels": len(self._channels),
                b"pubsub_patterns": len(self._patterns),
            },
            b"CPU": {
                b"used_cpu_sys": f"{self.outputs * 1e-6:.6f}",
                b"used_cpu_user": f"{self.commands * 2e-6:.6f}",
            },
        }
        wanted = {section.lower() for section in sections} or {b"all"}
        text = [
            b"# %s\r\n%s"
            % (
                title,
                b"".join(b"%s:%s\r\n" % (key, str(figures[title][key]).encode()) for key in figures[title]),
            )
            for title in figures
            if wanted & {b"all", b"everything", b"default", title.lower()}
        ]
        return b"\r\n".join(text)

    # Publish and subscribe

    def _subscribe(self, session: RedisSession, *names: bytes) -> object:
        return self._join(session, b"subscribe", session.channels, self._channels, names)

    def _psubscribe(self, session: RedisSession, *names: bytes) -> object:
        return self._join(session, b"psubscribe", session.patterns, self._patterns, names)

    def _unsubscribe(self, session: RedisSession, *names: bytes) -> object:
        return self._part(session, b"unsubscribe", session.channels, self._channels, names)

    def _punsubscribe(self, session: RedisSession, *names: bytes) -> object:
        return self._part(session, b"punsubscribe", session.patterns, self._patterns, names)

    def _join(
        self,
        session: RedisSession,
        kind: bytes,
        own: dict[bytes, None],
        sessions_by_name: dict[bytes, dict[int, RedisSession]],
        names: tuple[bytes, ...],
    ) -> object:
        for name in names:
            own[name] = None
            sessions_by_name.setdefault(name, {})[session.number] = session
            self._send(session, RedisPush([kind, name, session.subscriptions]))
        return _NO_REPLY

    def _part(
        self,
        session: RedisSession,
        kind: bytes,
        own: dict[bytes, None],
        sessions_by_name: dict[bytes, dict[int, RedisSession]],
        names: tuple[bytes, ...],
    ) -> object:
        leaving = names or tuple(own)
        for name in leaving:
            self._leave(session, own, sessions_by_name, name)
            self._send(session, RedisPush([kind, name, session.subscriptions]))
        if not leaving:
            self._send(session, RedisPush([kind, None, session.subscriptions]))
        return _NO_REPLY

    @staticmethod
    def _leave(
        session: RedisSession,
        own: dict[bytes, None],
        sessions_by_name: dict[bytes, dict[int, RedisSession]],
        name: bytes,
    ) -> None:
        if name in own:
            del own[name]
            del sessions_by_name[name][session.number]
            if not sessions_by_name[name]:
                del sessions_by_name[name]

    def _publish(self, session: RedisSession, channel: bytes, message: bytes) -> object:
        receivers = 0
        for subscriber in list(self._channels.get(channel, {}).values()):
            receivers += 1
            self._push(session, subscriber, channel, message, RedisPush([b"message", channel, message]))
        for pattern, subscribers in list(self._patterns.items()):
            if matches_glob(pattern, channel):
                for subscriber in list(subscribers.values()):
                    receivers += 1
                    push = RedisPush([b"pmessage", pattern, channel, message])
                    self._push(session, subscriber, channel, message, push)
        return receivers

    def _push(
        self,
        publisher: RedisSession,
        subscriber: RedisSession,
        channel: bytes,
        message: bytes,
        push: RedisPush,
    ) -> None:
        if self.loses is not None and self.loses(subscriber, channel, message):
            return
        if subscriber is publisher and self._pushes_follow_reply:
            self._deferred.append((subscriber, push))
        else:
            self._send(subscriber, push)

    def _pubsub(self, session: RedisSession, subcommand: bytes, *arguments: bytes) -> object:
        match subcommand.upper():
            case b"NUMSUB":
                reply: list[object] = []
                for channel in arguments:
                    reply += [channel, len(self._channels.get(channel, {}))]
                return reply
            case b"CHANNELS" if len(arguments) <= 1:
                return [
                    channel
                    for channel in self._channels
                    if not arguments or matches_glob(arguments[0], channel)
                ]
            case b"NUMPAT" if not arguments:
                return len(self._patterns)
        raise NotImplementedError(f"the simulated server does not know PUBSUB {subcommand.decode()}")


#: The name of a command, what carries it out, and the fewest and most arguments behind the name.
_COMMANDS: dict[bytes, tuple[Callable[..., object], int, int | None]] = {
    b"HELLO": (SimulatedRedis._hello, 0, None),
    b"PING": (SimulatedRedis._ping, 0, 1),
    b"MULTI": (SimulatedRedis._multi, 0, 0),
    b"EXEC": (SimulatedRedis._exec, 0, 0),
    b"CLIENT": (SimulatedRedis._client, 1, None),
    b"INFO": (SimulatedRedis._info, 0, None),
    b"SUBSCRIBE": (SimulatedRedis._subscribe, 1, None),
    b"PSUBSCRIBE": (SimulatedRedis._psubscribe, 1, None),
    b"UNSUBSCRIBE": (SimulatedRedis._unsubscribe, 0, None),
    b"PUNSUBSCRIBE": (SimulatedRedis._punsubscribe, 0, None),
    b"PUBLISH": (SimulatedRedis._publish, 2, 2),
    b"PUBSUB": (SimulatedRedis._pubsub, 1, None),
}


def encoded_bytes(value: object) -> int:
    """About how many bytes a reply or a command takes on the wire."""
    if isinstance(value, bytes):
        return len(value) + len(str(len(value))) + 5
    if isinstance(value, list | tuple):
        size = 4
        for item in value:
            size += len(item) + len(str(len(item))) + 5 if isinstance(item, bytes) else encoded_bytes(item)
        return size
    if isinstance(value, dict):
        return 4 + sum(encoded_bytes(key) + encoded_bytes(item) for key, item in value.items())
    return 3 + len(str(value))
