"""The messages of the WebSocket protocol: `op` says which message it is, `ref` ties an answer to its request."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from culver.messages.http_messages import (
    ChannelContent,
    ChannelGap,
    ChannelName,
    ChannelStart,
    DeliveredEvent,
    DeliveryId,
    EventObject,
    Filter,
    MessageData,
    MessageEncoding,
    Offset,
    PublishedMessage,
    Receipt,
    Scheme,
    SentOffset,
    StreamEnd,
    StreamStart,
    SubscriptionId,
)

LONGEST_REFERENCE = 256
Reference = (
    Annotated[str, Meta(max_length=LONGEST_REFERENCE)]
    | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    | float
    | None
)


class _Sent(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="op"
):
    ref: Reference | UnsetType = UNSET


class Publish(_Sent, frozen=True, kw_only=True, tag="publish"):
    events: list[EventObject]


class PublishEach(_Sent, frozen=True, kw_only=True, tag="publish_each"):
    """Publish events one by one, in this order: a refused one does not stop the others."""

    events: list[EventObject]


class Subscribe(_Sent, frozen=True, kw_only=True, tag="subscribe"):
    """Make a live subscription. `after` is the last offset that was seen on an earlier connection."""

    filter: Filter
    scheme: Scheme | None = None
    after: SentOffset | None = None


class Attach(_Sent, frozen=True, kw_only=True, tag="attach"):
    """Receive from a durable subscription, after a delivery where one is named."""

    subscription: SubscriptionId
    after: DeliveryId | None = None


class Ack(_Sent, frozen=True, kw_only=True, tag="ack"):
    delivery_id: DeliveryId


class Detach(_Sent, frozen=True, kw_only=True, tag="detach"):
    subscription: str


class Ping(_Sent, frozen=True, kw_only=True, tag="ping"):
    pass


class ChannelPublish(_Sent, frozen=True, kw_only=True, tag="channel_publish"):
    """Publish a message on a channel."""

    channel: ChannelName
    data: MessageData
    encoding: MessageEncoding = "text"


class ChannelSubscribe(_Sent, frozen=True, kw_only=True, tag="channel_subscribe"):
    channel: ChannelName


class ChannelUnsubscribe(_Sent, frozen=True, kw_only=True, tag="channel_unsubscribe"):
    channel: str


ClientMessage = (
    Publish
    | PublishEach
    | Subscribe
    | Attach
    | Ack
    | Detach
    | Ping
    | ChannelPublish
    | ChannelSubscribe
    | ChannelUnsubscribe
)


class Published(Receipt, frozen=True, kw_only=True, tag_field="op", tag="published"):
    ref: Reference = None


class RefusedEvent(Struct, frozen=True):
    """Why an event of a message was refused. The problem's `field` is a path inside the event."""

    index: Annotated[int, Meta(ge=0, description="The place of the event in the message, from 0")]
    problem: dict[str, Any]


class PublishedEach(Struct, frozen=True, kw_only=True, tag_field="op", tag="published_each"):
    """`ranges` holds the offsets `[first, next)` of the accepted events, in the order sent: normally one range."""

    ref: Reference = None
    ranges: list[tuple[Offset, Offset]]
    refused: list[RefusedEvent] = []


class Subscribed(StreamStart, frozen=True, kw_only=True, tag_field="op", tag="subscribed"):
    ref: Reference = None


class AckDone(Struct, frozen=True, kw_only=True, tag_field="op", tag="acknowledged"):
    ref: Reference = None
    offset: Offset


class Detached(Struct, frozen=True, kw_only=True, tag_field="op", tag="detached"):
    ref: Reference = None
    subscription: str


class Pong(Struct, frozen=True, kw_only=True, tag_field="op", tag="pong"):
    ref: Reference = None


class Events(Struct, frozen=True, tag_field="op", tag="events"):
    """Deliveries in the order of their offsets."""

    subscription: SubscriptionId
    deliveries: list[DeliveredEvent]


class Gap(Struct, frozen=True, tag_field="op", tag="gap"):
    """Events of `[start, end)` may be missing; `dropped` says how many, where that is known. `reason` is
    overflow (something was too slow), expired, disconnected or unavailable."""

    subscription: SubscriptionId
    start: Offset
    end: Offset
    dropped: int | None
    reason: str


class Ended(StreamEnd, frozen=True, tag_field="op", tag="ended"):
    pass


class ChannelPublished(PublishedMessage, frozen=True, kw_only=True, tag_field="op", tag="channel_published"):
    ref: Reference = None
    channel: str


class ChannelSubscribed(ChannelStart, frozen=True, kw_only=True, tag_field="op", tag="channel_subscribed"):
    ref: Reference = None


class ChannelUnsubscribed(Struct, frozen=True, kw_only=True, tag_field="op", tag="channel_unsubscribed"):
    ref: Reference = None
    channel: str


class ChannelMessages(Struct, frozen=True, tag_field="op", tag="channel_messages"):
    """Messages of a channel, in the order of each publisher."""

    channel: str
    messages: list[ChannelContent]


class ChannelGapNotice(ChannelGap, frozen=True, kw_only=True, tag_field="op", tag="channel_gap"):
    channel: str


class Refusal(Struct, frozen=True, kw_only=True, tag_field="op", tag="error"):
    """A problem with all of its members, of which these say whose it is: that of a request with a `ref`, or that of
    a subscription's deliveries, or that of a channel's messages, which ends there."""

    ref: Any | UnsetType = UNSET
    subscription: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET


ServerMessage = (
    Published
    | PublishedEach
    | Subscribed
    | AckDone
    | Detached
    | Pong
    | Events
    | Gap
    | Ended
    | ChannelPublished
    | ChannelSubscribed
    | ChannelUnsubscribed
    | ChannelMessages
    | ChannelGapNotice
    | Refusal
)
