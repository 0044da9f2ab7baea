"""The asynchronous client."""

import asyncio
import enum
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, UnsetType

from culver.client.event_encoding import EventLike, encode_events
from culver.client.link import Link, set_path, subscription_path
from culver.client.publisher import Publisher
from culver.client.receiving.feed import Feed
from culver.client.receiving.group_feed import GroupFeed
from culver.client.receiving.group_selection import GroupSelection
from culver.client.receiving.item_supply import ItemSupply
from culver.client.receiving.received_messages import GroupGap, GroupMessage, Message
from culver.client.receiving.streams import GroupStream, Stream
from culver.client.receiving.subscription_source import Source
from culver.client.row_pieces import ARROW_STREAM, piece, rows_at_a_time
from culver.client.site_address import default_url, parse_address
from culver.client.site_calls import SiteCalls
from culver.errors import ClientError, InvalidRequest, RequestRefused
from culver.extras import require
from culver.inputs import RowsLike, as_table
from culver.messages import (
    AcceptedRows,
    Gap,
    Mailbox,
    MailboxLimits,
    NewDeliveryTarget,
    NewSubscription,
    Receipt,
    RemovedSet,
    Replacement,
    Rows,
    SetPage,
    Subscription,
    SubscriptionPage,
    SubscriptionSet,
    Warnings,
)

# A larger publication goes by HTTP, whose bodies may be larger than a WebSocket message (1 MiB by default).
_MESSAGE_BYTES = 512 * 1024

AckMode = Literal["auto", "manual"]

Page = TypeVar("Page", SubscriptionPage, SetPage)


class SubscribeOptions(TypedDict, total=False):
    """The options of `subscribe` besides `gaps`."""

    durable: str | None
    scheme: str | None
    ack: AckMode


class ClientState(enum.Enum):
    UNOPENED = "unopened"
    OPEN = "open"
    CLOSED = "closed"


