"""The messages of the WebSocket protocol: `op` says which message it is, `ref` ties an answer to its request."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from culver.messages.group_messages import FollowedList, FollowedPrefix
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
    Scheme,
    SentOffset,
    StreamStart,
    SubscriptionId,
)
from culver.messages.publication_messages import FirstSequence, PublisherId, Receipt, Repeated

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
    publisher: PublisherId | None = None
    sequence: FirstSequence | None = None


class PublishEach(_Sent, frozen=True, kw_only=True, tag="publish_each"):
    """Publish events one by one, in this order: a refused one does not stop the others. Each takes its number, also a
    refused one."""

    events: list[EventObject]
    publisher: PublisherId | None = None
    sequence: FirstSequence | None = None


class Subscribe(_Sent, frozen=True, kw_only=True, tag="subscribe"):
    """Make a live subscription. `after` is the last offset that was seen on an earlier connection."""

    filter: Filter
    scheme: Scheme | None = None
    after: SentOffset | None = None


class Attach(_Sent, frozen=True, kw_only=True, tag="attach"):
    """Receive from a durable subscription, after a delivery where one is named."""

    subscription: SubscriptionId
    after: DeliveryId | None = None


class Follow(_Sent, frozen=True, kw_only=True, tag="follow"):
    """Receive from many durable subscriptions as one group: a set, those whose ids begin with a prefix, or a list.
    One of the three is given. `after` is an offset that was received before."""

    set: str | None = None
    prefix: FollowedPrefix | None = None
    subscriptions: FollowedList | None = None
    after: SentOffset | None = None


class Ack(_Sent, frozen=True, kw_only=True, tag="ack"):
    """Be done with everything up to a delivery of one subscription, or up to an offset for all of a group."""

    delivery_id: DeliveryId | None = None
    group: int | None = None
    offset: SentOffset | None = None


class Detach(_Sent, frozen=True, kw_only=True, tag="detach"):
    """Receive nothing more for a subscription or a group."""

    subscription: str | None = None
    group: int | None = None


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
    | Follow
    | Ack
    | Detach
    | Ping
    | ChannelPublish
    | ChannelSubscribe
    | ChannelUnsubscribe
)


class Published(Receipt, frozen=True, kw_only=True, tag_field="op", tag="published"):
    """`repeated` is there where the events are numbered, and `ranges` where they were stored in parts."""

    ref: Reference = None
    ranges: list[tuple[Offset, Offset]] | UnsetType = UNSET
    repeated: Repeated | UnsetType = UNSET


class RefusedEvent(Struct, frozen=True):
    """Why an event of a message was refused. The problem's `field` is a path inside the event."""

    index: Annotated[int, Meta(ge=0, description="The place of the event in the message, from 0")]
    problem: dict[str, Any]


class PublishedEach(Struct, frozen=True, kw_only=True, tag_field="op", tag="published_each"):
    """`ranges` holds the offsets `[first, next)` of the accepted events, in the order sent: normally one range."""

    ref: Reference = None
    ranges: list[tuple[Offset, Offset]]
    refused: list[RefusedEvent] = []
    repeated: Repeated | UnsetType = UNSET


class Subscribed(StreamStart, frozen=True, kw_only=True, tag_field="op", tag="subscribed"):
    ref: Reference = None


class Followed(Struct, frozen=True, kw_only=True, tag_field="op", tag="followed"):
    """`group` is the number of the group on this connection, and `count` how many subscriptions this gateway has of
    it. The other `gateways` of the site have the others."""

    ref: Reference = None
    group: int
    count: int
    gateways: list[str]


class AckDone(Struct, frozen=True, kw_only=True, tag_field="op", tag="acknowledged"):
    ref: Reference = None
    offset: Offset


class Detached(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="op", tag="detached"):
    ref: Reference = None
    subscription: str | UnsetType = UNSET
    group: int | UnsetType = UNSET


class Pong(Struct, frozen=True, kw_only=True, tag_field="op", tag="pong"):
    ref: Reference = None


GroupMembers = dict[str, list[str]]
"""By the number of a group, which members of it are meant."""


class EventFor(Struct, frozen=True, omit_defaults=True):
    """An event with all that it is for: subscriptions that are attached one by one, and members of groups. The id of
    a delivery is SUBSCRIPTION:OFFSET."""

    offset: Offset
    event: EventObject
    to: list[str] = []
    groups: GroupMembers = {}


class Events(Struct, frozen=True, tag_field="op", tag="events"):
    """Events in the order of each subscription's offsets."""

    events: list[EventFor]


class GapFor(Struct, frozen=True, omit_defaults=True, tag_field="op", tag="gap"):
    """Events of `[start, end)` may be missing for these; `dropped` says how many for each, where that is known.
    `reason` is overflow (something was too slow), expired, disconnected or unavailable."""

    start: Offset
    end: Offset
    dropped: int | None
    reason: str
    to: list[str] = []
    groups: GroupMembers = {}


class Ended(Struct, frozen=True, omit_defaults=True, tag_field="op", tag="ended"):
    """A subscription, or all of a group, was removed or has expired."""

    subscription: str | UnsetType = UNSET
    group: int | UnsetType = UNSET


class SubscriptionEvents(Struct, frozen=True, tag_field="op", tag="events"):
    """In version 1 of the protocol: deliveries of one subscription in the order of their offsets."""

    subscription: SubscriptionId
    deliveries: list[DeliveredEvent]


class Gap(Struct, frozen=True, tag_field="op", tag="gap"):
    """A gap of one subscription; see GapFor. Version 1 of the protocol sends it."""

    subscription: SubscriptionId
    start: Offset
    end: Offset
    dropped: int | None
    reason: str


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
    group: int | UnsetType = UNSET
    channel: str | UnsetType = UNSET


ServerMessage = (
    Published
    | PublishedEach
    | Subscribed
    | Followed
    | AckDone
    | Detached
    | Pong
    | Events
    | GapFor
    | Ended
    | ChannelPublished
    | ChannelSubscribed
    | ChannelUnsubscribed
    | ChannelMessages
    | ChannelGapNotice
    | Refusal
)
