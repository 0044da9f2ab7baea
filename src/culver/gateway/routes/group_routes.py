"""Many durable subscriptions at once, over HTTP: Server-Sent Events, long polling, and acknowledgement of a group.

The events of `/v1/groups/stream`:

    event: following       data: {"count", "gateways"}
    event: event           id: POSITION, data: ITEM
    event: gap             data: ITEM
    event: ended           data: ITEM: all subscriptions were removed or have expired; the stream ends
    : heartbeat            every 15 seconds without anything else

`api.group_positions` says what a position is. A gap has none: it is announced ahead of the other members' events,
which an acknowledgement of its end would cover.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from culver.delivery import MergedEnd, MergedEvent, MergedGap, MergedItem, Selection
from culver.errors import Conflict, InvalidRequest, NotFound
from culver.gateway.api.delivery_encoding import ReceiveLimit, encode
from culver.gateway.api.group_positions import GroupMark
from culver.gateway.api.operations import Operations
from culver.gateway.api.request_reader import check_subscription_id
from culver.gateway.gateway_context import Gateway, gateway_of, url_of
from culver.gateway.routes.receiving_routes import (
    HEARTBEAT,
    LAST_ID,
    RETRY,
    SentEvents,
    event_message,
    receive_up_to,
    send_part,
    sent_event,
)
from culver.gateway.routes.subscription_routes import check_durable
from culver.messages import (
    GroupAcknowledged,
    GroupEndItem,
    GroupEventItem,
    GroupGapItem,
    GroupItem,
    GroupItems,
    GroupPollQuery,
    GroupQuery,
    GroupStart,
    OneGroupAcknowledgement,
)
from culver.model import GROUP_POSITION
from culver.roles import JointSession, Site

# The number of the only group of a session.
_GROUP = 1

operations = Operations("groups", "Many durable subscriptions at once")
_MESSAGES = (
    "`following`, `event` (with its position as id), `gap`, `ended` and `error`; a comment as heartbeat. The data of "
    "`following` is that of an answer of long polling without its items"
)


async def select(
    site: Site,
    set_name: str | None,
    prefix: str | None,
    subscriptions: Sequence[str] | None,
    field: str = "subscriptions",
) -> Selection:
    """What a client asks for, by one of the three. `field` is the name of the list. Raises InvalidRequest, and
    NotFound for a subscription of the list that should be here and is not."""
    if [set_name, prefix, subscriptions].count(None) != 2:
        raise InvalidRequest(f"a group needs one of set, prefix and {field}", field="set")
    if subscriptions is None:
        return Selection(set_name=set_name, prefix=prefix)
    for place, subscription in enumerate(subscriptions):
        check_subscription_id(subscription, f"{field}[{place}]")
        if site.sessions.elsewhere(subscription) is None:
            try:
                check_durable(await site.subscriptions.get(subscription))
            except (NotFound, Conflict) as exc:
                raise type(exc)(exc.message, field=f"{field}[{place}]") from exc
    return Selection(subscriptions=frozenset(subscriptions))


def check_count(site: Site, selection: Selection, count: int) -> None:
    """Raises NotFound for a set that has no members, if no other gateway can have them."""
    if not count and selection.set_name is not None and not site.sessions.other_ports():
        raise NotFound(f"there is no set {selection.set_name[:200]!r}", field="set")


@operations.add("GET /v1/groups/events", problems=(404, 409))
async def poll_group(request: Request, query: GroupPollQuery) -> GroupItems:
    """Wait for what any subscription of a group gets.

    One of `set`, `prefix` and `subscription` (any number of times) says which. The site caps `wait` at its setting
    `gateway.poll_seconds`.
    """
    gateway = gateway_of(request)
    selection, mark = await _group(request, query)
    after = None if query.after is None else mark.offset_of(query.after, "after")
    wait = min(query.wait, gateway.settings.gateway.poll_seconds)
    async with gateway.long_request("poll") as interruption:
        watcher = asyncio.create_task(interruption.watch(request.receive))
        try:
            async with _session(gateway.site, selection, after) as (session, count):
                items = await receive_up_to(session.receive, query.limit, wait)
        finally:
            watcher.cancel()
    _count(gateway, "poll", items)
    return GroupItems(
        count=count, gateways=_other_gateways(request), items=[_item_of(each, mark) for each in items]
    )


@operations.add("POST /v1/groups/ack", problems=(404, 409), max_body_bytes=2 * 1024 * 1024)
async def acknowledge_group(request: Request, body: OneGroupAcknowledgement) -> GroupAcknowledged:
    """Be done with everything up to a position, for all subscriptions of a group that this gateway has.

    One of `set`, `prefix` and `subscriptions` says which, and one of `position` and `offset` up to where.
    """
    site = gateway_of(request).site
    selection = await select(site, body.set, body.prefix, body.subscriptions)
    if body.position is not None and body.offset is None:
        offset, field = (
            GroupMark(selection, site.sessions.share).offset_of(body.position, "position"),
            "position",
        )
    elif body.offset is not None and body.position is None:
        offset, field = body.offset, "offset"
    else:
        raise InvalidRequest("ack needs a position or an offset", field="position")
    count = await _acknowledge(site, selection, offset, field)
    return GroupAcknowledged(count=count, gateways=_other_gateways(request), acknowledged=offset)


@operations.add(
    "GET /v1/groups/stream",
    problems=(404,),
    result="A stream",
    answer={"text/event-stream": {"schema": {"type": "string", "description": _MESSAGES}}},
    parameters=(
        {
            "name": "Last-Event-ID",
            "in": "header",
            "schema": {"type": "string", "pattern": GROUP_POSITION},
            "description": "The last position seen before a reconnection",
        },
    ),
)
async def stream_group(request: Request, query: GroupQuery) -> Response:
    """Stream the subscriptions of a group as Server-Sent Events.

    `Last-Event-ID` acknowledges, and the stream goes on after it. A position of another group is ignored.
    """
    gateway = gateway_of(request)
    selection, mark = await _group(request, query)
    after = None
    if last := request.headers.get(LAST_ID):
        try:
            after = mark.offset_of(last, LAST_ID)
        except Conflict:
            # A browser cannot leave the id out, and must not be locked out when the number of gateways changes.
            after = None
        else:
            await _acknowledge(gateway.site, selection, after, LAST_ID)
    session, count = await _open(gateway.site, selection, after)
    return SentGroupEvents(gateway, session, mark, GroupStart(count=count, gateways=_other_gateways(request)))


class SentGroupEvents(SentEvents):
    """Sends what a group receives, until it ends. Owns the session."""

    def __init__(self, gateway: Gateway, session: JointSession, mark: GroupMark, start: GroupStart) -> None:
        super().__init__(gateway)
        self._session = session
        self._mark = mark
        self._start = start

    async def close(self) -> None:
        await self._session.close()

    async def pump(self, send: Send) -> None:
        await send_part(send, RETRY + sent_event("following", encode(self._start)))
        limit = ReceiveLimit()
        while True:
            items = await self._session.receive(limit.value, self.gateway.heartbeat_seconds)
            if not items:
                await send_part(send, HEARTBEAT)
                continue
            limit.observe(items)
            await send_part(send, b"".join(self._message(each) for each in items))
            _count(self.gateway, "sse", items)
            if any(isinstance(each, MergedEnd) for each in items):
                return

    def _message(self, received: MergedItem) -> bytes:
        item = _item_of(received, self._mark)
        if isinstance(item, GroupEventItem):
            return event_message(item.position, encode(item))
        return sent_event("gap" if isinstance(item, GroupGapItem) else "ended", encode(item))


async def _group(request: Request, query: GroupQuery) -> tuple[Selection, GroupMark]:
    site = gateway_of(request).site
    selection = await select(site, query.set, query.prefix, query.subscription, "subscription")
    return selection, GroupMark(selection, site.sessions.share)


async def _acknowledge(site: Site, selection: Selection, offset: int, field: str) -> int:
    try:
        count = await site.sessions.acknowledge_group(selection, offset)
    except InvalidRequest as exc:
        raise InvalidRequest(exc.message, field=field) from exc
    check_count(site, selection, count)
    return count


async def _open(site: Site, selection: Selection, after: int | None) -> tuple[JointSession, int]:
    """A session with the group and nothing else, which the caller closes, and how many members are here."""
    session = site.sessions.open_joint()
    try:
        count = session.follow(_GROUP, selection, after)
        check_count(site, selection, count)
    except BaseException:
        await session.close()
        raise
    return session, count


@asynccontextmanager
async def _session(
    site: Site, selection: Selection, after: int | None
) -> AsyncIterator[tuple[JointSession, int]]:
    session, count = await _open(site, selection, after)
    try:
        yield session, count
    finally:
        await session.close()


def _other_gateways(request: Request) -> list[str]:
    return [url_of(request, port) for port in gateway_of(request).site.sessions.other_ports()]


def _item_of(item: MergedItem, mark: GroupMark) -> GroupItem:
    if isinstance(item, MergedEvent):
        payload: Any = msgspec.Raw(item.payload)
        return GroupEventItem(mark.position(item.offset), item.offset, payload, item.groups[_GROUP])
    if isinstance(item, MergedGap):
        return GroupGapItem(item.start, item.end, item.dropped, item.reason, item.groups[_GROUP])
    return GroupEndItem()


def _count(gateway: Gateway, kind: str, items: Sequence[MergedItem]) -> None:
    metrics, deliveries = gateway.metrics, 0
    for item in items:
        if isinstance(item, MergedGap):
            metrics.gaps.labels(item.reason).inc()
        elif isinstance(item, MergedEvent):
            deliveries += item.deliveries
    metrics.deliveries.labels(kind).inc(deliveries)