class Client(SiteCalls):
    """A connection to a site, for one event loop. Use it as `async with`; nothing is sent before the first
    call. `url` defaults to CULVER_URL, and that to a site on this machine.

    With `wait_seconds`, entering connects: it tries again while the site is not there yet (connections are
    refused, or a proxy answers 502, 503 or 504), and raises ConnectionFailed when that time is over.

    Every method raises ConnectionFailed where the site cannot be reached or does not answer within
    `timeout_seconds`, RequestRefused where it says no, and ClientError on a client that is not open.

    Subscriptions buffer up to `buffer_count` events or `buffer_bytes` each. When a reader is slower than
    that, a durable subscription is detached until the reader catches up (the mailbox keeps all of it), and a
    live one drops events and announces the gap.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        wait_seconds: float = 0.0,
        reconnect: bool = True,
        max_in_flight: int = 1024,
        buffer_count: int = 10_000,
        buffer_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        if timeout_seconds <= 0 or max_in_flight < 1 or buffer_count < 1 or buffer_bytes < 1:
            raise InvalidRequest("timeout_seconds, max_in_flight, buffer_count and buffer_bytes are positive")
        if not 0 <= wait_seconds < math.inf:
            raise InvalidRequest("wait_seconds is a number of seconds, 0 or more", field="wait_seconds")
        self._address = parse_address(default_url() if url is None else url)
        self._timeout_seconds = timeout_seconds
        self._wait_seconds = wait_seconds
        self._max_in_flight = max_in_flight
        self._feed_options: dict[str, Any] = {
            "reconnect": reconnect,
            "buffer_count": buffer_count,
            "buffer_bytes": buffer_bytes,
        }
        self._state = ClientState.UNOPENED
        self._feeds: set[asyncio.Task[None]] = set()
        self.gaps = 0
        """How many gaps all subscriptions of this client have met."""

    @property
    def url(self) -> str:
        return self._address.http

    @property
    def state(self) -> ClientState:
        return self._state

    async def __aenter__(self) -> Self:
        if self._state is not ClientState.UNOPENED:
            raise ClientError(f"a client is opened once, and this one is {self._state.value}")
        self._link = Link(self._address, self._timeout_seconds)
        self._publisher = Publisher(self._link, self._max_in_flight)
        self._state = ClientState.OPEN
        if self._wait_seconds > 0:
            try:
                await self._link.wait_for_site(self._wait_seconds)
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all subscriptions' streams and the connection. A publication in flight fails."""
        was_open, self._state = self._state is ClientState.OPEN, ClientState.CLOSED
        if not was_open:
            return
        for task in self._feeds:
            task.cancel()
        await asyncio.gather(*self._feeds, return_exceptions=True)
        await self._publisher.close()
        await self._link.close()

    # --- publishing ---

    async def publish(
        self, events: EventLike | Iterable[EventLike] | None = None, /, **attributes: Any
    ) -> Receipt:
        """Publish one event (a mapping, its JSON text, or keyword attributes) or several, all or none.
        Returns once they are on the site's disk.

        Calls may overlap and are then pipelined over the one connection, in their order and `max_in_flight` at
        most; the others wait. Calls with one event each that overlap share messages; each still has its own
        receipt or error. Raises InvalidEvent before anything is sent, and ConnectionFailed where the connection
        was lost before the answer: then it is unknown whether the events were stored, and it is for the
        caller to decide whether to send them again.
        """
        encoded = encode_events(events, attributes)
        link = self._open_link()
        if _fits_a_message(encoded):
            return await self._publisher.publish(encoded)
        return await self._publish_over_http(link, encoded)

    async def publish_encoded(self, events: Sequence[bytes], *, over_http: bool = False) -> Receipt:
        """As `publish`, for events that are known to be JSON objects. The site ends a WebSocket after a
        hundred refused messages; `over_http` avoids that for events of which many may be refused."""
        link = self._open_link()
        if over_http or not _fits_a_message(events):
            return await self._publish_over_http(link, events)
        return await self._publisher.publish(events)

    async def _publish_over_http(self, link: Link, events: Sequence[bytes]) -> Receipt:
        async with self._publisher.turn():
            content = b"[%b]" % b",".join(events)
            return await link.ask(Receipt, "POST", "/v1/events", content=content)

    # --- receiving ---

    @overload
    def subscribe(
        self,
        filter_text: str | None = None,
        *,
        gaps: Literal[False] = False,
        **options: Unpack[SubscribeOptions],
    ) -> Stream[Message]: ...

    @overload
    def subscribe(
        self, filter_text: str | None = None, *, gaps: Literal[True], **options: Unpack[SubscribeOptions]
    ) -> Stream[Message | Gap]: ...

    def subscribe(
        self,
        filter_text: str | None = None,
        *,
        durable: str | None = None,
        scheme: str | None = None,
        ack: AckMode = "auto",
        gaps: bool = False,
    ) -> Stream[Message] | Stream[Message | Gap]:
        """The events that satisfy a filter, as an asynchronous iterator.

        Without `durable` the subscription is live: it lasts while it is connected, and after a lost
        connection it goes on with a gap. With `durable="name"` it is made with that name where it does not
        exist, keeps its events in a mailbox until they are acknowledged, and goes on where it was; the
        filter may then be left out to receive what exists. `ack="auto"` acknowledges a message when the
        next one is asked for, `ack="manual"` leaves it to `await message.ack()`. `scheme` names the filter on the
        site that matches it, which changes no answer.

        A gap is yielded as a Gap with `gaps=True`; otherwise it is logged as a warning and counted.
        """
        link = self._open_link()
        _check_ack(ack)
        if durable is None and filter_text is None:
            raise InvalidRequest("a live subscription needs a filter", field="filter")
        feed = Feed(link, Source(durable, filter_text, scheme), **self._feed_options)
        return Stream[Any](
            feed, self._spawn, automatic=ack == "auto", yield_gaps=gaps, count_gap=self._count_gap
        )

    @overload
    def subscribe_set(
        self, name: str, *, gaps: Literal[False] = False, ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage]: ...

    @overload
    def subscribe_set(
        self, name: str, *, gaps: Literal[True], ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage | GroupGap]: ...

    def subscribe_set(
        self, name: str, *, gaps: bool = False, ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage] | GroupStream[GroupMessage | GroupGap]:
        """The events of all subscriptions of a set as one stream, also of those that are added later. An event comes
        once, with all subscriptions that it is for (once from each gateway, where a site has several).

        `ack` and `gaps` are as in `subscribe`; acknowledging a message covers all before it in the stream, for every
        subscription of the group. RequestRefused where there is no such set; the stream ends when it is removed.
        """
        return self._group_stream(GroupSelection(set_name=name), ack, gaps)

    @overload
    def subscribe_prefix(
        self, prefix: str, *, gaps: Literal[False] = False, ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage]: ...

    @overload
    def subscribe_prefix(
        self, prefix: str, *, gaps: Literal[True], ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage | GroupGap]: ...

    def subscribe_prefix(
        self, prefix: str, *, gaps: bool = False, ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage] | GroupStream[GroupMessage | GroupGap]:
        """As `subscribe_set`, for all durable subscriptions whose ids begin with a prefix. There may be none yet, and
        the stream does not end with the last one."""
        return self._group_stream(GroupSelection(prefix=prefix), ack, gaps)

    @overload
    def subscribe_group(
        self, subscriptions: Iterable[str], *, gaps: Literal[False] = False, ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage]: ...

    @overload
    def subscribe_group(
        self, subscriptions: Iterable[str], *, gaps: Literal[True], ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage | GroupGap]: ...

    def subscribe_group(
        self, subscriptions: Iterable[str], *, gaps: bool = False, ack: AckMode = "auto"
    ) -> GroupStream[GroupMessage] | GroupStream[GroupMessage | GroupGap]:
        """As `subscribe_set`, for up to 10,000 durable subscriptions by their ids. All of them must exist; the stream
        ends when all of them are removed."""
        return self._group_stream(GroupSelection(subscriptions=subscriptions), ack, gaps)

    def _group_stream(self, selection: GroupSelection, ack: str, gaps: bool) -> GroupStream[Any]:
        link = self._open_link()
        _check_ack(ack)
        feed = GroupFeed(link, selection, **self._feed_options)
        return GroupStream[Any](
            feed, self._spawn, automatic=ack == "auto", yield_gaps=gaps, count_gap=self._count_gap
        )

    # --- durable subscriptions ---

    async def create_subscription(
        self,
        filter_text: str,
        *,
        id: str | None = None,  # noqa: A002
        expires_in_seconds: float | None = None,
        mailbox: Mailbox | None = None,
        scheme: str | None = None,
        channel: str | None = None,
        wait_for_sites_seconds: float | None = None,
    ) -> Subscription:
        """Make a durable subscription; without an id the site chooses one, and without a scheme the columnar. With
        `channel`, the site publishes its deliveries on that channel. With `wait_for_sites_seconds`, the site answers
        when the subscription is in effect at every site of the overlay that can be reached, or when that time is up.
        """
        body = NewSubscription(
            id=id,
            filter=filter_text,
            scheme=scheme,
            expires_in_seconds=expires_in_seconds,
            mailbox=_limits(mailbox),
            deliver=_target(channel),
            **_waiting(wait_for_sites_seconds),
        )
        return await self._open_link().ask(Subscription, "POST", "/v1/subscriptions", body=body)

    async def replace_subscription(
        self,
        id: str,  # noqa: A002
        filter_text: str,
        *,
        expires_in_seconds: float | None = None,
        mailbox: Mailbox | None = None,
        scheme: str | None = None,
        channel: str | None = None,
        wait_for_sites_seconds: float | None = None,
    ) -> Subscription:
        """Give a subscription a new filter and options; its mailbox stays. Events are matched with the new
        filter, by the new scheme, from position `since` of the answer on."""
        body = Replacement(
            filter=filter_text,
            scheme=scheme,
            expires_in_seconds=expires_in_seconds,
            mailbox=_limits(mailbox),
            deliver=_target(channel),
            **_waiting(wait_for_sites_seconds),
        )
        return await self._open_link().ask(Subscription, "PUT", subscription_path(id), body=body)

    async def delete_subscription(self, id: str) -> None:  # noqa: A002
        """End a subscription and drop its mailbox."""
        await self._open_link().http("DELETE", subscription_path(id))

    async def subscription(self, id: str) -> Subscription:  # noqa: A002
        return await self._open_link().ask(Subscription, "GET", subscription_path(id))

    async def subscriptions(self, page_size: int = 100) -> AsyncIterator[Subscription]:
        """All durable subscriptions, ordered by id, fetched a page at a time."""
        async for page in self._pages(SubscriptionPage, "/v1/subscriptions", page_size):
            for subscription in page.subscriptions:
                yield subscription

    # --- sets ---

    async def subscribe_many(
        self,
        filter_text: str,
        rows: RowsLike,
        *,
        name: str,
        first: int | None = None,
        expires_in_seconds: float | None = None,
        mailbox: Mailbox | None = None,
        progress: Callable[[int], None] = lambda count: None,
    ) -> Rows:
        """Make many durable subscriptions of one form: the filter has `?` in place of values, and each row (or the
        columns together) fills them in. They belong to set `name`, and row i becomes `rows.id(i)` of the answer;
        a set that exists is extended. Returns once all of them are on the site's disk and in effect.

        Many rows go in several requests, each all or nothing; `progress` is told how many are done. `first`, where
        given, is the number that the first row must get in its set: an attempt whose answer was lost
        (ConnectionFailed) is repeated safely by giving the number that it began with, and is then refused as a
        conflict if it had arrived.
        """
        options: dict[str, Any] = {"expires_in_seconds": expires_in_seconds}
        if mailbox is not None:
            options |= msgspec.structs.asdict(mailbox)
        require("arrow", "subscribe_many")
        table = as_table(rows)
        if not table.num_rows:
            raise InvalidRequest("there are no rows", field="rows")
        done, begin, since, step = 0, first, 0, rows_at_a_time(table)
        warnings: Warnings | UnsetType = UNSET
        while done < table.num_rows:
            try:
                answer = await self._open_link().ask(
                    AcceptedRows,
                    "POST",
                    set_path(name),
                    content=piece(table, done, step),
                    content_type=ARROW_STREAM,
                    filter=filter_text,
                    first=None if begin is None else begin + done,
                    **options,
                )
            except RequestRefused as exc:
                limit = exc.details.get("limit")
                if exc.field != "rows" or not isinstance(limit, int) or not 0 < limit < step:
                    raise
                step = limit  # the site takes fewer at a time
                continue
            begin = answer.first - done
            since, warnings = answer.since, answer.warnings
            done += answer.count
            progress(done)
        assert begin is not None
        return Rows(name, begin, done, since, warnings)

    async def sets(self, page_size: int = 100) -> AsyncIterator[SubscriptionSet]:
        """All sets, ordered by name, fetched a page at a time."""
        async for page in self._pages(SetPage, "/v1/sets", page_size):
            for each in page.sets:
                yield each

    async def delete_set(self, name: str) -> int:
        """End all subscriptions of a set and drop their mailboxes; returns how many there were."""
        return (await self._open_link().ask(RemovedSet, "DELETE", set_path(name))).removed

    # --- inside ---

    def _open_link(self) -> Link:
        if self._state is ClientState.UNOPENED:
            raise ClientError(
                "the client is not open yet; use it as `async with culver.connect(...) as client:`"
            )
        if self._state is ClientState.CLOSED:
            raise ClientError("the client is closed")
        return self._link

    async def _pages(self, kind: type[Page], path: str, page_size: int) -> AsyncIterator[Page]:
        after: str | None = None
        while True:
            page = await self._open_link().ask(kind, "GET", path, after=after, limit=page_size)
            yield page
            after = page.next
            if after is None:
                return

    def _spawn(self, feed: ItemSupply[Any]) -> "asyncio.Task[None]":
        self._open_link()
        task = asyncio.create_task(feed.run(), name="culver-client stream")
        self._feeds.add(task)
        task.add_done_callback(self._feeds.discard)
        return task

    def _count_gap(self) -> None:
        self.gaps += 1


connect = Client


def _check_ack(ack: str) -> None:
    if ack not in ("auto", "manual"):
        raise InvalidRequest(f"ack is 'auto' or 'manual', not {ack!r}", field="ack")


def _fits_a_message(events: Sequence[bytes]) -> bool:
    return sum(map(len, events)) + len(events) <= _MESSAGE_BYTES


def _target(channel: str | None) -> NewDeliveryTarget | None:
    return None if channel is None else NewDeliveryTarget(channel=channel)


def _waiting(seconds: float | None) -> dict[str, Any]:
    return {} if seconds is None else {"wait": "sites", "wait_seconds": seconds}


def _limits(mailbox: Mailbox | None) -> MailboxLimits | None:
    return None if mailbox is None else MailboxLimits(**msgspec.structs.asdict(mailbox))
