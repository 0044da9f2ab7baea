"""The WebSocket protocol at `/v1/ws`: publish, subscribe and acknowledge over one connection.

One task reads messages. A window of bounded size holds those in progress, so that publications are pipelined. From
the first subscription on, one more task pumps out what all subscriptions of the connection receive, in the form that
the client chose (`wire_formats`). All of them send through one outbox. A client that does not read stops the pump and
then the reader, so the memory of a connection is bounded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import UNSET
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from culver.errors import (
    CulverError,
    Elsewhere,
    Unavailable,
)
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.publication_numbers import ranges_of, repeated_events
from culver.gateway.gateway_context import (
    THREAD_BYTES,
    Gateway,
    Interrupted,
    Interruption,
    client_of,
    compute,
    gateway_of,
)
from culver.gateway.problems import encode_problem, problem_document
from culver.gateway.websocket.channel_attachments import ChannelAttachments
from culver.gateway.websocket.client_messages import PublishRequest, read_message, read_quickly
from culver.gateway.websocket.message_sockets import (
    Disconnected,
    MessageSocket,
    Outbox,
    Window,
    accept_messages,
)
from culver.gateway.websocket.subscription_attachments import SubscriptionAttachments
from culver.gateway.websocket.wire_formats import WireFormat, choose_format
from culver.log import CommitReceipt
from culver.messages import (
    Ack,
    Attach,
    ChannelPublish,
    ChannelSubscribe,
    ChannelUnsubscribe,
    ClientMessage,
    Detach,
    Follow,
    Ping,
    Pong,
    Published,
    PublishedEach,
    Reference,
    ServerMessage,
    Subscribe,
)
from culver.roles import NumberedPart

MAX_CHANNELS = 1_000
MAX_ERRORS = 100

UNSUPPORTED_DATA = 1003
POLICY_VIOLATION = 1008
MESSAGE_TOO_BIG = 1009
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012

_MAX_IN_WORK = 64
_MAX_BYTES_IN_WORK = 4 * 1024 * 1024
_CLOSE_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 10.0

# How "publish" and "publish_each" begin.
_PUBLISH = '"publish'

_logger = logging.getLogger(__name__)


async def serve_websocket(socket: WebSocket) -> None:
    gateway = gateway_of(socket)
    connection: _Connection | None = None
    try:
        async with gateway.long_request("websocket") as interruption:
            wire, subprotocol = choose_format(socket.scope.get("subprotocols") or [])
            messages = await accept_messages(socket, subprotocol)
            connection = _Connection(gateway, socket, messages, interruption, wire)
            try:
                await connection.run()
            finally:
                await connection.close_sessions()
    except (Interrupted, Disconnected):
        pass
    except Unavailable as exc:
        if connection is None:
            raise
        connection.verdict = (SERVICE_RESTART, exc.message)
    if connection is not None:
        await connection.close()


class _Connection:
    def __init__(
        self,
        gateway: Gateway,
        handshake: HTTPConnection,
        socket: MessageSocket,
        interruption: Interruption,
        wire: WireFormat,
    ) -> None:
        self._gateway = gateway
        self._socket = socket
        self._client = client_of(handshake)
        self._interruption = interruption
        self._max_bytes = gateway.settings.gateway.max_message_bytes
        self._outbox = Outbox(socket)
        self._window = Window(_MAX_IN_WORK, _MAX_BYTES_IN_WORK)
        self._subscriptions = SubscriptionAttachments(
            gateway, handshake, wire, self._outbox, self._start_subscriptions
        )
        self._channels = ChannelAttachments(
            gateway, self._send, self._outbox.wait_for_space, self._start_channel
        )
        self._errors = 0
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        # Publications without an answer.
        self._publications: set[asyncio.Future[Any]] = set()
        self._group = asyncio.TaskGroup()
        # The close code and reason for the client, where the gateway closes.
        self.verdict: tuple[int, str] | None = None

    async def run(self) -> None:
        try:
            async with self._group:
                try:
                    await self._read()
                except Disconnected:
                    pass
                finally:
                    self._ending = True
                    for task in list(self._tasks):
                        task.cancel()
                    for publication in list(self._publications):
                        publication.cancel()
        except ExceptionGroup:
            _logger.exception("a WebSocket connection failed")
            self.verdict = (INTERNAL_ERROR, "the gateway failed")

    async def close_sessions(self) -> None:
        """End the live subscriptions and keep the durable ones."""
        await self._channels.close()
        await self._subscriptions.close()

    async def close(self) -> None:
        """Send the verdict, if there is one; gives up soon on a client that does not read."""
        if self.verdict is None:
            return
        code, reason = self.verdict
        with suppress(TimeoutError, Disconnected):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._socket.close(code, reason[:120])

    # --- messages in ------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive(self._take)
            if isinstance(message, bytes):
                self.verdict = (UNSUPPORTED_DATA, "send JSON as text messages")
                return
            if len(message) > self._max_bytes:
                self.verdict = (MESSAGE_TOO_BIG, f"at most {self._max_bytes} bytes fit one message")
                return
            await self._gateway.requests.wait(self._client)
            await self._accept(message)

    def _take(self, text: str | bytes) -> bool:
        """Publish at once where the message holds valid publications that need not wait, as most messages do. Returns
        False for any other message, which the reader then handles."""
        size = len(text)
        if isinstance(text, bytes) or size >= THREAD_BYTES or size > self._max_bytes or _PUBLISH not in text:
            return False
        read = read_quickly(text, self._gateway.settings.events)
        if read is None or not self._window.try_enter(size):
            return False
        publications, reference = read
        if not self._grant(len(publications.events)):
            self._window.leave(size)
            return False
        try:
            self._publish(publications, reference, size)
        except Unavailable as exc:
            self._start(self._refuse(exc, reference))
        return True

    def _grant(self, events: int) -> bool:
        """Count a message with so many events, or return False and count nothing where it would have to wait."""
        gateway = self._gateway
        if not gateway.requests.grant(self._client):
            return False
        if not gateway.events.grant(self._client, events):
            gateway.requests.give_back(self._client)
            return False
        return True

    async def _accept(self, text: str) -> None:
        """Parse one message here, so that messages keep their order, and work on it in a task."""
        reference, message = await compute(len(text), read_message, text, self._gateway.settings.events)
        try:
            if isinstance(message, CulverError):
                raise message
            if isinstance(message, PublishRequest):
                count = len(message.events)
                await self._gateway.events.wait(self._client, count, _LONGEST_DELAY_SECONDS)
                await self._window.enter(len(text))
                self._publish(message, reference, len(text))
            else:
                await self._window.enter(len(text))
                work = partial(self._perform, message, reference)
                self._start(self._work(work, reference, len(text)))
        except CulverError as exc:
            await self._refuse(exc, reference)

    async def _work(self, work: Callable[[], Awaitable[object]], reference: Reference, size: int) -> None:
        try:
            try:
                await work()
            except CulverError as exc:
                await self._refuse(exc, reference)
        except Disconnected:
            self._interruption.interrupt()
        finally:
            self._window.leave(size)

    # --- operations -------------------------------------------------------------------------------------

    def _publish(self, publications: PublishRequest, reference: Reference, size: int) -> None:
        """Publish without a task, for most messages are publications. Raises Unavailable."""
        try:
            answer = self._gateway.publish(publications.events, publications.numbers)
        except BaseException:
            self._window.leave(size)
            raise
        self._publications.add(answer)
        answer.add_done_callback(partial(self._published, publications, reference, size))

    def _published(
        self,
        publications: PublishRequest,
        reference: Reference,
        size: int,
        answer: "asyncio.Future[Any]",
    ) -> None:
        """Acknowledge at once where nothing is in the way; a message that waits to be sent stays in the window."""
        self._publications.discard(answer)
        if answer.cancelled() or self._ending:
            self._window.leave(size)
        elif answer.exception() is not None:
            self._start(self._work(lambda: answer, reference, size))
        else:
            message = (
                _receipt(publications, reference, answer.result())
                if publications.numbers is None
                else _numbered_receipt(publications, reference, answer.result())
            )
            try:
                sent = self._outbox.post(message)
            except Disconnected:
                self._interruption.interrupt()
                sent = True
            if sent:
                self._window.leave(size)
                self._count_refused(publications)
            else:
                self._start(self._work(partial(self._send_receipt, message, publications), reference, size))

    async def _send_receipt(self, message: bytes, publications: PublishRequest) -> None:
        await self._outbox.send(message)
        self._count_refused(publications)

    async def _perform(self, message: ClientMessage, reference: Reference) -> None:
        match message:
            case Subscribe() | Attach() | Follow() | Ack() | Detach():
                await self._subscriptions.perform(message, reference)
            case Ping():
                await self._send(Pong(ref=reference))
            case ChannelSubscribe() if len(self._channels) >= MAX_CHANNELS:
                self._end(POLICY_VIOLATION, f"more than {MAX_CHANNELS} channels on one connection")
            case ChannelPublish() | ChannelSubscribe() | ChannelUnsubscribe():
                await self._channels.perform(message, reference)

    # --- messages out -----------------------------------------------------------------------------------

    def _start_subscriptions(self, pump: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await pump
            except Unavailable as exc:
                self._end(SERVICE_RESTART, exc.message)
            except Disconnected:
                self._interruption.interrupt()

        return self._start(guarded())

    def _start_channel(self, channel: str, pump: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                try:
                    await pump
                except CulverError as exc:
                    await self._channels.drop(channel)
                    self._gateway.metrics.errors.labels(exc.code).inc()
                    document = {"op": "error", "channel": channel, **problem_document(exc)}
                    await self._outbox.send(encode_problem(document))
            except Disconnected:
                self._interruption.interrupt()

        return self._start(guarded())

    async def _send(self, message: ServerMessage) -> None:
        await self._outbox.send(encode(message))

    async def _refuse(self, error: CulverError, reference: Reference) -> None:
        document = {"op": "error", **problem_document(error)}
        if reference is not None:
            document["ref"] = reference
        await self._outbox.send(encode_problem(document))
        self._count_error(error)

    def _count_refused(self, publications: PublishRequest) -> None:
        for _, error in publications.refused:
            self._count_error(error)

    def _count_error(self, error: CulverError) -> None:
        self._gateway.metrics.errors.labels(error.code).inc()
        self._errors += not (error.retryable or isinstance(error, Elsewhere))
        if self._errors >= MAX_ERRORS:
            self._end(POLICY_VIOLATION, f"{MAX_ERRORS} erroneous messages")

    def _end(self, code: int, reason: str) -> None:
        self.verdict = (code, reason)
        self._interruption.interrupt()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _receipt(publications: PublishRequest, reference: Reference, receipt: CommitReceipt) -> bytes:
    """The answer to a message whose publications are on disk."""
    first, following = receipt
    if not publications.each:
        return encode(Published(first, following, ref=reference))
    ranges = [(first, following)] if first < following else []
    if not publications.refused:
        return encode(PublishedEach(ref=reference, ranges=ranges))
    return _answer_with_refused(publications, {"op": "published_each", "ref": reference, "ranges": ranges})


def _numbered_receipt(
    publications: PublishRequest, reference: Reference, parts: Sequence[NumberedPart]
) -> bytes:
    ranges = [(each.first_offset, each.next_offset) for each in ranges_of(parts)]
    repeated = repeated_events(parts)
    if not publications.each:
        several = UNSET if len(ranges) == 1 else ranges
        first, following = ranges[0][0], ranges[-1][1]
        return encode(Published(first, following, ref=reference, ranges=several, repeated=repeated))
    if not publications.refused:
        return encode(PublishedEach(ref=reference, ranges=ranges, repeated=repeated))
    document = {"op": "published_each", "ref": reference, "ranges": ranges, "repeated": repeated}
    return _answer_with_refused(publications, document)


def _answer_with_refused(publications: PublishRequest, document: dict[str, Any]) -> bytes:
    refused = [{"index": at, "problem": problem_document(error)} for at, error in publications.refused]
    return encode_problem({**document, "refused": refused})
