"""Subscriptions of one reader, in the shape of redis-py's ``PubSub``."""

import asyncio
import inspect
import logging
import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

from culver.channels.channel_connections import ChannelConnections, Response
from culver.channels.core.envelope import Envelope
from culver.channels.core.instructions import ServerLink
from culver.channels.core.message_order import LostMessages
from culver.errors import ConnectionFailed, CulverError, InvalidRequest

logger = logging.getLogger(__name__)

#: What redis-py hands out: ``type``, ``pattern``, ``channel`` and ``data``.
Message = dict[str, Any]
Handler = Callable[[Message], Awaitable[None] | None]
Value = bytes | bytearray | memoryview | str | int | float

#: The reason of losses that the limits of a reader cause.
SLOW_READER = "slow reader"
_REFUSED = b"refused"


class QueueLimits(NamedTuple):
    """What may wait for a reader that is slow."""

    messages: int = 100_000
    bytes: int = 256 << 20


DEFAULT_LIMITS = QueueLimits()


@dataclass(frozen=True, slots=True)
class ChannelSubscription:
    """A channel or pattern with its handler, for names that cannot be keywords; redis-py's ``Subscription`` does
    as well."""

    name: Value
    handler: Handler | None = None


class PubSubOwner(Protocol):
    """The client that a ``PubSub`` belongs to."""

    decode_responses: bool

    async def connect(self, pubsub: "PubSub") -> ChannelConnections: ...

    def forget(self, pubsub: "PubSub") -> None: ...

    def name(self, channel: Value) -> bytes: ...

    def encode(self, value: Value, field: str = "message") -> bytes: ...

    def decode(self, data: bytes) -> bytes | str: ...


