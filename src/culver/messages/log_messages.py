"""The messages of reading by offset: the history of the log, and what waits in a mailbox."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from culver.messages.http_messages import EventObject, Filter, GapItem, Offset, SentOffset

_From = Annotated[SentOffset, Meta(description="Where to begin", examples=[0])]
_To = Annotated[
    SentOffset, Meta(description="Where to end, without this offset itself; everything by default")
]
_Events = Annotated[int, Meta(ge=1, le=10_000, description="Most events of the page")]
_Attributes = Annotated[
    list[str], Meta(max_length=500, description="In Arrow: the attributes to send as columns")
]
_Include = Annotated[
    Literal["event", "attributes", "both"],
    Meta(description="In Arrow: send the event as JSON, the attributes, or both"),
]
_Next = Annotated[Offset, Meta(description="Where to read on; `to` at the end")]


class LogQuery(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    time: (
        Annotated[str, Meta(description="RFC 3339, with an offset", examples=["2026-01-05T09:30:00Z"])] | None
    ) = None


class LogRange(Struct, frozen=True, kw_only=True):
    """The log has the events of `[first_offset, next_offset)`. The first one that was received at `time` or later has
    the `offset`; that is `next_offset` if none was."""

    first_offset: Offset
    next_offset: Offset
    offset: Offset | UnsetType = UNSET


class MailboxPageQuery(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    start: _From = field(name="from")
    end: _To | None = field(name="to", default=None)
    limit: _Events = 1_000
    attribute: _Attributes = []
    include: _Include = "event"


class LogPageQuery(MailboxPageQuery, frozen=True, kw_only=True):
    filter: Filter | None = None


class StoredEvent(Struct, frozen=True):
    """An event of the log, and when the site received it."""

    offset: Offset
    received: datetime
    event: EventObject


class StoredEvents(Struct, frozen=True, kw_only=True):
    """Events in the order of the log. A page may have few events or none before the end: read on at `next`. Events of
    the gaps are missing."""

    events: list[StoredEvent]
    next: _Next
    gaps: list[GapItem]


class MailboxQuery(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    start: _From | None = field(name="from", default=None)
    end: _To | None = field(name="to", default=None)
    limit: Annotated[int, Meta(ge=1, le=1_000_000, description="Most deliveries")] = 100_000
    part: Annotated[int, Meta(ge=1, le=1_000_000, description="Deliveries between two bounds")] = 10_000
    wait: Annotated[float, Meta(ge=0, description="Seconds to wait for the first delivery")] = 0.0


class MailboxPart(Struct, frozen=True, kw_only=True):
    """The deliveries of `[from, to)`: how many there are, and offsets that cut them into even parts, from `from` to
    `to`. Everything below `acknowledged` is acknowledged. Nothing more comes below `complete`. Events of the gaps are
    missing."""

    start: Offset = field(name="from")
    end: Offset = field(name="to")
    count: Annotated[int, Meta(ge=0)]
    bounds: list[Offset]
    acknowledged: Offset
    complete: Offset
    gaps: list[GapItem]
