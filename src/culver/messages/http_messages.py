"""The messages of the API over HTTP, and the values that all messages share."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from culver.model import DELIVERY_ID, DURABLE_ID, SET_NAME, SUBSCRIPTION_ID

# --- values that messages share ---

EVENT_EXAMPLE = {"symbol": "ACME", "price": 21.5, "volume": 900}

Count = Annotated[int, Meta(ge=0)]
Offset = Annotated[int, Meta(ge=0, description="A position in the log")]
SentOffset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1)]
PageSize = Annotated[int, Meta(ge=1, le=1_000)]
RowNumber = Annotated[int, Meta(ge=0, le=10**18, description="Refuse unless the first row gets this number")]
SliceNumber = Annotated[int, Meta(ge=0, le=2**31 - 1, description="The slice to take half of", examples=[0])]

# Patterns are for the schema only: the gateway matches the whole text, where msgspec searches, and explains itself.
SubscriptionId = Annotated[str, Meta(extra_json_schema={"pattern": SUBSCRIPTION_ID}, examples=["alerts"])]
DurableId = Annotated[str, Meta(extra_json_schema={"pattern": DURABLE_ID}, examples=["alerts"])]
DeliveryId = Annotated[str, Meta(extra_json_schema={"pattern": DELIVERY_ID}, examples=["alerts:17"])]
ChannelName = Annotated[
    str,
    Meta(
        description="1 to 4096 bytes as UTF-8, not beginning with `__culver:`",
        examples=["alerts.eu"],
        extra_json_schema={"minLength": 1, "pattern": "^(?!__culver:)"},
    ),
]
SetName = Annotated[str, Meta(extra_json_schema={"pattern": SET_NAME}, examples=["quotes"])]

Filter = Annotated[
    str, Meta(description="A condition as in SQL's WHERE", examples=["symbol = 'ACME' AND price > 20"])
]
FilterWithParameters = Annotated[
    str, Meta(description="A filter with `?` in place of values", examples=["symbol = ? AND price >= ?"])
]
Scheme = Annotated[str, Meta(description="The filtering scheme: the filter on the site that matches it")]
Lifetime = Annotated[
    float, Meta(gt=0, le=100 * 365 * 24 * 3600, description="The subscription ends by itself then")
]
Awaited = Annotated[
    Literal["sites"], Meta(description="Answer when it is in effect at every site that can be reached")
]
WaitSeconds = Annotated[float, Meta(ge=0, le=60, description="Longest time to wait")]
SitePositions = Annotated[
    dict[str, int | None],
    Meta(
        description="From which position of each other site's log on its events come too; null where not yet",
        examples=[{"lyon": 512, "bonn": None}],
    ),
]


class FilterWarning(Struct, frozen=True):
    """A doubt about a filter that the site accepts: `never_matches` where no event can match it, and
    `compares_attributes` where it compares two attributes and quotes were probably forgotten."""

    code: Annotated[str, Meta(examples=["compares_attributes"])]
    detail: Annotated[str, Meta(description="What is doubtful and what to write instead")]


Warnings = Annotated[list[FilterWarning], Meta(description="Doubts about the filter, if there are any")]
Next = Annotated[str | None, Meta(description="Give it as `after` to get the next page")]

MessageData = Annotated[str, Meta(description="The message as its encoding says", examples=["hello"])]
MessageEncoding = Annotated[
    Literal["text", "base64"], Meta(description="base64 is for messages that are not UTF-8")
]

# Any JSON value, because the rules for events refuse the others, with sentences of their own.
EventObject = Annotated[
    Any,
    Meta(
        description="A plain event, or a structured CloudEvent where it has a member `specversion`",
        examples=[EVENT_EXAMPLE],
        extra_json_schema={"type": "object"},
    ),
]


class _Request(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class _Answer(Struct, frozen=True, kw_only=True):
    pass


# --- subscriptions ---


class Mailbox(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of a durable subscription's mailbox; None is the site's own limit."""

    max_count: Limit | None = None
    max_bytes: Limit | None = None
    max_age_seconds: Limit | None = None


class MailboxLimits(Mailbox, frozen=True, forbid_unknown_fields=True):
    """The limits that a mailbox is to have: at most the site's own, which hold for those left out."""


class DeliveryTarget(Struct, frozen=True, kw_only=True):
    """Where a durable subscription's deliveries go."""

    channel: ChannelName


class NewDeliveryTarget(DeliveryTarget, frozen=True, forbid_unknown_fields=True):
    """The site publishes each delivery on the channel, and acknowledges it then."""


class SubscriptionOptions(_Request, frozen=True, kw_only=True):
    expires_in_seconds: Lifetime | None = None
    mailbox: MailboxLimits | None = None


class Replacement(SubscriptionOptions, frozen=True, kw_only=True):
    """What a subscription is to be from now on. Options that are left out go back to their defaults."""

    filter: Filter
    scheme: Scheme | None = None
    deliver: NewDeliveryTarget | None = None
    wait: Awaited | None = None
    wait_seconds: WaitSeconds = 10.0


