"""The subscriptions and groups of one WebSocket connection.

They share one session, and one task that pumps out what it receives, in the form that the client chose."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET, UnsetType
from starlette.requests import HTTPConnection

from culver.delivery import MergedEvent, MergedGap
from culver.errors import Conflict, CulverError, InvalidRequest, NotFound, TooManySubscriptions, Unavailable
from culver.gateway.api.delivery_encoding import ReceiveLimit, encode
from culver.gateway.api.request_reader import check_delivery_id, check_subscription_id, offset_within
from culver.gateway.gateway_context import Gateway, check_here, url_of
from culver.gateway.problems import encode_problem, problem_document
from culver.gateway.routes.group_routes import check_count, select
from culver.gateway.routes.subscription_routes import add_live, check_durable, live_spec, warnings_of
from culver.gateway.websocket.message_sockets import Outbox
from culver.gateway.websocket.wire_formats import WireFormat
from culver.messages import (
    Ack,
    AckDone,
    Attach,
    Detach,
    Detached,
    Follow,
    Followed,
    Reference,
    ServerMessage,
    Subscribe,
    Subscribed,
    Warnings,
)
from culver.registry import Registration
from culver.roles import JointSession

SubscriptionRequest = Subscribe | Attach | Follow | Ack | Detach

MAX_SUBSCRIPTIONS = 10_000
# Each group looks at every range of events by itself, which takes about 25 microseconds.
MAX_GROUPS = 1_000
MAX_BATCH_EVENTS = 1_024

_logger = logging.getLogger(__name__)


class SubscriptionAttachments:
    """`start` runs the task that sends. The task raises Unavailable when the site stops, and Disconnected."""

    def __init__(
        self,
        gateway: Gateway,
        handshake: HTTPConnection,
        wire: WireFormat,
        outbox: Outbox,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._gateway = gateway
        self._handshake = handshake
        self._wire = wire
        self._outbox = outbox
        self._start = start
        # What is on this connection, or about to be: ids of subscriptions, and numbers of groups.
        self._attached: set[str | int] = set()
        self._joint: JointSession | None = None
        self._groups = 0
        self._members: dict[int, int] = {}  # of each group

    async def perform(self, message: SubscriptionRequest, reference: Reference) -> None:
        match message:
            case Subscribe():
                await self._subscribe(message, reference)
            case Attach():
                await self._attach(message, reference)
            case Follow():
                await self._follow(message, reference)
            case Ack():
                await self._acknowledge(message, reference)
            case Detach():
                await self._detach(message, reference)

    async def close(self) -> None:
        """End the live subscriptions and keep the durable ones."""
        joint, self._joint = self._joint, None
        if joint is not None:
            try:
                await joint.close()
            except CulverError as exc:
                _logger.info("a session could not be closed: %s", exc.message)

    async def _subscribe(self, message: Subscribe, reference: Reference) -> None:
        subscription = self._gateway.site.sessions.new_live_id()
        spec = await live_spec(self._gateway, subscription, message.filter, message.scheme)
        with self._attaching(subscription):
            registration = await add_live(self._gateway.site, spec)
            await self._add(registration, message.after, reference, warnings_of(spec.predicate))

    async def _attach(self, message: Attach, reference: Reference) -> None:
        subscription = check_subscription_id(message.subscription, "subscription")
        offset = None if message.after is None else offset_within(subscription, message.after, "after")
        check_here(self._handshake, subscription)
        with self._attaching(subscription):
            registration = check_durable(await self._gateway.site.subscriptions.get(subscription))
            await self._add(registration, offset, reference)

    async def _add(
        self,
        registration: Registration,
        after: int | None,
        reference: Reference,
        warnings: Warnings | UnsetType = UNSET,
    ) -> None:
        self._open_joint().add(registration, after)
        # Nothing of the subscription is sent before this: the pump runs later.
        await self._send(Subscribed(registration.id, registration.since, warnings, ref=reference))

    async def _follow(self, message: Follow, reference: Reference) -> None:
        if not self._wire.has_groups:
            raise InvalidRequest(f"groups need another subprotocol than {self._wire.name}", field="op")
        selection = await select(self._gateway.site, message.set, message.prefix, message.subscriptions)
        self._groups += 1
        group, ports = self._groups, self._gateway.site.sessions.other_ports()
        with self._attaching(group):
            joint = self._open_joint()
            count = joint.follow(group, selection, message.after)
            try:
                check_count(self._gateway.site, selection, count)
                self._check_groups(count)
            except CulverError:
                await joint.remove(group)
                raise
            self._members[group] = count
            gateways = [url_of(self._handshake, port) for port in ports]
            await self._send(Followed(ref=reference, group=group, count=count, gateways=gateways))

    def _check_groups(self, more: int) -> None:
        """A group takes time, and memory for each member. Raises TooManySubscriptions."""
        if len(self._members) >= MAX_GROUPS:
            raise TooManySubscriptions(
                f"at most {MAX_GROUPS} groups fit one connection; open another one", limit=MAX_GROUPS
            )
        limit = 2 * self._gateway.settings.registry.max_subscriptions
        if sum(self._members.values()) + more > limit:
            raise TooManySubscriptions(
                f"the groups of one connection have at most {limit} members together; open another one",
                limit=limit,
            )

    async def _acknowledge(self, message: Ack, reference: Reference) -> None:
        if message.group is not None and message.offset is not None and message.delivery_id is None:
            offset = message.offset
            joint = self._joint_with(message.group, "group")
            await joint.acknowledge_group(message.group, offset)
        elif message.delivery_id is not None and message.group is None and message.offset is None:
            subscription, offset = check_delivery_id(message.delivery_id)
            joint = self._joint_with(subscription, "delivery_id")
            await joint.acknowledge(subscription, offset)
        else:
            raise InvalidRequest("ack needs a delivery_id, or a group and an offset", field="delivery_id")
        if reference is not None:
            await self._send(AckDone(ref=reference, offset=offset))

    async def _detach(self, message: Detach, reference: Reference) -> None:
        if message.group is not None and message.subscription is None:
            await self._joint_with(message.group, "group").remove(message.group)
            self._attached.discard(message.group)
            self._members.pop(message.group, None)
            await self._send(Detached(ref=reference, group=message.group))
        elif message.subscription is not None and message.group is None:
            await self._joint_with(message.subscription, "subscription").remove(message.subscription)
            self._attached.discard(message.subscription)
            await self._send(Detached(ref=reference, subscription=message.subscription))
        else:
            raise InvalidRequest("detach needs a subscription or a group", field="subscription")

    @contextmanager
    def _attaching(self, key: str | int) -> Iterator[None]:
        """Count a subscription or a group from now on, unless this fails. Raises Conflict and
        TooManySubscriptions."""
        if key in self._attached:
            raise Conflict(f"subscription {key!r} is on this connection already", field="subscription")
        if len(self._attached) >= MAX_SUBSCRIPTIONS:
            raise TooManySubscriptions(
                f"at most {MAX_SUBSCRIPTIONS} subscriptions fit one connection; open another one, or follow a group",
                limit=MAX_SUBSCRIPTIONS,
            )
        self._attached.add(key)
        try:
            yield
        except BaseException:
            self._attached.discard(key)
            raise

    def _joint_with(self, key: str | int, field: str) -> JointSession:
        if self._joint is None or key not in self._attached:
            what = f"group {key}" if isinstance(key, int) else f"subscription {key[:200]!r}"
            raise NotFound(f"{what} is not on this connection; attach to it first", field=field)
        return self._joint

    def _open_joint(self) -> JointSession:
        if self._joint is None:
            self._joint = self._gateway.site.sessions.open_joint()
            self._start(self._pump(self._joint))
        return self._joint

    async def _pump(self, joint: JointSession) -> None:
        limit, metrics = ReceiveLimit(MAX_BATCH_EVENTS), self._gateway.metrics
        sent = metrics.deliveries.labels("websocket")
        try:
            while True:
                await self._outbox.wait_for_space()
                items = await joint.receive(limit.value, None)
                limit.observe(items)
                for message in self._wire.messages(items):
                    await self._outbox.send(message.content, is_binary=message.is_binary)
                for item in items:
                    if isinstance(item, MergedEvent):
                        sent.inc(item.deliveries)
                    elif isinstance(item, MergedGap):
                        metrics.gaps.labels(item.reason).inc()
                    else:
                        self._attached.discard(item.subscription or item.group or 0)
                        self._members.pop(item.group or 0, None)
        except Unavailable:
            raise
        except CulverError as exc:
            metrics.errors.labels(exc.code).inc()
            attached, self._attached = self._attached, set()
            await self.close()
            for key in attached:
                whose = {"group": key} if isinstance(key, int) else {"subscription": key}
                await self._outbox.send(encode_problem({"op": "error", **whose, **problem_document(exc)}))

    async def _send(self, message: ServerMessage) -> None:
        await self._outbox.send(encode(message))
