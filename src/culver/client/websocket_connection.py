"""One WebSocket to the gateway: answers find their request by `ref`, deliveries their receiver by name.

Reading never waits for a consumer. Receivers buffer within bounds of their own, because the answers to
publications come over the same socket: a loop that publishes for each event it receives would otherwise
wait for itself.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, get_args

import msgspec

from culver.client.error_boundary import encode_message, refusal, socket_errors
from culver.client.site_address import Address
from culver.errors import ClientError, ConnectionFailed, RequestRefused
from culver.messages import (
    Attach,
    ClientMessage,
    DeliveredEvent,
    Detach,
    Ended,
    EventFor,
    Events,
    Follow,
    Followed,
    Gap,
    GapFor,
    Refusal,
    ServerMessage,
    Subscribe,
    Subscribed,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

logger = logging.getLogger("culver.client")

# A message of deliveries holds many events; this only keeps a broken server from filling the memory.
_MAX_MESSAGE_BYTES = 128 * 1024 * 1024
_CLOSE_SECONDS = 2.0

Answer = TypeVar("Answer", bound=ServerMessage)

_decoder = msgspec.json.Decoder(ServerMessage)
_OPERATIONS = {kind.__struct_config__.tag for kind in get_args(ServerMessage)}


class _Operation(msgspec.Struct):
    op: str


class Receiver(Protocol):
    """Takes the deliveries of one subscription. The reading task calls it, so it must not block."""

    def deliver(self, deliveries: Sequence[DeliveredEvent], size: int) -> None:
        """Deliveries in the order of their offsets; `size` is the bytes they took on the wire."""

    def gap(self, gap: Gap) -> None: ...

    def ended(self, error: ClientError | None) -> None:
        """Nothing follows on this connection. Without an error, the subscription was removed or has expired."""


class GroupEvent(NamedTuple):
    """An event, and the members of a group that it is for."""

    offset: int
    event: Any
    names: Sequence[str]


class GroupReceiver(Protocol):
    """Takes what comes for one group, as Receiver does for one subscription."""

    def deliver(self, events: Sequence[GroupEvent], size: int) -> None: ...

    def gap(self, gap: GapFor, names: Sequence[str]) -> None: ...

    def ended(self, error: ClientError | None) -> None: ...


class Connection:
    """Open from the start; usable until `lost`. The owner closes it."""

    def __init__(self, socket: "ClientConnection", url: str, timeout_seconds: float) -> None:
        self._socket = socket
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._references = itertools.count(1)
        self._pending: dict[int, asyncio.Future[ServerMessage]] = {}
        self._arrivals: dict[int, Receiver] = {}
        self._receivers: dict[str, Receiver] = {}
        self._group_arrivals: dict[int, GroupReceiver] = {}
        self._groups: dict[int, GroupReceiver] = {}
        self._farewells: set[asyncio.Task[Any]] = set()
        self._failure: ConnectionFailed | None = None
        self._reader = asyncio.create_task(self._read(), name="culver-client-reader")

    @classmethod
    async def open(cls, address: Address, timeout_seconds: float) -> "Connection":
        """Raises ConnectionFailed."""
        with socket_errors(address.http):
            from websockets.asyncio.client import connect

            socket = await connect(
                address.web_socket,
                compression=None,
                max_size=_MAX_MESSAGE_BYTES,
                open_timeout=timeout_seconds,
                close_timeout=_CLOSE_SECONDS,
                proxy=None if address.loopback else True,
            )
        return cls(socket, address.http, timeout_seconds)

    @property
    def lost(self) -> bool:
        return self._failure is not None

    @property
    def load(self) -> int:
        """How many subscriptions and groups are on it, or about to be."""
        return len(self._receivers) + len(self._arrivals) + len(self._groups) + len(self._group_arrivals)

    async def publish(self, encode: Callable[[int], bytes]) -> "asyncio.Future[ServerMessage]":
        """Send a message of publications, encoded with its reference, and return the future of its answer, which has
        a timeout. Waits while the site does not read. Raises ConnectionFailed."""
        if self._failure is not None:
            raise self._failed()
        reference = next(self._references)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ServerMessage] = loop.create_future()
        self._pending[reference] = answer
        timer = loop.call_later(self._timeout_seconds, self._give_up, answer)
        answer.add_done_callback(partial(self._forget_answer, reference, timer))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                with socket_errors(self._url):
                    await self._socket.send(encode(reference), text=True)
        except BaseException as exc:
            if not answer.cancel():
                answer.exception()  # retrieved
            if isinstance(exc, TimeoutError):
                raise self._late() from exc
            if isinstance(exc, ConnectionFailed):
                self._end(exc)
            raise
        return answer

    async def request(self, message: ClientMessage) -> ServerMessage:
        reference = next(self._references)
        return await self._exchange(reference, _encode(message, reference))

    async def subscribe(self, receiver: Receiver, message: Subscribe | Attach) -> Subscribed:
        """From the answer on, what comes for the subscription goes to `receiver`."""
        reference = next(self._references)
        self._arrivals[reference] = receiver
        try:
            return self._expect(Subscribed, await self._exchange(reference, _encode(message, reference)))
        except BaseException:
            for name in [name for name, each in self._receivers.items() if each is receiver]:
                self.release(name)
                self._refuse(name)
            raise
        finally:
            self._arrivals.pop(reference, None)

    async def follow(self, receiver: GroupReceiver, message: Follow) -> Followed:
        """From the answer on, what comes for the group goes to `receiver`."""
        reference = next(self._references)
        self._group_arrivals[reference] = receiver
        try:
            return self._expect(Followed, await self._exchange(reference, _encode(message, reference)))
        except BaseException:
            for group in [group for group, each in self._groups.items() if each is receiver]:
                self.release(group)
                self._refuse(group)
            raise
        finally:
            self._group_arrivals.pop(reference, None)

    def release(self, key: str | int) -> None:
        """What still comes for the subscription or the group is ignored."""
        if isinstance(key, str):
            self._receivers.pop(key, None)
        else:
            self._groups.pop(key, None)

    async def close(self) -> None:
        await self._socket.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    def _expect(self, kind: type[Answer], answer: ServerMessage) -> Answer:
        if not isinstance(answer, kind):
            raise ConnectionFailed(f"{self._url} does not speak Culver's protocol", url=self._url)
        return answer

    async def _exchange(self, reference: int, text: bytes) -> ServerMessage:
        """Raises RequestRefused, or ConnectionFailed when the connection was lost before the answer."""
        if self._failure is not None:
            raise self._failed()
        answer: asyncio.Future[ServerMessage] = asyncio.get_running_loop().create_future()
        self._pending[reference] = answer
        try:
            async with asyncio.timeout(self._timeout_seconds):
                with socket_errors(self._url):
                    await self._socket.send(text, text=True)
                return await answer
        except TimeoutError as exc:
            raise self._late() from exc
        finally:
            self._pending.pop(reference, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # retrieved, also where the send itself failed first

    def _forget_answer(
        self, reference: int, timer: asyncio.TimerHandle, _: "asyncio.Future[ServerMessage]"
    ) -> None:
        timer.cancel()
        self._pending.pop(reference, None)

    def _give_up(self, answer: "asyncio.Future[ServerMessage]") -> None:
        if not answer.done():
            answer.set_exception(self._late())

    def _late(self) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self._url} did not answer within {self._timeout_seconds:g} s", url=self._url
        )

    async def _read(self) -> None:
        try:
            with socket_errors(self._url):
                while True:
                    text = await self._socket.recv(decode=False)
                    self._dispatch(text)
        except ConnectionFailed as exc:
            self._end(exc)
        except msgspec.MsgspecError as exc:
            failure = ConnectionFailed(f"{self._url} does not speak Culver's protocol: {exc}", url=self._url)
            failure.__cause__ = exc
            self._end(failure)
            await self._socket.close(1002)

    def _dispatch(self, text: bytes) -> None:
        try:
            message = _decoder.decode(text)
        except msgspec.ValidationError:
            if msgspec.json.decode(text, type=_Operation).op in _OPERATIONS:
                raise
            return  # a newer site sends messages that this client does not know
        match message:
            case Events(events):
                self._deliver(events, len(text))
            case GapFor():
                self._announce(message)
            case Ended(subscription=str(key)) | Ended(group=int(key)):
                self._finish(key, None)
            case (
                Refusal(ref=msgspec.UNSET, subscription=str(key)) | Refusal(ref=msgspec.UNSET, group=int(key))
            ):
                self._finish(key, refusal(msgspec.json.decode(text)))
            case Refusal():
                self._answer(message, refusal(msgspec.json.decode(text)))
            case _:
                self._answer(message, None)

    def _deliver(self, events: Sequence[EventFor], size: int) -> None:
        deliveries: dict[str, list[DeliveredEvent]] = {}
        groups: dict[str, list[GroupEvent]] = {}
        for each in events:
            for name in each.to:
                delivered = DeliveredEvent(f"{name}:{each.offset}", each.offset, each.event)
                deliveries.setdefault(name, []).append(delivered)
            for group, names in each.groups.items():
                groups.setdefault(group, []).append(GroupEvent(each.offset, each.event, names))
        for name, those in deliveries.items():
            if (receiver := self._receivers.get(name)) is not None:
                receiver.deliver(those, size * len(those) // len(events))
        for group, these in groups.items():
            if (follower := self._group(group)) is not None:
                follower.deliver(these, size * len(these) // len(events))

    def _announce(self, gap: GapFor) -> None:
        for name in gap.to:
            if (receiver := self._receivers.get(name)) is not None:
                receiver.gap(Gap(name, gap.start, gap.end, gap.dropped, gap.reason))
        for group, names in gap.groups.items():
            if (follower := self._group(group)) is not None:
                follower.gap(gap, names)

    def _group(self, number: str) -> GroupReceiver | None:
        return self._groups.get(int(number)) if number.isdecimal() else None

    def _finish(self, key: str | int, error: RequestRefused | None) -> None:
        receiver: Receiver | GroupReceiver | None
        receiver = self._receivers.pop(key, None) if isinstance(key, str) else self._groups.pop(key, None)
        if receiver is not None:
            receiver.ended(error)

    def _answer(self, message: ServerMessage, error: RequestRefused | None) -> None:
        reference: Any = getattr(message, "ref", None)
        answer = self._pending.get(reference)
        if answer is None or answer.done():
            if error is not None and reference in (None, msgspec.UNSET):
                self._take_unaddressed(error)
            if isinstance(message, Subscribed) and message.subscription not in self._receivers:
                self._refuse(message.subscription)
            elif isinstance(message, Followed):
                self._refuse(message.group)
            return
        if error is not None:
            answer.set_exception(error)
            return
        if isinstance(message, Subscribed) and reference in self._arrivals:
            # Deliveries may follow in the very next message, before the waiting coroutine runs again.
            self._receivers[message.subscription] = self._arrivals[reference]
        elif isinstance(message, Followed) and reference in self._group_arrivals:
            self._groups[message.group] = self._group_arrivals[reference]
        answer.set_result(message)

    def _take_unaddressed(self, error: RequestRefused) -> None:
        """The site could not read whose message it refused. Where only one waits, it is that one's; where
        several do, none of them can know, so the connection is given up rather than have one wait in vain."""
        waiting = [answer for answer in self._pending.values() if not answer.done()]
        if len(waiting) == 1:
            waiting[0].set_exception(error)
        elif waiting:
            failure = ConnectionFailed(
                f"{self._url} refused a message without its reference: {error}", url=self._url
            )
            failure.__cause__ = error
            self._end(failure)
            self._part_with(self._socket.close())
        else:
            logger.warning("%s reports: %s", self._url, error)

    def _refuse(self, key: str | int) -> None:
        """Whoever asked for it gave up before the answer came: have the site stop sending."""
        message = Detach(subscription=key) if isinstance(key, str) else Detach(group=key)
        self._part_with(self.request(message))

    def _part_with(self, farewell: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(farewell)
        self._farewells.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._farewells.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("a farewell failed: %s", error)

    def _end(self, failure: ConnectionFailed) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._failed())
        receivers: list[Receiver | GroupReceiver] = [*self._receivers.values(), *self._groups.values()]
        self._receivers, self._groups = {}, {}
        for receiver in receivers:
            receiver.ended(failure)

    def _failed(self) -> ConnectionFailed:
        """A new instance for each request: a raised exception collects a traceback of its own."""
        failure = self._failure or ConnectionFailed(f"the connection to {self._url} is closed")
        copy = ConnectionFailed(failure.message, field=failure.field, **failure.details)
        copy.__cause__ = failure.__cause__
        return copy


def _encode(message: ClientMessage, reference: int) -> bytes:
    return encode_message(msgspec.structs.replace(message, ref=reference))
