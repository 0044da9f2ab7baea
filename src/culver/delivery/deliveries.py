"""What a subscriber receives: deliveries, and announcements of gaps."""

from dataclasses import dataclass
from typing import Literal

import msgspec

GapReason = Literal["overflow", "expired", "disconnected", "unavailable"]
"""Why events are missing: the mailbox or buffer was full, they were too old, a live subscriber was not connected, or
the log no longer holds them."""


class Delivery(msgspec.Struct, frozen=True):
    """One event for one subscription. A redelivery has the same id."""

    subscription: str
    offset: int
    payload: bytes

    @property
    def id(self) -> str:
        return delivery_id(self.subscription, self.offset)


@dataclass(frozen=True, slots=True)
class DeliveryGap:
    """Events of `[start, end)` may be missing; `dropped` says how many, where that is known."""

    subscription: str
    start: int
    end: int
    dropped: int | None
    reason: GapReason


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a mailbox from some position up to `end`: the `offsets` of deliveries, ascending, and the `gaps`.
    More may wait from `end` on, up to `frontier`, below which everything is matched. `cursor` is the last
    acknowledged offset, or -1."""

    offsets: list[int]
    gaps: list[DeliveryGap]
    end: int
    frontier: int
    cursor: int


def join_gaps(first: DeliveryGap, second: DeliveryGap) -> DeliveryGap:
    """One gap, for the reason of the second, from the beginning of the first to the end of the second."""
    known = first.dropped is not None and second.dropped is not None
    dropped = (first.dropped or 0) + (second.dropped or 0) if known else None
    return DeliveryGap(first.subscription, first.start, second.end, dropped, second.reason)


def delivery_id(subscription: str, offset: int) -> str:
    return f"{subscription}:{offset}"


def parse_delivery_id(text: str) -> tuple[str, int] | None:
    """(subscription, offset), or None where the text is not a delivery id."""
    subscription, _, offset = text.rpartition(":")
    if not subscription or not offset.isascii() or not offset.isdigit() or len(offset) > 19:
        return None
    return subscription, int(offset)
