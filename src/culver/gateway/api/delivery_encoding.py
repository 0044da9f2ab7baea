"""Deliveries as JSON. Payloads are spliced in as they are: they were checked where they entered."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from culver.delivery import Delivery, Gap

MAX_BATCH_DELIVERIES = 256
MAX_BATCH_BYTES = 256 * 1024

Item = Delivery | Gap

encode = msgspec.json.Encoder().encode


def timestamp_text(microseconds: int) -> str:
    """RFC 3339 in UTC."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(
        microsecond=microseconds % 1_000_000
    )
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def delivery_members(delivery: Delivery) -> dict[str, Any]:
    return {
        "delivery_id": delivery.id,
        "offset": delivery.offset,
        "event": msgspec.Raw(delivery.payload),
    }


def gap_members(gap: Gap) -> dict[str, Any]:
    return {"start": gap.start, "end": gap.end, "dropped": gap.dropped, "reason": gap.reason}


def item_members(item: Item) -> dict[str, Any]:
    """An ITEM of long polling and Server-Sent Events."""
    if isinstance(item, Delivery):
        return {"type": "event", **delivery_members(item)}
    return {"type": "gap", **gap_members(item)}


def batches(items: Sequence[Item]) -> Iterator[list[Delivery] | Gap]:
    """Cut items, in order, into gaps and runs of deliveries that fit one message."""
    run: list[Delivery] = []
    size = 0
    for item in items:
        gap = isinstance(item, Gap)
        length = 0 if isinstance(item, Gap) else len(item.payload)
        if run and (gap or len(run) == MAX_BATCH_DELIVERIES or size + length > MAX_BATCH_BYTES):
            yield run
            run, size = [], 0
        if isinstance(item, Gap):
            yield item
        else:
            run.append(item)
            size += length
    if run:
        yield run


class ReceiveLimit:
    """How many deliveries to ask for at once, so that about `MAX_BATCH_BYTES` come.

    Follows the sizes seen: it starts low, because nothing is known about a subscription's events yet, and
    halves at least when one batch was too heavy."""

    def __init__(self, highest: int = MAX_BATCH_DELIVERIES) -> None:
        self._highest = highest
        self.value = min(16, highest)

    def observe(self, items: Sequence[Item]) -> None:
        if not items:
            return
        size = sum(len(item.payload) for item in items if isinstance(item, Delivery))
        fitting = max(1, MAX_BATCH_BYTES * len(items) // max(1, size))
        self.value = max(1, min(self._highest, fitting, self.value * 4))
