"""Messages, and those that a subscription has received and its reader has not yet taken.

    offer ──> [ message | message | gap | message ] ──> take
               oldest                        newest

A durable subscription that is full refuses more: the site keeps it. A live one that is full drops, and puts
one gap in place of what it dropped, until half of the buffer is free again. The order is that of the log, without
doubles.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from culver.client.event_encoding import decode_timestamp
from culver.messages import DeliveredEvent, Gap


class Delivered(Mapping[str, Any]):
    """An event that a subscription received, and a mapping over the members of its JSON object.

    `event` is that object as it came. Looked up by name, a top-level `{"$timestamp": ...}` comes out as an
    aware datetime instead. A redelivery has the same `delivery_id`.
    """

    __slots__ = ("_acknowledge", "event", "offset", "subscription")

    def __init__(
        self, event: dict[str, Any], offset: int, subscription: str, acknowledge: Callable[[int], Any]
    ) -> None:
        self.event = event
        self.offset = offset
        self.subscription = subscription
        self._acknowledge = acknowledge

    @property
    def delivery_id(self) -> str:
        return f"{self.subscription}:{self.offset}"

    def __getitem__(self, name: str) -> Any:
        value = self.event[name]
        return decode_timestamp(value) if isinstance(value, dict) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.event)

    def __len__(self) -> int:
        return len(self.event)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.delivery_id} {self.event!r}>"


class Message(Delivered):
    """What the asynchronous client yields."""

    __slots__ = ()

    async def ack(self) -> None:
        """This message and all before it in the subscription are done with; durable on return. Does
        nothing for a live subscription. Raises ConnectionFailed; doing it again is harmless."""
        await self._acknowledge(self.offset)


class SyncMessage(Delivered):
    """What the synchronous client yields."""

    __slots__ = ()

    def ack(self) -> None:
        """As `Message.ack`, blocking."""
        self._acknowledge(self.offset)


class Buffer:
    """A plain object without locks or waiting: it belongs to one event loop's thread."""

    def __init__(
        self, make: Callable[[DeliveredEvent], Message], *, durable: bool, max_count: int, max_bytes: int
    ) -> None:
        self._make = make
        self._durable = durable
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._items: deque[tuple[Message | Gap, int]] = deque()
        self._bytes = 0
        self._overflowed = False
        self._dropping: Gap | None = None  # the newest item, while it can still grow
        self.last_offset = -1  # of the newest message that was let in or dropped

    @property
    def full(self) -> bool:
        return len(self._items) >= self._max_count or self._bytes >= self._max_bytes

    @property
    def low(self) -> bool:
        return len(self._items) <= self._max_count // 2 and self._bytes <= self._max_bytes // 2

    def offer(self, subscription: str, deliveries: Sequence[DeliveredEvent], size: int) -> bool:
        """Take deliveries in, in their order; those at or below the last offset are repetitions and
        ignored. False once the buffer of a durable subscription is full: the rest was not taken, and nothing
        will be until `resume`, or there would be a hole."""
        share = size // max(1, len(deliveries))
        for delivery in deliveries:
            offset = delivery.offset
            if offset <= self.last_offset:
                continue
            if self._overflowed and self.low and not self._durable:
                self._overflowed, self._dropping = False, None
            if self._overflowed or self.full:
                self._overflowed = True
                if self._durable:
                    return False
                self._drop(subscription, offset)
            else:
                self._append(self._make(delivery), share)
            self.last_offset = offset
        if self._durable and self.full:
            self._overflowed = True
        return not (self._durable and self._overflowed)

    def resume(self) -> None:
        """What follows `last_offset` comes next: a durable subscription takes it again."""
        if self._durable:
            self._overflowed = False

    def announce(self, gap: Gap) -> None:
        """Gaps are always taken, since they must not get lost; those that follow one another in a full
        buffer become one, so that it stays bounded."""
        newest = self._items[-1][0] if self._items else None
        if isinstance(newest, Gap) and (self._overflowed or self.full):
            self._dropping = _merge(newest, gap)
            self._items[-1] = (self._dropping, 0)
        else:
            self._dropping = None
            self._append(gap, 0)

    def take(self) -> Message | Gap | None:
        if not self._items:
            return None
        item, size = self._items.popleft()
        self._bytes -= size
        if item is self._dropping:
            self._dropping = None
        return item

    def _drop(self, subscription: str, offset: int) -> None:
        if self._dropping is None:
            self._dropping = Gap(subscription, offset, offset + 1, 1, "overflow")
            self._append(self._dropping, 0)
        else:
            self._dropping = _merge(self._dropping, Gap(subscription, offset, offset + 1, 1, "overflow"))
            self._items[-1] = (self._dropping, 0)

    def _append(self, item: Message | Gap, size: int) -> None:
        self._items.append((item, size))
        self._bytes += size


def _merge(first: Gap, second: Gap) -> Gap:
    dropped = None if first.dropped is None or second.dropped is None else first.dropped + second.dropped
    return replace(
        second, start=min(first.start, second.start), end=max(first.end, second.end), dropped=dropped
    )
