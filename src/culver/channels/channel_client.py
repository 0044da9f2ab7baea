"""The client of channels, in the shape of ``redis.asyncio``: whoever knows redis-py changes the import.

    async with culver.channels.Channels("http://127.0.0.1:8500") as channels:
        async with channels.pubsub() as pubsub:
            await pubsub.subscribe("news")
            await channels.publish("news", "hello")
            async for message in pubsub.listen():
                ...

All ``PubSub`` objects of a client share its connections: one to subscribe and one to publish for each server.
"""

import codecs
import os
from collections.abc import Callable
from typing import Any, Self

from culver.channels.channel_connections import ChannelConnections, ConnectionSettings, share_connections
from culver.channels.channel_names import check_channel_name
from culver.channels.channel_pubsub import DEFAULT_LIMITS, Handler, PubSub, QueueLimits, Value
from culver.channels.core.reserved_names import RESERVED_PREFIX
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.service_directory import DEFAULT_URL, URL_VARIABLE, parse_service_url
from culver.errors import ConnectionFailed, CulverError, InvalidRequest, TooLarge

MOST_PAYLOAD_BYTES = 64 << 20


class Channels:
    """A client of the channels of one service. Not thread-safe; ``SyncChannels`` is.

    ``url`` is the address that ``culver channels serve`` prints; without it the environment variable
    ``CULVER_CHANNELS_URL`` counts. ``username`` and ``password`` are for the Redis servers. ``decode_responses``
    turns names and data into strings, as redis-py does. Clients of one event loop with the same address, credentials
    and time-out share their connections, and are one publisher, unless they ask for ``own_connections``.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        ssl: Any = None,
        decode_responses: bool = False,
        encoding: str = "utf-8",
        encoding_errors: str = "strict",
        publish_timeout_seconds: float = 5.0,
        own_connections: bool = False,
    ) -> None:
        """Connects to nothing yet.

        :raises InvalidRequest: the URL is not one of HTTP, or nobody knows the encoding.
        """
        self.url = parse_service_url(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise InvalidRequest(f"{encoding!r} is not an encoding", field="encoding") from error
        self.decode_responses = decode_responses
        self._encoding = encoding
        self._encoding_errors = encoding_errors
        access = ServerAccess(username=username, password=password, tls=ssl)
        owner = object() if own_connections else None
        self._settings = ConnectionSettings(self.url, access, publish_timeout_seconds, owner)
        self._connections: ChannelConnections | None = None
        self._opened = False
        self._closed = False
        self._pubsubs: set[PubSub] = set()

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        return cls(url, **options)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the subscriptions of this client, whose readers get an error. The last client closes the connections:
        publications that are not finished then fail."""
        self._closed = True
        for pubsub in list(self._pubsubs):
            pubsub.end(self._closed_error())
        self._pubsubs.clear()
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.release()

    async def publish(self, channel: Value, message: Value) -> int:
        """Publishes, and returns how many subscribers the servers have sent the message to. ``PubSub`` objects that
        share their connections count as one subscriber.

        :raises CulverError: the name or the message is not valid, a server refuses it, or none answers in time
            (``ConnectionFailed``). In the last case the message may have been delivered all the same.
        """
        name, payload = self.name(channel), self._payload(message)
        connections = self._connections
        if connections is None or not self._opened:
            connections = await self._open()
        return await connections.publish(lambda core, now: core.publish(name, payload, now), len(payload))

    async def publish_chained(
        self, channel: Value, message: Value, *, publisher: int, epoch: int, previous: int, sequence: int
    ) -> int:
        """Publishes under an id that the caller gives, and that subscribers see once however often it is published.

        ``sequence`` rises from message to message, with holes; ``previous`` is that of the message before, or 0 where
        the caller does not know. Calls that begin in order are sent in order.

        :raises CulverError: as ``publish``. Publish it again with the same id.
        """
        name, payload = self.name(channel), self._payload(message)
        connections = self._connections
        if connections is None or not self._opened:
            connections = await self._open()
        return await connections.publish(
            lambda core, now: core.publish_chained(name, publisher, epoch, previous, sequence, payload, now),
            len(payload),
        )

    def pubsub(
        self,
        *,
        ignore_subscribe_messages: bool = False,
        push_handler_func: Callable[[list[Any]], Any] | None = None,
        gap_handler: Handler | None = None,
        limits: QueueLimits = DEFAULT_LIMITS,
    ) -> PubSub:
        """A reader with subscriptions of its own; ``limits`` bound what waits for it."""
        return PubSub(
            self,
            ignore_subscribe_messages=ignore_subscribe_messages,
            push_handler_func=push_handler_func,
            gap_handler=gap_handler,
            limits=limits,
        )

    async def publisher_id(self) -> int:
        """The number of this client as a publisher, which gaps of its messages name."""
        return (await self._open()).core.client

    @property
    def settled(self) -> bool:
        """Whether every subscription is where the plan wants it, and nowhere else."""
        return self._connections is not None and self._opened and self._connections.core.settled

    async def ping(self) -> bool:
        """Asks the service where its servers are, the first time, and every server whether it answers.

        :raises CulverError: the service or a server does not answer, or refuses this client.
        """
        await (await self._open()).ask_all((b"PING",))
        return True

    async def pubsub_channels(self, pattern: Value = "*") -> list[bytes | str]:
        """The channels with subscribers on any server."""
        replies = await (await self._open()).ask_all(
            (b"PUBSUB", b"CHANNELS", self.encode(pattern, "pattern"))
        )
        names = {name for reply in replies.values() if isinstance(reply, list) for name in reply}
        return [self.decode(name) for name in sorted(names) if not name.startswith(RESERVED_PREFIX)]

    async def pubsub_numsub(self, *channels: Value) -> list[tuple[bytes | str, int]]:
        """How many processes subscribe to each channel. A channel that moves counts its dispatchers too."""
        if not channels:
            return []
        names = [self.name(channel) for channel in channels]
        connections = await self._open()
        entries = await connections.entries_of(names)
        replies = await connections.ask_all((b"PUBSUB", b"NUMSUB", *names))
        counts = []
        for index, (name, entry) in enumerate(zip(names, entries, strict=True)):
            on_server = {
                server: reply[2 * index + 1] for server, reply in replies.items() if isinstance(reply, list)
            }
            # A subscriber is on one server of every group.
            groups = [sum(on_server.get(server, 0) for server in group) for group in entry.groups]
            counts.append((self.decode(name), max(groups)))
        return counts

    async def pubsub_numpat(self) -> int:
        """How many patterns are subscribed to; every server has all of them."""
        replies = await (await self._open()).ask_all((b"PUBSUB", b"NUMPAT"))
        return max(reply for reply in replies.values() if isinstance(reply, int))

    def encode(self, value: Value, field: str = "message") -> bytes:
        """A name or a message as bytes, with redis-py's rules.

        :raises InvalidRequest: it is neither bytes nor a string nor a number, or cannot be encoded.
        """
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidRequest(
                f"{type(value).__name__} is not bytes, a string or a number: convert it first", field=field
            )
        try:
            return str(value).encode(self._encoding, self._encoding_errors)
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"the text cannot be encoded: {error}", field=field) from error

    def decode(self, data: bytes) -> bytes | str:
        return data.decode(self._encoding, self._encoding_errors) if self.decode_responses else data

    def name(self, channel: Value) -> bytes:
        """The name of a channel or pattern as bytes; raises as ``check_channel_name``."""
        return check_channel_name(self.encode(channel, "channel"))

    async def connect(self, pubsub: PubSub) -> ChannelConnections:
        """Opens the connections for a ``PubSub`` of this client, which ends with it."""
        connections = await self._open()
        self._pubsubs.add(pubsub)
        return connections

    def forget(self, pubsub: PubSub) -> None:
        """A ``PubSub`` has ended its subscriptions."""
        self._pubsubs.discard(pubsub)

    def _payload(self, message: Value) -> bytes:
        payload = self.encode(message)
        if len(payload) > MOST_PAYLOAD_BYTES:
            raise TooLarge(
                f"a message has at most {MOST_PAYLOAD_BYTES:,} bytes, not {len(payload):,}",
                field="message",
                limit=MOST_PAYLOAD_BYTES,
            )
        return payload

    async def _open(self) -> ChannelConnections:
        if self._closed:
            raise self._closed_error()
        if self._connections is None:
            self._connections = share_connections(self._settings)
        connections = self._connections
        await connections.open()
        if self._closed:
            raise self._closed_error()
        self._opened = True
        return connections

    def _closed_error(self) -> CulverError:
        return ConnectionFailed("the client is closed: make a new one")
