"""What a connection with many subscriptions receives."""

import msgspec

from culver.delivery.deliveries import GapReason

_NAME_BYTES = 16


class MergedEvent(msgspec.Struct, frozen=True):
    """One event, with all that it is for: subscriptions that were added one by one, and members of groups by the
    group's number."""

    offset: int
    payload: bytes
    to: list[str]
    groups: dict[int, list[str]]

    @property
    def deliveries(self) -> int:
        return len(self.to) + sum(map(len, self.groups.values()))

    @property
    def size(self) -> int:
        """About how many bytes the event takes in a message."""
        return len(self.payload) + _NAME_BYTES * self.deliveries


class MergedGap(msgspec.Struct, frozen=True):
    """Events of `[start, end)` may be missing for these; `dropped` says how many for each, where that is known."""

    start: int
    end: int
    dropped: int | None
    reason: GapReason
    to: list[str]
    groups: dict[int, list[str]]


class MergedEnd(msgspec.Struct, frozen=True):
    """A subscription, or all of a group, was removed or has expired. Nothing follows."""

    subscription: str | None = None
    group: int | None = None


MergedItem = MergedEvent | MergedGap | MergedEnd
