"""The messages about publishing events over HTTP."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from culver.messages.http_messages import Count, Offset
from culver.model import PUBLISHER_ID

PublisherId = Annotated[
    str,
    Meta(
        description="The publisher's own id, for publications that it may send again",
        examples=["pump-7"],
        extra_json_schema={"pattern": PUBLISHER_ID},
    ),
]
FirstSequence = Annotated[
    int,
    Meta(
        ge=0,
        le=2**63 - 2,
        description="The number of the first event; those behind it take the following ones",
        examples=[17],
    ),
]
Repeated = Annotated[
    int, Meta(ge=0, description="How many of the events were stored before, under the same numbers")
]


class PublishQuery(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The numbers of the events; without them, what is sent twice is stored twice."""

    publisher: PublisherId | None = None
    sequence: FirstSequence | None = None


class Receipt(Struct, frozen=True):
    """Where acknowledged events stand in the log: `[first_offset, next_offset)`, in the order sent."""

    first_offset: Offset
    next_offset: Offset


class AcceptedEvents(Receipt, frozen=True, kw_only=True):
    """The events are on disk. Those of a batch have all offsets of `[first_offset, next_offset)`. Events of other
    publishers may lie between those of a stream, or of a numbered batch that was stored in parts: then `ranges` are
    its own, in order. `repeated` is there where the events are numbered."""

    accepted: Count
    ranges: (
        Annotated[
            list[Receipt] | None,
            Meta(description="Left out where there is one; null where there are more than 10,000"),
        ]
        | UnsetType
    ) = UNSET
    repeated: Repeated | UnsetType = UNSET