class PubSub:
    """Use it as ``async with client.pubsub() as pubsub``. One task reads it.

    Besides redis-py's kinds of messages there is one more: ``{"type": "gap", "channel": ..., "data": LostMessages}``
    says which messages of which publisher were lost, in the place where they are missing. A reader that lets more
    wait than its limits allow loses those that follow, and is told so in the same way; other readers are not
    affected. ``gap_handler`` gets these messages where there is one; ``run`` logs them otherwise.
    ``push_handler_func`` gets everything, as lists, and leaves nothing for the reader.

    After a lost connection the client subscribes again by itself. A new ``subscribe`` message then says that the
    subscription is served again, as in redis-py.
    """

    def __init__(
        self,
        client: PubSubOwner,
        *,
        ignore_subscribe_messages: bool = False,
        push_handler_func: Callable[[Response], Any] | None = None,
        gap_handler: Handler | None = None,
        limits: QueueLimits = DEFAULT_LIMITS,
    ) -> None:
        self._client = client
        self.ignore_subscribe_messages = ignore_subscribe_messages
        self.push_handler_func = push_handler_func
        self.gap_handler = gap_handler
        self.channels: dict[bytes | str, Handler | None] = {}
        self.patterns: dict[bytes | str, Handler | None] = {}
        # Subscriptions end for the reader when it reads that they have ended, as in redis-py.
        self._ending_channels: set[bytes | str] = set()
        self._ending_patterns: set[bytes | str] = set()
        self._connections: ChannelConnections | None = None
        self._failure: CulverError | None = None
        self._followed: dict[tuple[bool, bytes], None] = {}
        self._confirmed: set[tuple[bool, bytes]] = set()
        self._queue: deque[Response] = deque()
        self._queued_bytes = 0
        self._limits = limits
        # What a full queue has refused: set while messages are dropped.
        self._dropped: dict[tuple[bytes | None, bytes, int, int], LostMessages] | None = None
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends all subscriptions. A task that waits for a message gets None. The object can subscribe again."""
        self.end(None)
        self._client.forget(self)

    async def close(self) -> None:
        """The old name of ``aclose``."""
        warnings.warn("use aclose() instead of close()", DeprecationWarning, stacklevel=2)
        await self.aclose()

    async def reset(self) -> None:
        """The old name of ``aclose``."""
        warnings.warn("use aclose() instead of reset()", DeprecationWarning, stacklevel=2)
        await self.aclose()

    async def connect(self) -> None:
        """Makes sure that the servers are known. ``subscribe`` does so by itself."""
        if self._connections is None:
            self._connections = await self._client.connect(self)
        else:
            # A loop that connects and reads until its PubSub is closed would keep all others from running.
            await asyncio.sleep(0)

    @property
    def subscribed(self) -> bool:
        """Whether there is a subscription, or the end of one that was not read yet."""
        return bool(self.channels or self.patterns)

    async def subscribe(self, *channels: Any, **handlers: Handler) -> None:
        """Subscribes to channels: names, lists of names, ``ChannelSubscription``s, or names with a handler by
        keyword. It returns when the servers can be reached; a ``subscribe`` message says that a subscription counts.

        :raises CulverError: a name is not valid, or a server refuses this client or cannot be reached. None of the
            subscriptions has begun then.
        """
        await self._follow(channels, handlers, pattern=False)

    async def psubscribe(self, *patterns: Any, **handlers: Handler) -> None:
        """Subscribes to all channels whose names match, on all servers."""
        await self._follow(patterns, handlers, pattern=True)

    async def unsubscribe(self, *channels: Any) -> None:
        """Ends these subscriptions, or all to channels."""
        await self._unfollow(channels, pattern=False)

    async def punsubscribe(self, *patterns: Any) -> None:
        await self._unfollow(patterns, pattern=True)

    async def get_message(
        self, ignore_subscribe_messages: bool = False, timeout: float | None = 0.0
    ) -> Message | None:
        """The next message; None if none comes within ``timeout`` seconds, or if a handler has taken it.

        :raises RuntimeError: nothing was ever subscribed.
        :raises ConnectionFailed: the client is closed.
        :raises ServerError: a server has refused a subscription, which has ended.
        """
        response = await self.parse_response(block=timeout is None, timeout=timeout or 0.0)
        return None if response is None else await self.handle_message(response, ignore_subscribe_messages)

    async def listen(self) -> AsyncIterator[Message]:
        """Iterates over messages as long as there are subscriptions."""
        while self.subscribed:
            response = await self.parse_response()
            if response is not None:
                message = await self.handle_message(response)
                if message is not None:
                    yield message

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.listen()

    async def run(
        self,
        *,
        exception_handler: Callable[[BaseException, "PubSub"], Any] | None = None,
        poll_timeout: float = 1.0,
    ) -> None:
        """Reads messages for the handlers until it is cancelled.

        :raises RuntimeError: a subscription has no handler.
        """
        self.require_handlers()
        await self.connect()
        while True:
            try:
                message = await self.get_message(ignore_subscribe_messages=True, timeout=poll_timeout)
                log_gap(message)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if exception_handler is None:
                    raise
                outcome = exception_handler(error, self)
                if inspect.isawaitable(outcome):
                    await outcome
            # Other tasks get their turn also while a long queue is read.
            await asyncio.sleep(0)

    async def ping(self, message: Value | None = None) -> bool:
        """Asks every server on the connections that messages come by; a ``pong`` follows what has arrived before.

        :raises CulverError: a server cannot be reached.
        """
        await self.connect()
        assert self._connections is not None
        await self._connections.ask_all((b"PING",), ServerLink.SUBSCRIBE)
        self._put([b"pong", b"" if message is None else self._client.encode(message)])
        return True

    async def parse_response(self, block: bool = True, timeout: float = 0.0) -> Response | None:
        """The next message as a list, as redis-py has it; ``handle_message`` makes a dictionary of it."""
        if not self._queue and not await self._wait(None if block else timeout):
            return None
        response = self.decoded(self._take())
        if self.push_handler_func is None:
            return response
        outcome = self.push_handler_func(response)
        if inspect.isawaitable(outcome):
            await outcome
        return None

    async def take_many(self, timeout: float | None, most: int) -> list[Response]:
        """What is queued, before it is decoded; nothing if nothing comes in time."""
        if not self._queue and not await self._wait(timeout):
            return []
        return [self._take() for _ in range(min(most, len(self._queue)))]

    def decoded(self, response: Response) -> Response:
        """The response with strings for bytes where the client wants them. Not in ``deliver``: data that cannot be
        decoded is the reader's error, not the connection's.

        :raises ServerError: a server has refused a subscription.
        """
        if response[0] is _REFUSED:
            _, name, pattern, error = response
            (self.patterns if pattern else self.channels).pop(self._shown(name), None)
            raise error
        if not self._client.decode_responses:
            return response
        decode = self._client.decode
        return [response[0], *(decode(item) if type(item) is bytes else item for item in response[1:])]

    async def handle_message(
        self, response: Response | None, ignore_subscribe_messages: bool = False
    ) -> Message | None:
        """Calls the message's handler, if there is one; returns what is left for the reader."""
        message, handler = self.read(response, ignore_subscribe_messages)
        if message is None or handler is None:
            return message
        outcome = handler(message)
        if inspect.isawaitable(outcome):
            await outcome
        return None

    def read(
        self, response: Response | None, ignore_subscribe_messages: bool = False
    ) -> tuple[Message | None, Handler | None]:
        """The message, and the handler that is to get it; without one the reader gets it."""
        if response is None:
            return None, None
        kind: str = response[0].decode()
        pattern = response[1] if kind in ("pmessage", "gap") else None
        channel = None if kind == "pong" else response[-2]
        message = {"type": kind, "pattern": pattern, "channel": channel, "data": response[-1]}
        if kind == "message":
            return message, self.channels.get(message["channel"])
        if kind == "pmessage":
            return message, self.patterns.get(message["pattern"])
        if kind == "gap":
            return message, self.gap_handler
        if kind == "unsubscribe":
            self._ended(self.channels, self._ending_channels, channel)
        elif kind == "punsubscribe":
            self._ended(self.patterns, self._ending_patterns, channel)
        ignored = kind != "pong" and (ignore_subscribe_messages or self.ignore_subscribe_messages)
        return (None if ignored else message), None

    def require_handlers(self) -> None:
        """
        :raises RuntimeError: a subscription has no handler.
        """
        for name, handler in (*self.channels.items(), *self.patterns.items()):
            if handler is None:
                raise RuntimeError(f"the subscription to {name!r} has no handler")

    # What the connections call.

    def deliver(self, response: Response, envelope: Envelope | None) -> None:
        full = len(self._queue) >= self._limits.messages or self._queued_bytes > self._limits.bytes
        if full or self._dropped is not None:
            self._drop(response, envelope)
        else:
            self._put(response)

    def confirmed(self, kind: bytes, name: bytes) -> None:
        self._confirmed.add((kind == b"psubscribe", name))
        self._put([kind, name, len(self._confirmed)])

    def interrupted(self, kind: bytes, name: bytes) -> None:
        self._confirmed.discard((kind == b"psubscribe", name))

    def lost(self, messages: LostMessages, pattern: bytes | None) -> None:
        if self._dropped is None:
            self._put([b"gap", pattern, messages.channel, messages])
        else:
            self._note_dropped(pattern, messages)

    def refused(self, name: bytes, error: Exception, *, pattern: bool) -> None:
        self._followed.pop((pattern, name), None)
        self._confirmed.discard((pattern, name))
        self._put([_REFUSED, name, pattern, error])

    def end(self, failure: CulverError | None) -> None:
        """Ends all subscriptions at once. Readers get the failure, or None."""
        if self._connections is not None:
            for pattern in (False, True):
                names = [name for kind, name in self._followed if kind is pattern]
                self._connections.unfollow(self, names, pattern=pattern)
        self._connections = None
        self._failure = failure
        self.channels, self.patterns = {}, {}
        for table in (self._followed, self._confirmed, self._ending_channels, self._ending_patterns):
            table.clear()
        self._queue.clear()
        self._queued_bytes = 0
        self._dropped = None
        self._arrived.set()

    # The queue.

    def _put(self, response: Response) -> None:
        self._queue.append(response)
        data = response[-1]
        if type(data) is bytes:
            self._queued_bytes += len(data)
        self._arrived.set()

    def _take(self) -> Response:
        response = self._queue.popleft()
        data = response[-1]
        if type(data) is bytes:
            self._queued_bytes -= len(data)
        if (
            self._dropped is not None
            and len(self._queue) <= self._limits.messages // 2
            and self._queued_bytes <= self._limits.bytes // 2
        ):
            # What is dropped lies between the messages that are queued now and those that come from now on.
            dropped, self._dropped = self._dropped, None
            for (pattern, channel, _, _), messages in dropped.items():
                self._put([b"gap", pattern, channel, messages])
        return response

    def _drop(self, response: Response, envelope: Envelope | None) -> None:
        pattern, channel = (response[1] if response[0] == b"pmessage" else None), response[-2]
        if envelope is None:
            # Data of another program has no number: the gap says that there is one, without bounds.
            messages = LostMessages(channel, 0, 0, 0, 0)
        else:
            number = envelope.sequence
            messages = LostMessages(channel, envelope.publisher, envelope.epoch, number, number)
        self._note_dropped(pattern, messages)

    def _note_dropped(self, pattern: bytes | None, messages: LostMessages) -> None:
        if self._dropped is None:
            self._dropped = {}
        key = (pattern, messages.channel, messages.publisher, messages.epoch)
        earlier = self._dropped.get(key, messages)
        self._dropped[key] = replace(messages, first=earlier.first, reason=SLOW_READER)

    async def _wait(self, timeout: float | None) -> bool:
        """Waits until something is queued, and returns whether there is: the time may be up, or the subscriptions
        were ended."""
        if self._connections is None:
            raise self._failure or RuntimeError(
                "pubsub connection not set: did you forget to call subscribe() or psubscribe()?"
            )
        if timeout is not None and timeout <= 0:
            # The connections are read in the loop's next turn.
            await asyncio.sleep(0)
        else:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                pass
        if self._failure is not None:
            raise self._failure
        return bool(self._queue)

    # Subscriptions.

    async def _follow(self, names: Iterable[Any], handlers: dict[str, Handler], *, pattern: bool) -> None:
        wanted: dict[bytes, Handler | None] = {}
        for item in _flattened(names):
            if hasattr(item, "name") and hasattr(item, "handler"):
                wanted[self._client.name(item.name)] = item.handler
            else:
                wanted[self._client.name(item)] = None
        for text, handler in handlers.items():
            wanted[self._client.name(text)] = handler
        shown = {self._shown(name): handler for name, handler in wanted.items()}
        await self.connect()
        if self._connections is None:
            raise ConnectionFailed("the subscription was closed")
        table = self.patterns if pattern else self.channels
        before, followed = dict(table), dict(self._followed)
        table.update(shown)
        self._followed.update(((pattern, name), None) for name in wanted)
        try:
            await self._connections.follow(self, list(wanted), pattern=pattern)
        except BaseException:
            table.clear()
            table.update(before)
            self._followed = followed
            raise
        (self._ending_patterns if pattern else self._ending_channels).difference_update(shown)

    async def _unfollow(self, names: Iterable[Any], *, pattern: bool) -> None:
        table, ending, begin, end = (
            (self.patterns, self._ending_patterns, b"psubscribe", b"punsubscribe")
            if pattern
            else (self.channels, self._ending_channels, b"subscribe", b"unsubscribe")
        )
        wanted = [self._client.encode(name, "channel") for name in _flattened(names)]
        if not wanted:
            wanted = [name for kind, name in self._followed if kind is pattern]
        await self.connect()
        if self._connections is None:
            raise ConnectionFailed("the subscription was closed")
        self._connections.unfollow(self, wanted, pattern=pattern)
        ending.update(name for name in map(self._shown, wanted) if name in table)
        for name in wanted:
            if (pattern, name) in self._followed and (pattern, name) not in self._confirmed:
                self.confirmed(begin, name)
            self._followed.pop((pattern, name), None)
            self._confirmed.discard((pattern, name))
            self._put([end, name, len(self._confirmed)])
        if not wanted:
            self._put([end, None, len(self._confirmed)])

    def _shown(self, name: bytes) -> bytes | str:
        try:
            return self._client.decode(name)
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"the name {name[:40]!r} cannot be decoded ({error}): use a client without decode_responses",
                field="channel",
            ) from error

    @staticmethod
    def _ended(
        table: dict[bytes | str, Handler | None], ending: set[bytes | str], name: bytes | str | None
    ) -> None:
        if name in ending:
            ending.discard(name)
            table.pop(name, None)


def log_gap(message: Message | None) -> None:
    """Logs a gap that nobody handles, so that no loss stays silent."""
    if message is not None and message["type"] == "gap":
        logger.warning("messages of the channel %r were lost: %s", message["channel"], message["data"])


def _flattened(names: Iterable[Any]) -> Iterable[Any]:
    for name in names:
        if isinstance(name, list | tuple | set | frozenset):
            yield from name
        else:
            yield name
