"""The messages about groups over HTTP: many durable subscriptions that are received and acknowledged together."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from culver.messages.http_messages import Count, EventObject, Offset, PageSize, SentOffset, SubscriptionId
from culver.model import GROUP_POSITION

MOST_FOLLOWED = 10_000
"""Subscriptions that a list may name."""

FollowedSet = Annotated[str, Meta(description="All members of a set")]
FollowedPrefix = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        description="All durable subscriptions whose ids begin with it",
        examples=["alerts"],
    ),
]
FollowedList = Annotated[
    list[SubscriptionId],
    Meta(min_length=1, max_length=MOST_FOLLOWED, description="These durable subscriptions"),
]
GroupPosition = Annotated[str, Meta(extra_json_schema={"pattern": GROUP_POSITION})]


class _Request(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class GroupQuery(_Request, frozen=True, kw_only=True):
    """Which durable subscriptions a group has: one of the three is given."""

    set: FollowedSet | None = None
    prefix: FollowedPrefix | None = None
    subscription: FollowedList | None = None


class GroupPollQuery(GroupQuery, frozen=True, kw_only=True):
    limit: Annotated[PageSize, Meta(description="Most items")] = 100
    wait: Annotated[float, Meta(ge=0, description="Seconds to wait for the first item")] = 30.0
    after: (
        Annotated[GroupPosition, Meta(description="Skip up to this position, without acknowledging it")]
        | None
    ) = None


class GroupStart(Struct, frozen=True, kw_only=True):
    """`count` is how many subscriptions of the group this gateway has. The other `gateways` of the site have the
    others."""

    count: Count
    gateways: list[str]


class GroupEventItem(Struct, frozen=True, tag_field="type", tag="event"):
    """An event, with the subscriptions of the group that it is for. The id of a delivery is SUBSCRIPTION:OFFSET."""

    position: GroupPosition
    offset: Offset
    event: EventObject
    to: list[SubscriptionId]


class GroupGapItem(Struct, frozen=True, tag_field="type", tag="gap"):
    """Events of `[start, end)` may be missing for these subscriptions."""

    start: Offset
    end: Offset
    dropped: Annotated[int | None, Meta(description="How many for each, where that is known")]
    reason: Literal["overflow", "expired", "disconnected", "unavailable"]
    to: list[SubscriptionId]


class GroupEndItem(Struct, frozen=True, tag_field="type", tag="ended"):
    """All subscriptions of the group were removed or have expired."""


GroupItem = GroupEventItem | GroupGapItem | GroupEndItem


class GroupItems(GroupStart, frozen=True, kw_only=True):
    """What waited, or came first; empty when the time is up."""

    items: list[GroupItem]


class GroupAcknowledgement(_Request, frozen=True, kw_only=True):
    """Be done, for all subscriptions of a group, with everything up to the `position` of an item, or up to an offset,
    for which the client vouches. `subscriptions` are a list of them, instead of a set or a prefix."""

    set: FollowedSet | None = None
    prefix: FollowedPrefix | None = None
    subscriptions: FollowedList | None = None
    position: GroupPosition | None = None
    offset: Annotated[SentOffset, Meta(examples=[17])] | None = None


def _one_of(*, text: list[str], array: list[str], integer: list[str]) -> dict[str, Any]:
    kinds = {"string": text, "array": array, "integer": integer}
    return {
        "oneOf": [
            {"properties": {name: {"type": kind}}, "required": [name]}
            for kind, names in kinds.items()
            for name in names
        ]
    }


OneGroupAcknowledgement = Annotated[
    GroupAcknowledgement,
    Meta(
        extra_json_schema={
            "allOf": [
                _one_of(text=["set", "prefix"], array=["subscriptions"], integer=[]),
                _one_of(text=["position"], array=[], integer=["offset"]),
            ]
        }
    ),
]
"""With exactly one of the members that say which group it is, and of those that say up to where."""


class GroupAcknowledged(GroupStart, frozen=True, kw_only=True):
    """The acknowledgement is on disk."""

    acknowledged: Offset
