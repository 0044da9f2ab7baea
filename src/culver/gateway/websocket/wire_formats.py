"""How deliveries look on a WebSocket. The client chooses by the subprotocol that it offers in the handshake.

culver.v2.json      an event once, with all that it is for; also what a client gets that offers nothing
culver.v2.msgpack   the same, but events come as binary messages in MessagePack, and everything else as JSON:
                    [[offset, [subscription, ...], {group: [subscription, ...]}, event as JSON text], ...]
culver.v1.json      a message for each subscription
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from culver.delivery import MergedEnd, MergedEvent, MergedGap, MergedItem
from culver.errors import InvalidRequest
from culver.gateway.api.delivery_encoding import MAX_BATCH_BYTES, encode
from culver.messages import DeliveredEvent, Ended, EventFor, Events, Gap, GapFor, SubscriptionEvents

_MAX_BATCH_EVENTS = 1_024

_pack = msgspec.msgpack.Encoder().encode


class WireMessage(NamedTuple):
    content: bytes
    is_binary: bool = False


class WireFormat(ABC):
    """Turns what a connection receives into messages, in order."""

    name: ClassVar[str]
    has_groups: ClassVar[bool] = True

    def messages(self, items: Sequence[MergedItem]) -> Iterator[WireMessage]:
        run: list[MergedEvent] = []
        size = 0
        for item in items:
            is_event = isinstance(item, MergedEvent)
            length = item.size if isinstance(item, MergedEvent) else 0
            if run and (not is_event or len(run) == _MAX_BATCH_EVENTS or size + length > MAX_BATCH_BYTES):
                yield from self.events(run)
                run, size = [], 0
            if isinstance(item, MergedEvent):
                run.append(item)
                size += length
            elif isinstance(item, MergedGap):
                yield from self.gap(item)
            else:
                yield WireMessage(encode(_ended(item)))
        if run:
            yield from self.events(run)

    @abstractmethod
    def events(self, events: Sequence[MergedEvent]) -> Iterator[WireMessage]: ...

    def gap(self, gap: MergedGap) -> Iterator[WireMessage]:
        groups = {str(number): names for number, names in gap.groups.items()}
        yield WireMessage(encode(GapFor(gap.start, gap.end, gap.dropped, gap.reason, gap.to, groups)))


class JsonFormat(WireFormat):
    name = "culver.v2.json"

    def events(self, events: Sequence[MergedEvent]) -> Iterator[WireMessage]:
        yield WireMessage(encode(Events([_event_for(each) for each in events])))


class MessagePackFormat(WireFormat):
    name = "culver.v2.msgpack"

    def events(self, events: Sequence[MergedEvent]) -> Iterator[WireMessage]:
        packed = _pack([(each.offset, each.to, each.groups, each.payload) for each in events])
        yield WireMessage(packed, is_binary=True)


class SubscriptionFormat(WireFormat):
    """Version 1. It knows no groups."""

    name = "culver.v1.json"
    has_groups = False

    def events(self, events: Sequence[MergedEvent]) -> Iterator[WireMessage]:
        deliveries: dict[str, list[DeliveredEvent]] = {}
        for each in events:
            payload = msgspec.Raw(each.payload)
            for subscription in each.to:
                delivered = DeliveredEvent(f"{subscription}:{each.offset}", each.offset, payload)
                deliveries.setdefault(subscription, []).append(delivered)
        for subscription, those in deliveries.items():
            yield WireMessage(encode(SubscriptionEvents(subscription, those)))

    def gap(self, gap: MergedGap) -> Iterator[WireMessage]:
        for subscription in gap.to:
            yield WireMessage(encode(Gap(subscription, gap.start, gap.end, gap.dropped, gap.reason)))


WIRE_FORMATS: dict[str, WireFormat] = {
    each.name: each for each in (JsonFormat(), MessagePackFormat(), SubscriptionFormat())
}


def choose_format(offered: Sequence[str]) -> tuple[WireFormat, str | None]:
    """The first known format that a client offers, and the subprotocol to answer with. Raises InvalidRequest where it
    knows none of them."""
    for name in offered:
        if name in WIRE_FORMATS:
            return WIRE_FORMATS[name], name
    if offered:
        raise InvalidRequest(
            f"unknown subprotocol {offered[0][:100]!r}; known: {', '.join(WIRE_FORMATS)}",
            field="sec-websocket-protocol",
        )
    return WIRE_FORMATS[JsonFormat.name], None


def _event_for(event: MergedEvent) -> EventFor:
    groups = {str(number): names for number, names in event.groups.items()}
    return EventFor(event.offset, msgspec.Raw(event.payload), event.to, groups)


def _ended(end: MergedEnd) -> Ended:
    return (
        Ended(subscription=end.subscription) if end.subscription is not None else Ended(group=end.group or 0)
    )
