"""Turns deliveries into messages. A payload goes into a message unchanged: it was checked when it entered."""

from collections.abc import Iterator, Sequence

import msgspec

from culver.delivery import Delivery, DeliveryGap, MergedEvent, MergedItem
from culver.messages import EventItem, GapItem

MAX_BATCH_DELIVERIES = 256
MAX_BATCH_BYTES = 256 * 1024

Received = Delivery | DeliveryGap

encode = msgspec.json.Encoder().encode


def item_of(received: Received) -> EventItem | GapItem:
    """The item that long polling and Server-Sent Events send."""
    if isinstance(received, Delivery):
        return EventItem(received.id, received.offset, msgspec.Raw(received.payload))
    return GapItem(received.start, received.end, received.dropped, received.reason)


def batches(items: Sequence[Received]) -> Iterator[list[Delivery] | DeliveryGap]:
    """Cut items, in order, into gaps and runs of deliveries that fit one message."""
    run: list[Delivery] = []
    size = 0
    for item in items:
        gap = isinstance(item, DeliveryGap)
        length = 0 if isinstance(item, DeliveryGap) else len(item.payload)
        if run and (gap or len(run) == MAX_BATCH_DELIVERIES or size + length > MAX_BATCH_BYTES):
            yield run
            run, size = [], 0
        if isinstance(item, DeliveryGap):
            yield item
        else:
            run.append(item)
            size += length
    if run:
        yield run


def size_of(items: Sequence[Received | MergedItem]) -> int:
    """About how many bytes the events take in a message."""
    return sum(
        item.size if isinstance(item, MergedEvent) else len(item.payload)
        for item in items
        if isinstance(item, Delivery | MergedEvent)
    )


class ReceiveLimit:
    """Says how many deliveries to ask for at once, so that about `MAX_BATCH_BYTES` come.

    It follows the sizes that were seen: it starts low, because nothing is known about a subscription's events yet,
    and at least halves when one batch was too heavy."""

    def __init__(self, highest: int = MAX_BATCH_DELIVERIES) -> None:
        self._highest = highest
        self.value = min(16, highest)

    def observe(self, items: Sequence[Received | MergedItem]) -> None:
        if not items:
            return
        size = size_of(items)
        fitting = max(1, MAX_BATCH_BYTES * len(items) // max(1, size))
        self.value = max(1, min(self._highest, fitting, self.value * 4))
