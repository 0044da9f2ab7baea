"""What users of the client hold in their hands."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from culver.client.event_encoding import decode_timestamp


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where acknowledged events stand in the log: `[first_offset, next_offset)`, in the order sent."""

    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Events of `[start, end)` may be missing; `dropped` says how many, where that is known. `reason` is
    overflow (something was too slow), expired, disconnected or unavailable."""

    subscription: str
    start: int
    end: int
    dropped: int | None
    reason: str


class Mailbox(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a durable subscription's mailbox; None is the site's own limit."""

    max_count: int | None = None
    max_bytes: int | None = None
    max_age_seconds: int | float | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as the site has it. Every matching event from position `since` on is delivered; of a
    durable one, `pending` wait, unacknowledged. A live one (another client's, while it is connected) has no
    mailbox. `scheme` is the name of the site's filter that matches it."""

    id: str
    filter: str
    since: int
    created_at: datetime
    expires_at: datetime | None = None
    durable: bool = True
    mailbox: Mailbox | None = None
    pending: int = 0
    scheme: str = "columnar"


class SubscriptionSet(msgspec.Struct, frozen=True, kw_only=True):
    """What is registered under one name: `count` subscriptions. The next row gets number `next`."""

    set: str
    count: int
    next: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that were added to a set. Row i of them is subscription `id(i)`, which gets every matching event from
    position `since` on (where they took several requests: of the last one)."""

    set: str
    first: int
    count: int
    since: int

    def id(self, row: int) -> str:
        if not 0 <= row < self.count:
            raise IndexError(f"there are {self.count} rows, and no row {row}")
        return f"{self.set}.{self.first + row}"


class FilterTest(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an event matches a filter. `result` None is SQL's unknown; `clause` is the index in
    `clauses` of the first one that matches."""

    matches: bool
    result: bool | None
    clause: int | None
    clauses: tuple[str, ...]


class Delivered(Mapping[str, Any]):
    """An event that a subscription received, and a mapping over the members of its JSON object.

    `event` is that object as it came. Looked up by name, a top-level `{"$timestamp": ...}` comes out as an
    aware datetime instead. A redelivery has the same `delivery_id`.
    """

    __slots__ = ("event", "offset", "subscription")

    def __init__(self, event: dict[str, Any], offset: int, subscription: str) -> None:
        self.event = event
        self.offset = offset
        self.subscription = subscription

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

    __slots__ = ("_acknowledge",)

    def __init__(
        self,
        event: dict[str, Any],
        offset: int,
        subscription: str,
        acknowledge: Callable[[int], Awaitable[None]],
    ) -> None:
        super().__init__(event, offset, subscription)
        self._acknowledge = acknowledge

    async def ack(self) -> None:
        """This message and all before it in the subscription are done with; durable on return. Does
        nothing for a live subscription. Raises ConnectionFailed; doing it again is harmless."""
        await self._acknowledge(self.offset)


class SyncMessage(Delivered):
    """What the synchronous client yields."""

    __slots__ = ("_acknowledge",)

    def __init__(
        self,
        event: dict[str, Any],
        offset: int,
        subscription: str,
        acknowledge: Callable[[int], None],
    ) -> None:
        super().__init__(event, offset, subscription)
        self._acknowledge = acknowledge

    def ack(self) -> None:
        """As `Message.ack`, blocking."""
        self._acknowledge(self.offset)
