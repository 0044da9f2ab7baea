"""What the reader of a stream gets: an event with its subscription, or with those of a group that it is for."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from culver.client.event_encoding import decode_timestamp


class ReceivedEvent(Mapping[str, Any]):
    """An event that came, and a mapping over the members of its JSON object.

    `event` is that object as it came. Looked up by name, a top-level `{"$timestamp": ...}` comes out as an
    aware datetime instead.
    """

    __slots__ = ("event", "offset")

    def __init__(self, event: dict[str, Any], offset: int) -> None:
        self.event = event
        self.offset = offset

    def __getitem__(self, name: str) -> Any:
        value = self.event[name]
        return decode_timestamp(value) if isinstance(value, dict) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.event)

    def __len__(self) -> int:
        return len(self.event)


class HistoryEvent(ReceivedEvent):
    """An event of a site's log, and when the site received it."""

    __slots__ = ("received",)

    def __init__(self, event: dict[str, Any], offset: int, received: datetime) -> None:
        super().__init__(event, offset)
        self.received = received


class Delivered(ReceivedEvent):
    """An event that a subscription received. A redelivery has the same `delivery_id`."""

    __slots__ = ("_acknowledge", "subscription")

    def __init__(
        self, event: dict[str, Any], offset: int, subscription: str, acknowledge: Callable[[int], Any]
    ) -> None:
        super().__init__(event, offset)
        self.subscription = subscription
        self._acknowledge = acknowledge

    @property
    def delivery_id(self) -> str:
        return f"{self.subscription}:{self.offset}"

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


class GroupDelivered(ReceivedEvent):
    """An event that came for some `subscriptions` of a group. A redelivery has the same `delivery_ids`.

    `mark` is for the stream: how far its reader is with this message."""

    __slots__ = ("_acknowledge", "mark", "subscriptions")

    def __init__(
        self,
        event: dict[str, Any],
        offset: int,
        subscriptions: tuple[str, ...],
        acknowledge: Callable[[tuple[int, ...]], Any],
        mark: tuple[int, ...],
    ) -> None:
        super().__init__(event, offset)
        self.subscriptions = subscriptions
        self.mark = mark
        self._acknowledge = acknowledge

    @property
    def delivery_ids(self) -> tuple[str, ...]:
        return tuple(f"{each}:{self.offset}" for each in self.subscriptions)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.offset} for {', '.join(self.subscriptions)} {self.event!r}>"


class GroupMessage(GroupDelivered):
    """What the asynchronous client yields for a group."""

    __slots__ = ()

    async def ack(self) -> None:
        """This message and all before it in the stream are done with, for every subscription of the group; durable
        on return. Raises ConnectionFailed; doing it again is harmless."""
        await self._acknowledge(self.mark)


class SyncGroupMessage(GroupDelivered):
    """What the synchronous client yields for a group."""

    __slots__ = ()

    def ack(self) -> None:
        """As `GroupMessage.ack`, blocking."""
        self._acknowledge(self.mark)


class GroupGap(msgspec.Struct, frozen=True):
    """Events of `[start, end)` may be missing for these subscriptions of a group; `dropped` and `reason` are as in
    Gap."""

    subscriptions: tuple[str, ...]
    start: int
    end: int
    dropped: int | None
    reason: str
