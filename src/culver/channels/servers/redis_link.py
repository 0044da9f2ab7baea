"""One connection to one Redis or Valkey server, in RESP3.

A link never waits to send: commands of one turn of the event loop are written together, and the server's replies call
back in the order of the commands. RESP3 tells pushes (messages, confirmations of subscriptions) from replies, so one
connection can subscribe and send commands alike.

A subscription command has no reply of its own but a push for each channel, or one error. The link keeps its place in
the queue of unanswered commands until the last of these has arrived; otherwise an error would be taken for the reply
to another command.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from hiredis import ProtocolError, PushNotification, Reader, pack_command

from culver.channels.core.instructions import Command, Reply
from culver.channels.servers import redis_failures as failures
from culver.channels.servers.redis_address import ServerAccess, parse_redis_url
from culver.errors import ServerError, ServerUnreachable

logger = logging.getLogger(__name__)

#: What a server pushes: its kind (``message``, ``pmessage``, ``subscribe``, ...), then what belongs to it.
Push = list[Any]

_SUBSCRIPTION_COMMANDS = frozenset(
    (b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"SSUBSCRIBE", b"SUNSUBSCRIBE")
)
_CONFIRMATIONS = frozenset(name.lower() for name in _SUBSCRIPTION_COMMANDS)

_NOTHING = object()
_JOINED_BYTES = 65_536
_LINGER_SECONDS = 1.0
# A link counts turns without data instead of measuring time, so that a loop that was busy for seconds reads what has
# arrived meanwhile before it calls a server silent.
_PING_TURN = 4
_SILENT_TURNS = 8


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Bounds of a link. A server that sends nothing for half of ``silence_seconds`` gets a PING, and is taken for
    lost at the end of them. ``drain`` waits while more than ``drain_bytes`` are unsent; a link with more than
    ``most_unsent_bytes`` breaks."""

    connect_seconds: float = 2.0
    silence_seconds: float = 2.0
    drain_bytes: int = 1 << 20
    most_unsent_bytes: int = 256 << 20


@dataclass(slots=True)
class _Subscription:
    """The place of a subscription command among the unanswered: ``left`` confirmations are to come."""

    left: int
    on_reply: "Callable[[Reply], None] | asyncio.Future[Reply] | None"


