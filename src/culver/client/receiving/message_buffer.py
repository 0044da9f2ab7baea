"""What a stream has received and its reader has not yet taken.

    offer ──> [ message | message | gap | message ] ──> take
               oldest                        newest

A durable subscription that is full refuses more: the site keeps it. A live one that is full drops, and puts
one gap in place of what it dropped, until half of the buffer is free again. The order is that of the log, without
doubles. A group, whose members are durable, refuses as well; `group_progress` knows its order and doubles.

Plain objects without locks or waiting: they belong to one event loop's thread.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace

from culver.client.receiving.received_messages import GroupGap, GroupMessage, Message
from culver.messages import DeliveredEvent, Gap

Item = TypeVar("Item")


class _BoundedItems(Generic[Item]):
    """Bounded in items and in bytes, where the owner looks at `full`."""

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._items) >= self._max_count or self._bytes >= self._max_bytes

    @property
    def low(self) -> bool:
        return len(self._items) <= self._max_count // 2 and self._bytes <= self._max_bytes // 2

    def take(self) -> Item | None:
        if not self._items:
            return None
        item, size = self._items.popleft()
        self._bytes -= size
        return item

    def _append(self, item: Item, size: int) -> None:
        self._items.append((item, size))
        self._bytes += size


class GroupBuffer(_BoundedItems[GroupMessage | GroupGap]):
    def offer(self, message: GroupMessage, size: int) -> None:
        """Take a message in; the owner has seen that the buffer is not full."""
        self._append(message, size)

    def announce(self, gap: GroupGap) -> None:
        """Take a gap in, always; in a full buffer, those that follow one another become one."""
        newest = self._items[-1][0] if self._items else None
        if not self.full or not isinstance(newest, GroupGap):
            self._append(gap, 0)
            return
        names = tuple(dict.fromkeys(newest.subscriptions + gap.subscriptions))
        self._items[-1] = (replace(_merge(newest, gap), subscriptions=names), 0)


class Buffer(_BoundedItems[Message | Gap]):
    """For one subscription."""

    def __init__(
        self, make: Callable[[DeliveredEvent], Message], *, durable: bool, max_count: int, max_bytes: int
    ) -> None:
        super().__init__(max_count=max_count, max_bytes=max_bytes)
        self._make = make
        self._durable = durable
        self._overflowed = False
        self._dropping: Gap | None = None  # the newest item, while it can still grow
        self.last_offset = -1  # of the newest message that was let in or dropped

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
        item = super().take()
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


AnyGap = TypeVar("AnyGap", Gap, GroupGap)


def _merge(first: AnyGap, second: AnyGap) -> AnyGap:
    dropped = None if first.dropped is None or second.dropped is None else first.dropped + second.dropped
    return replace(
        second, start=min(first.start, second.start), end=max(first.end, second.end), dropped=dropped
    )