class NewSubscription(Replacement, frozen=True, kw_only=True):
    """A durable subscription to make. The site chooses an id where there is none."""

    id: DurableId | None = None


NewSubscriptions = Annotated[list[NewSubscription], Meta(extra_json_schema={"minItems": 1})]


class Subscription(_Answer, frozen=True, kw_only=True):
    """A subscription as the site has it. Every matching event from position `since` on is delivered; of a
    durable one, `pending` wait, unacknowledged. A live one (another client's, while it is connected) has no
    mailbox. `scheme` is the name of the site's filter that matches it. A site of an overlay also tells `sites`,
    unless it lists many. The answer to a request that gives the filter has `warnings` where there are any."""

    id: SubscriptionId
    filter: Filter
    scheme: Scheme
    durable: Annotated[bool, Meta(description="false for a connection's live subscription")]
    since: Annotated[int, Meta(ge=0, description="Every matching event from this position on is delivered")]
    created_at: datetime
    expires_at: datetime | None
    mailbox: Mailbox | None
    pending: Annotated[int, Meta(ge=0, description="Deliveries waiting to be acknowledged")]
    deliver: DeliveryTarget | None = None
    sites: SitePositions | UnsetType = UNSET
    warnings: Warnings | UnsetType = UNSET


class CreatedSubscription(_Answer, frozen=True, kw_only=True):
    id: SubscriptionId
    since: Offset
    sites: SitePositions | UnsetType = UNSET
    warnings: Warnings | UnsetType = UNSET


class CreatedSubscriptions(_Answer, frozen=True, kw_only=True):
    """All subscriptions of a request, in its order."""

    subscriptions: list[CreatedSubscription]


class PageQuery(_Request, frozen=True, kw_only=True):
    after: Annotated[SubscriptionId, Meta(description="Begin after this id")] | None = None
    limit: Annotated[PageSize, Meta(description="Page size")] = 100


class SubscriptionPage(_Answer, frozen=True, kw_only=True):
    """A page of subscriptions, ordered by id."""

    subscriptions: list[Subscription]
    next: Next


# --- sets ---


class NewRows(SubscriptionOptions, frozen=True, kw_only=True):
    """Rows to add to a set: one durable subscription each. Has either `rows` or `columns`."""

    filter: FilterWithParameters
    rows: (
        Annotated[list[list[Any]], Meta(description="A value for each `?`", examples=[[["ACME", 20]]])] | None
    ) = None
    columns: Annotated[list[list[Any]], Meta(description="All values of each `?`")] | None = None
    first: RowNumber | None = None


class RowsQuery(MailboxLimits, frozen=True, kw_only=True):
    """What accompanies rows that come as an Arrow stream."""

    filter: FilterWithParameters
    first: RowNumber | None = None
    expires_in_seconds: Lifetime | None = None


class Rows(Struct, frozen=True):
    """Rows that were added to a set. Row i of them is subscription `id(i)`, which gets every matching event from
    position `since` on (where they took several requests: of the last one)."""

    set: SetName
    first: Annotated[int, Meta(ge=0, description="The number of the first row in its set")]
    count: Count
    since: Offset
    warnings: Warnings | UnsetType = UNSET

    def id(self, row: int) -> str:
        if not 0 <= row < self.count:
            raise IndexError(f"there are {self.count} rows, and no row {row}")
        return f"{self.set}.{self.first + row}"


class AcceptedRows(Rows, frozen=True, kw_only=True):
    """All rows are on disk, and in effect from `since` on. Row i is subscription `SET.i`, from `first` on."""

    next: Annotated[int, Meta(ge=0, description="The number that the next row gets")]


class SubscriptionSet(_Answer, frozen=True, kw_only=True):
    """What is registered under one name: `count` subscriptions. The next row gets number `next`."""

    set: SetName
    count: Count
    next: Count
    filters: tuple[str, ...]


class SetPageQuery(_Request, frozen=True, kw_only=True):
    after: Annotated[SetName, Meta(description="Begin after this name")] | None = None
    limit: Annotated[PageSize, Meta(description="Page size")] = 100


class SetPage(_Answer, frozen=True, kw_only=True):
    """A page of sets, ordered by name."""

    sets: list[SubscriptionSet]
    next: Next


class RemovedSet(_Answer, frozen=True, kw_only=True):
    """All subscriptions of the set have ended."""

    removed: Annotated[int, Meta(ge=0, description="How many subscriptions have ended")]


# --- receiving ---


class StreamQuery(_Request, frozen=True, kw_only=True):
    filter: Filter
    scheme: Scheme | None = None


class StreamStart(Struct, frozen=True):
    subscription: SubscriptionId
    since: Offset
    warnings: Warnings | UnsetType = UNSET


class StreamEnd(Struct, frozen=True):
    """The subscription was removed or has expired."""

    subscription: SubscriptionId