class RedisLink(asyncio.Protocol):
    """Connects once; a new connection wants a new link. Use it from the thread of one event loop only.

    ``on_pushes`` gets the pushes of each read in one list. ``on_lost`` is called once with the reason when an open
    link breaks, never after ``close``. Between pushes and replies, and among each of them, the callbacks keep the
    order in which the server sent them. A callback that raises breaks the link, so that nothing is skipped silently.
    """

    def __init__(
        self,
        url: str,
        on_pushes: Callable[[list[Push]], None] = lambda pushes: None,
        on_lost: Callable[[ServerError], None] = lambda reason: None,
        *,
        access: ServerAccess = ServerAccess(),  # noqa: B008  frozen
        settings: LinkSettings = LinkSettings(),  # noqa: B008  frozen
        name: str = "",
    ) -> None:
        """``name`` is shown by CLIENT LIST; it has no spaces. A user and password in the URL go before ``access``.

        :raises InvalidConfiguration: the URL is not that of a server.
        """
        self._address = parse_redis_url(url)
        self.url = self._address.url
        self.version = ""
        self._on_pushes = on_pushes
        self._on_lost = on_lost
        self._access = access
        self._settings = settings
        self._name = name
        self._reader = Reader(replyError=self._refusal, notEnoughData=_NOTHING)
        self._unanswered: deque[Callable[[Reply], None] | asyncio.Future[Reply] | _Subscription | None] = (
            deque()
        )
        self._subscriptions = 0
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._silent_turns = 0
        self._reading = True
        self._greeted = False
        self._open = False
        self._reason: ServerError | None = None
        self._warned = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()

    @property
    def is_open(self) -> bool:
        return self._open and self._greeted

    async def connect(self) -> None:
        """Returns when the server has accepted user and password, and speaks RESP3.

        :raises ServerError: one of its subclasses, which says what is wrong and whether a retry can help.
        """
        if self._transport is not None:
            raise RuntimeError("a link connects once")
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        seconds = self._settings.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._open_transport()
                self._check_greeting(await self._answer_to(self._greeting()))
        except TimeoutError as error:
            raise failures.no_greeting(self.url, seconds, tls=self._address.tls) from error
        except OSError as error:
            raise failures.failed_connection(self.url, error) from error
        finally:
            if not self._greeted and self._transport is not None:
                self._transport.abort()
        self._schedule_turn()

    def send(self, command: Command, on_reply: Callable[[Reply], None] | None = None) -> None:
        """Queues a command and returns at once. An error reply is passed to ``on_reply`` as an exception. For a
        subscription command, ``on_reply`` gets None when every channel is confirmed, after these pushes.

        A link that is not open drops the command. ``on_reply`` is never called for a command that the end of the link
        leaves unanswered: ``on_lost`` stands for all of them.
        """
        if self.is_open:
            self._queue(command, on_reply)

    async def request(self, command: Command) -> Reply:
        """Sends a command and waits for its reply.

        :raises ServerError: an error reply, or the end of the link.
        """
        if not self.is_open:
            raise self._reason or ServerUnreachable(f"the link to {self.url} is not open", url=self.url)
        return await self._answer_to(command)

    async def drain(self) -> None:
        """Waits while much is unsent. Returns when a link is lost, too."""
        self._flush()
        await self._writable.wait()

    def pause_reading(self) -> None:
        """Takes nothing more from the server, which buffers up to its limit and then closes the connection."""
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._reading = True

    def close(self) -> None:
        """Sends what is queued and closes. Nothing is called back from now on; waiting requests fail."""
        if self._transport is None or not self._open:
            return
        self._flush()
        self._open = False
        self._reason = self._reason or ServerUnreachable(f"the link to {self.url} is closed", url=self.url)
        self._stop_timer()
        self._transport.close()
        if not self._gone.is_set():
            # A server that takes no data would keep the transport open.
            self._timer = self._loop.call_later(_LINGER_SECONDS, self._transport.abort)

    async def wait_closed(self) -> None:
        """Waits until the socket is closed, a second at most after ``close``."""
        if self._transport is not None:
            await self._gone.wait()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._settings.drain_bytes)
        self._open = True

    def data_received(self, data: bytes) -> None:
        self._silent_turns = 0
        self._reader.feed(data)
        next_item = self._reader.gets
        pushes: list[Push] = []
        try:
            while (item := next_item()) is not _NOTHING:
                if type(item) is PushNotification:
                    pushes.append(item)
                    if not self._subscriptions or item[0] not in _CONFIRMATIONS:
                        continue
                    entry = self._confirmed()
                    item = None
                else:
                    entry = self._next_unanswered(item)
                if entry is None:
                    continue
                if pushes:
                    self._hand_over(pushes)
                    pushes = []
                if isinstance(entry, asyncio.Future):
                    self._settle(entry, item)
                elif self._open:
                    entry(item)
        except ProtocolError as error:
            self._break(failures.garbage(self.url, data), error)
        if pushes:
            self._hand_over(pushes)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason = self._reason or self._reason_of(exc)
        was_open, self._open = self._open, False
        self._stop_timer()
        self._outgoing.clear()
        self._writable.set()
        for entry in self._unanswered:
            waiting = entry.on_reply if isinstance(entry, _Subscription) else entry
            if isinstance(waiting, asyncio.Future) and not waiting.done():
                waiting.set_exception(reason)
        self._unanswered.clear()
        self._gone.set()
        if was_open and self._greeted:
            self._on_lost(reason)

    # Sending.

    def _queue(
        self, command: Command, on_reply: "Callable[[Reply], None] | asyncio.Future[Reply] | None"
    ) -> None:
        if command[0].upper() in _SUBSCRIPTION_COMMANDS:
            if len(command) < 2:
                raise ValueError(
                    f"{command[0]!r} must name its channels: the number of replies is unknown else"
                )
            self._subscriptions += 1
            self._unanswered.append(_Subscription(len(command) - 1, on_reply))
        else:
            self._unanswered.append(on_reply)
        packed: bytes = pack_command(command)  # type: ignore[arg-type]  # its stub knows tuples of one only
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(packed)
        self._outgoing_bytes += len(packed)
        if self._outgoing_bytes > _JOINED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._outgoing or self._transport is None or self._transport.is_closing():
            return
        data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._transport.write(data)
        most = self._settings.most_unsent_bytes
        if self._transport.get_write_buffer_size() > most:
            self._break(
                ServerUnreachable(f"{self.url} takes no data: {most} bytes wait for it", url=self.url)
            )

    def _answer_to(self, command: Command) -> "asyncio.Future[Reply]":
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._queue(command, future)
        return future

    # Receiving.

    def _next_unanswered(self, item: object) -> "Callable[[Reply], None] | asyncio.Future[Reply] | None":
        """Whoever waits for this reply. A reply that nobody asked for breaks the link."""
        if not self._unanswered:
            unasked = item if isinstance(item, ServerError) else failures.wrong_greeting(self.url, item)
            self._break(unasked)
            return None
        entry = self._unanswered.popleft()
        if isinstance(entry, _Subscription):
            self._subscriptions -= 1
            entry = entry.on_reply
        if entry is None and isinstance(item, ServerError) and not self._warned:
            self._warned = True
            logger.warning("a command without a callback failed, further ones are not logged: %s", item)
        return entry

    def _confirmed(self) -> "Callable[[Reply], None] | asyncio.Future[Reply] | None":
        """Counts a confirmation. Returns whoever waits for the command if this was its last."""
        entry = self._unanswered[0]
        if not isinstance(entry, _Subscription):
            return None
        entry.left -= 1
        if entry.left:
            return None
        self._unanswered.popleft()
        self._subscriptions -= 1
        return entry.on_reply

    def _hand_over(self, pushes: list[Push]) -> None:
        if self._open:
            self._on_pushes(pushes)

    @staticmethod
    def _settle(future: "asyncio.Future[Reply]", item: object) -> None:
        if future.done():
            return
        if isinstance(item, ServerError):
            future.set_exception(item)
        else:
            future.set_result(item)

    # The greeting, silence and the end.

    async def _open_transport(self) -> None:
        address = self._address
        if address.path:
            await self._loop.create_unix_connection(lambda: self, address.path)
        elif address.tls:
            await self._loop.create_connection(
                lambda: self,
                address.host,
                address.port,
                ssl=self._access.tls or ssl.create_default_context(),
                server_hostname=address.host,
                ssl_shutdown_timeout=_LINGER_SECONDS,
            )
        else:
            await self._loop.create_connection(lambda: self, address.host, address.port)

    def _greeting(self) -> Command:
        command: tuple[str, ...] = ("HELLO", "3")
        in_url = self._address.username or self._address.password is not None
        given = self._address if in_url else self._access
        if given.username or given.password is not None:
            command += ("AUTH", given.username or "default", given.password or "")
        if self._name:
            command += ("SETNAME", self._name)
        return tuple(part.encode() for part in command)

    def _check_greeting(self, greeting: Reply) -> None:
        if not isinstance(greeting, dict) or greeting.get(b"proto") != 3:
            raise failures.wrong_greeting(self.url, greeting)
        self.version = bytes(greeting.get(b"version", b"")).decode(errors="replace")
        self._greeted = True

    def _refusal(self, text: str) -> ServerError:
        return (
            failures.refusal(self.url, text) if self._greeted else failures.greeting_refusal(self.url, text)
        )

    def _schedule_turn(self) -> None:
        self._timer = self._loop.call_later(self._settings.silence_seconds / _SILENT_TURNS, self._silent_turn)

    def _silent_turn(self) -> None:
        self._silent_turns = self._silent_turns + 1 if self._reading else 0
        if self._silent_turns >= _SILENT_TURNS:
            seconds = self._settings.silence_seconds
            self._break(ServerUnreachable(f"{self.url} has been silent for {seconds:g} s", url=self.url))
            return
        if self._silent_turns == _PING_TURN:
            self._queue((b"PING",), None)
        self._schedule_turn()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _break(self, reason: ServerError, cause: BaseException | None = None) -> None:
        """Ends the link without waiting; ``connection_lost`` follows soon and tells the owner."""
        if self._reason is None:
            self._reason = reason
            reason.__cause__ = cause
        if self._transport is not None:
            self._transport.abort()

    def _reason_of(self, error: Exception | None) -> ServerError:
        reason: ServerError
        if isinstance(error, ssl.SSLError):
            reason = failures.failed_connection(self.url, error)
        elif not self._greeted:
            reason = failures.early_end(self.url, tls=self._address.tls)
        elif error is not None:
            reason = ServerUnreachable(f"the connection to {self.url} broke: {error}", url=self.url)
        else:
            reason = ServerUnreachable(
                f"{self.url} closed the connection: it stops, or this client reads too slowly", url=self.url
            )
        reason.__cause__ = error
        return reason
