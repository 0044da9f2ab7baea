"""Feeds the stream of one subscription: a task that attaches it again and again.

attaching ──> attached ──┬─ connection lost ──> wait (backoff) ──> attaching
    ^                    ├─ buffer full (durable only): detach, wait until it is low ──┐
    └────────────────────┼────────────────────────────────────────────────────────────┘
                         └─ subscription removed ──> finished
"""

import asyncio
import logging
import random
from collections.abc import Sequence

from culver.client.link import Link, backoff, subscription_path
from culver.client.receiving.acknowledgements import Acknowledger
from culver.client.receiving.item_supply import ItemSupply
from culver.client.receiving.message_buffer import Buffer
from culver.client.receiving.received_messages import Message
from culver.client.receiving.subscription_source import Source
from culver.client.websocket_connection import Connection
from culver.errors import ClientError, ConnectionFailed, CulverError, RequestRefused
from culver.messages import Ack, Acknowledgement, DeliveredEvent, Detach, Gap

logger = logging.getLogger("culver.client")

_FLUSH_SECONDS = 2.0
_MOST_HOPS = 3  # from gateway to gateway


class Feed(ItemSupply[Message | Gap]):
    def __init__(
        self, link: Link, source: Source, *, reconnect: bool, buffer_count: int, buffer_bytes: int
    ) -> None:
        self._buffer = Buffer(
            self._message, durable=source.durable, max_count=buffer_count, max_bytes=buffer_bytes
        )
        super().__init__(self._buffer)
        self.source = source
        self._link = link
        self._reconnect = reconnect
        self._delays = backoff(random.Random())
        self._interrupted = asyncio.Event()  # something for `run`: lost, full, removed
        self._attached = asyncio.Event()
        self._connection: Connection | None = None  # the one it is attached to, while it is
        self._gateway: str | None = None  # the one to try first, where it is not the client's own
        self._acknowledger = Acknowledger[int](str(source), self._acknowledge, self._attached)
        self._loss: ClientError | None = None
        self._removed = False

    # --- for the stream that reads ---

    @property
    def started(self) -> bool:
        return self.source.since is not None

    async def acknowledge(self, offset: int) -> None:
        """Return once everything up to `offset` is acknowledged."""
        if self.source.durable:
            await self._acknowledger.reach(offset)

    async def _acknowledge(self, offset: int) -> None:
        """Over the WebSocket where the subscription is attached, by HTTP otherwise: both are idempotent."""
        delivery_id = self.source.delivery_id(offset)
        if self._connection is not None:
            try:
                await self._connection.request(Ack(delivery_id=delivery_id))
                return
            except ConnectionFailed as exc:
                logger.debug("%s: acknowledging %d: %s", self.source, offset, exc)
        path = subscription_path(self.source.subscription, "/ack")
        async with self._link.aside:
            await self._link.http("POST", path, body=Acknowledgement(delivery_id=delivery_id))

    def done_with(self, item: Message) -> None:
        if self.source.durable:
            self._acknowledger.want(item.offset)

    def describe(self, gap: Gap) -> str:
        return str(self.source)

    # --- the task ---

    async def run(self) -> None:
        try:
            await self._supply()
        except CulverError as exc:
            self._error = exc
        finally:
            self._finished = True
            self._changed.set()
            try:
                await self._acknowledger.close(_FLUSH_SECONDS)
                await self._detach()
            finally:
                self._link.give_up(self.source.subscription, self)

    async def _supply(self) -> None:
        while not self._removed:
            try:
                await self._attach()
            except ClientError as exc:
                if not self._worth_another_try(exc):
                    raise
                delay = next(self._delays)
                logger.warning("%s: %s; trying again in %.1f s", self.source, exc, delay)
                await asyncio.sleep(delay)
                continue
            self._delays = backoff(random.Random())
            await self._interrupted.wait()
            if self._loss is not None:
                if not self._worth_another_try(self._loss):
                    raise self._loss
                logger.warning("%s: %s; connecting again", self.source, self._loss)
            elif not self._removed:
                await self._detach()
                await self._drained.wait()

    async def _attach(self) -> None:
        self._interrupted.clear()
        self._buffer.resume()
        self._loss = None
        if self.source.durable and not self._link.claim(self.source.subscription, self):
            raise ClientError(f"{self.source} is already being received by this client")
        resumed = self.source.since is not None
        async with self._link.attaching:
            await self.source.prepare(self._link)
            connection, gap = await self._attach_where_it_is()
        if gap is not None:
            self.gap(gap)
        if resumed:
            logger.info("%s is attached again", self.source)
        else:
            for warning in self.source.warnings:
                logger.warning("%s: %s", self.source, warning.detail)
        if self._loss is None and not self._removed:
            self._connection = connection
            self._attached.set()
        self._changed.set()

    async def _attach_where_it_is(self) -> tuple[Connection, Gap | None]:
        """At the gateway that has the subscription; others say which one that is."""
        for _ in range(_MOST_HOPS):
            gateway, self._gateway = self._gateway, None
            connection = await self._link.stream_connection(gateway)
            try:
                gap = await self.source.attach(connection, self, self._buffer)
            except RequestRefused as exc:
                if exc.details.get("code") != "elsewhere":
                    raise
                self._gateway = str(exc.details["url"])
                continue
            self._gateway = gateway
            return connection, gap
        raise ConnectionFailed(f"the gateways do not agree who has {self.source}")

    async def _detach(self) -> None:
        """End what the site holds for this feed on the connection; a lost connection has ended it already."""
        connection, self._connection = self._connection, None
        self._attached.clear()
        if connection is None:
            return
        connection.release(self.source.subscription)
        try:
            await connection.request(Detach(subscription=self.source.subscription))
        except ClientError as exc:
            logger.debug("%s: detaching: %s", self.source, exc)

    def _worth_another_try(self, error: ClientError) -> bool:
        if self.source.since is None or not self._reconnect:
            return False
        if isinstance(error, RequestRefused):
            return bool(error.details.get("retryable"))
        return isinstance(error, ConnectionFailed)

    # --- for the connection (Receiver) ---

    def deliver(self, deliveries: Sequence[DeliveredEvent], size: int) -> None:
        if not self._buffer.offer(self.source.subscription, deliveries, size):
            self._drained.clear()
            self._interrupted.set()
        self._changed.set()

    def gap(self, gap: Gap) -> None:
        self._buffer.announce(gap)
        self._changed.set()

    def ended(self, error: ClientError | None) -> None:
        self._removed = error is None
        self._loss = error
        self._connection = None
        self._attached.clear()
        self._interrupted.set()

    def _message(self, delivery: DeliveredEvent) -> Message:
        return Message(delivery.event, delivery.offset, self.source.subscription, self.acknowledge)