class PollQuery(_Request, frozen=True, kw_only=True):
    limit: Annotated[PageSize, Meta(description="Most items")] = 100
    wait: Annotated[float, Meta(ge=0, description="Seconds to wait for the first item")] = 30.0
    after: (
        Annotated[DeliveryId, Meta(description="Skip up to this delivery id, without acknowledging it")]
        | None
    ) = None


class DeliveredEvent(Struct, frozen=True):
    """One event for one subscription. The gateway encodes `event` from the bytes that it has, as a `msgspec.Raw`."""

    delivery_id: DeliveryId
    offset: Offset
    event: EventObject


class EventItem(DeliveredEvent, frozen=True, tag_field="type", tag="event"):
    pass


class GapItem(Struct, frozen=True, tag_field="type", tag="gap"):
    """Events of `[start, end)` may be missing."""

    start: Offset
    end: Offset
    dropped: Annotated[int | None, Meta(description="How many, where that is known")]
    reason: Literal["overflow", "expired", "disconnected", "unavailable"]


Item = EventItem | GapItem


class Items(_Answer, frozen=True, kw_only=True):
    """What waited, or came first; empty when the time is up."""

    items: list[Item]


class Acknowledgement(_Request, frozen=True, kw_only=True):
    """Be done with a delivery and all before it."""

    delivery_id: DeliveryId


class Acknowledged(_Answer, frozen=True, kw_only=True):
    """The acknowledgement is on disk."""

    acknowledged: Offset


# --- channels ---


class ChannelContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a channel."""

    data: MessageData
    encoding: MessageEncoding = "text"


class NewChannelMessage(ChannelContent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to publish."""


class PublishedMessage(_Answer, frozen=True, kw_only=True):
    """The servers have the message."""

    receivers: Annotated[int, Meta(ge=0, description="Subscribers that it was sent to")]


class ChannelStart(Struct, frozen=True):
    channel: ChannelName


class ChannelGap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages of a channel are missing: those of one publisher with numbers from `first` to `last`, because they
    were lost or, with `overflow`, because the reader is too slow; or those between two connections
    (`disconnected`)."""

    reason: Literal["lost", "overflow", "disconnected"]
    publisher: Annotated[str, Meta(description="Its number in hexadecimal")] | None = None
    first: Count | None = None
    last: Count | None = None


# --- filters ---


class FilterText(_Request, frozen=True, kw_only=True):
    filter: Filter


class FilterTrial(FilterText, frozen=True, kw_only=True):
    event: EventObject


class Clauses(_Answer, frozen=True, kw_only=True):
    """An event matches when some clause does."""

    clauses: tuple[str, ...]
    warnings: Warnings | UnsetType = UNSET


class FilterTest(_Answer, frozen=True, kw_only=True):
    """Whether an event matches a filter. `result` None is SQL's unknown; `clause` is the index in
    `clauses` of the first one that matches."""

    matches: bool
    result: Annotated[bool | None, Meta(description="null is unknown")]
    clause: Annotated[int | None, Meta(description="The first clause that matches")]
    clauses: tuple[str, ...]
    warnings: Warnings | UnsetType = UNSET


# --- operations ---


class Health(_Answer, frozen=True, kw_only=True):
    """The process lives and its event loop turns."""

    status: Literal["ok"]


class LogDamage(_Answer, frozen=True, kw_only=True):
    """Events from offset `start` up to, not including, `end` cannot be read: the file is damaged at that byte."""

    path: str
    position: Count
    start: Offset
    end: Offset


class SiteStatus(_Answer, frozen=True, kw_only=True):
    """The site's account of itself. It is ready while it takes publications and they reach subscribers. Damage in the
    log does not change that: `log_damage` has what was found of it since the start."""

    engine: str
    state: str
    ready: bool
    log_first_offset: Offset
    log_next_offset: Offset
    delivered_offset: Offset
    subscriptions: Count
    index_version: Count
    log_damage: list[LogDamage]


class NewSlice(_Request, frozen=True, kw_only=True):
    """A slice to add. It takes half of another, by default of the most loaded."""

    split: SliceNumber | None = None


class GatewayEntry(_Answer, frozen=True, kw_only=True):
    number: Count
    url: str
    state: Annotated[str, Meta(description="running, or what is wrong")]
    subscriptions: Annotated[int, Meta(ge=0, description="Of its share")]
    sessions: Annotated[int, Meta(ge=0, description="That are connected to it")]


class Gateways(_Answer, frozen=True, kw_only=True):
    """The first is the site's own."""

    gateways: list[GatewayEntry]


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457); it has more members as its code has them."""

    type: Annotated[str, Meta(examples=["urn:culver:problem:invalid_filter"])]
    title: str
    status: int
    detail: Annotated[str, Meta(description="What is wrong and what to do")]
    code: str
    field: Annotated[str, Meta(description="What it is about")] | None = None
    retryable: Annotated[bool, Meta(description="Whether the same request may succeed later")]
