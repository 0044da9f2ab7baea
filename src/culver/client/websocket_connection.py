"""One WebSocket to the gateway: answers find their request by `ref`, deliveries their receiver by name.

Reading never waits for a consumer. Receivers buffer within bounds of their own, because the answers to
publications come over the same socket: a loop that publishes for each event it receives would otherwise
wait for itself.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from culver.client.error_boundary import refusal, socket_errors
from culver.client.site_address import Address
from culver.errors import ConnectionFailed, RequestRefused

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

logger = logging.getLogger("culver.client")

# A message of deliveries holds many events; this only keeps a broken server from filling the memory.
_MAX_MESSAGE_BYTES = 128 * 1024 * 1024
_CLOSE_SECONDS = 2.0


class Receiver(Protocol):
    """Whoever a subscription's deliveries are for. Called from the reading task; must not block."""

    def deliver(self, deliveries: Sequence[dict[str, Any]], size: int) -> None:
        """Deliveries in the order of their offsets; `size` is the bytes they took on the wire."""

    def gap(self, gap: dict[str, Any]) -> None: ...

    def ended(self) -> None:
        """The subscription was removed or has expired; nothing follows."""

    def refused(self, error: RequestRefused) -> None:
        """The site could not go on with the subscription; nothing follows on this connection."""

    def lost(self, error: ConnectionFailed) -> None:
        """The connection is gone; nothing follows on it."""


class Connection:
    """Open from the start; usable until `lost`. The owner closes it."""

    def __init__(self, socket: "ClientConnection", url: str, timeout_seconds: float) -> None:
        self._socket = socket
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._references = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._arrivals: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._receivers: dict[str, Receiver] = {}
        self._farewells: set[asyncio.Task[dict[str, Any]]] = set()
        self._closing: asyncio.Task[None] | None = None
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

    async def publish(self, events: Sequence[bytes]) -> dict[str, Any]:
        """Send events, JSON text each, and wait for the answer. Many may be under way at once."""
        reference = next(self._references)
        text = b'{"op":"publish","ref":%d,"events":[%b]}' % (reference, b",".join(events))
        return await self._exchange(reference, text)

    async def request(self, operation: str, **members: Any) -> dict[str, Any]:
        reference = next(self._references)
        return await self._exchange(reference, _encode(operation, reference, members))

    async def subscribe(self, receiver: Receiver, operation: str, **members: Any) -> dict[str, Any]:
        """`subscribe` or `attach`: from the answer on, what comes for the subscription goes to `receiver`."""
        reference = next(self._references)
        name: str | None = None

        def arrived(answer: dict[str, Any]) -> None:
            # Deliveries may follow in the very next message, before the waiting coroutine runs again.
            nonlocal name
            name = str(answer["subscription"])
            self._receivers[name] = receiver

        self._arrivals[reference] = arrived
        try:
            return await self._exchange(reference, _encode(operation, reference, members))
        except BaseException:
            if name is not None and not self.lost:
                self.release(name)
                self._refuse(name)
            raise
        finally:
            self._arrivals.pop(reference, None)

    def receives(self, subscription: str) -> bool:
        return subscription in self._receivers

    def release(self, subscription: str) -> None:
        """What still comes for the subscription is ignored."""
        self._receivers.pop(subscription, None)

    async def close(self) -> None:
        await self._socket.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _exchange(self, reference: int, text: bytes) -> dict[str, Any]:
        """Raises RequestRefused, or ConnectionFailed when the connection was lost before the answer."""
        if self._failure is not None:
            raise self._failed()
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[reference] = answer
        try:
            async with asyncio.timeout(self._timeout_seconds):
                with socket_errors(self._url):
                    await self._socket.send(text, text=True)
                return await answer
        except TimeoutError as exc:
            raise ConnectionFailed(
                f"{self._url} did not answer within {self._timeout_seconds:g} s", url=self._url
            ) from exc
        finally:
            self._pending.pop(reference, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # retrieved, also where the send itself failed first

    async def _read(self) -> None:
        try:
            with socket_errors(self._url):
                while True:
                    text = await self._socket.recv(decode=False)
                    self._dispatch(msgspec.json.decode(text), len(text))
        except ConnectionFailed as exc:
            self._end(exc)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as exc:
            failure = ConnectionFailed(f"{self._url} does not speak Culver's protocol: {exc}", url=self._url)
            failure.__cause__ = exc
            self._end(failure)
            await self._socket.close(1002)

    def _dispatch(self, message: dict[str, Any], size: int) -> None:
        match message["op"]:
            case "events":
                receiver = self._receivers.get(message["subscription"])
                if receiver is not None:
                    receiver.deliver(message["deliveries"], size)
            case "gap":
                receiver = self._receivers.get(message["subscription"])
                if receiver is not None:
                    receiver.gap(message)
            case "ended":
                receiver = self._receivers.pop(message["subscription"], None)
                if receiver is not None:
                    receiver.ended()
            case "error" if "ref" not in message and "subscription" in message:
                receiver = self._receivers.pop(message["subscription"], None)
                if receiver is not None:
                    receiver.refused(refusal(message))
            case "error":
                self._answer(message, refusal(message))
            case _:
                self._answer(message, None)

    def _answer(self, message: dict[str, Any], error: RequestRefused | None) -> None:
        reference = message.get("ref")
        answer = self._pending.get(reference) if isinstance(reference, int) else None
        if answer is None or answer.done():
            if error is not None and reference is None:
                self._take_unaddressed(error)
            if message["op"] == "subscribed" and not self.receives(message["subscription"]):
                self._refuse(message["subscription"])
            return
        if error is not None:
            answer.set_exception(error)
            return
        arrived = self._arrivals.pop(message["ref"], None)
        if arrived is not None:
            arrived(message)
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
            self._closing = asyncio.create_task(self._socket.close())
        else:
            logger.warning("%s reports: %s", self._url, error)

    def _refuse(self, subscription: str) -> None:
        """Whoever asked for it gave up before the answer came: have the site stop sending."""
        task = asyncio.create_task(self.request("detach", subscription=subscription))
        self._farewells.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[dict[str, Any]]") -> None:
        self._farewells.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("detaching: %s", error)

    def _end(self, failure: ConnectionFailed) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self._failed())
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.lost(failure)

    def _failed(self) -> ConnectionFailed:
        """A new instance for each request: a raised exception collects a traceback of its own."""
        failure = self._failure or ConnectionFailed(f"the connection to {self._url} is closed")
        copy = ConnectionFailed(failure.message, field=failure.field, **failure.details)
        copy.__cause__ = failure.__cause__
        return copy


def _encode(operation: str, reference: int, members: dict[str, Any]) -> bytes:
    present = {name: value for name, value in members.items() if value is not None}
    return json.dumps({"op": operation, "ref": reference, **present}).encode()
