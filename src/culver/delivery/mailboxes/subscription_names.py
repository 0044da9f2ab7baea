"""Subscription id to slot and back, without an id in memory for each member of a set.

    "alerts"     a slot, in a dictionary
    "quotes.7"   set quotes, place 7 -> the block that has it -> its number; and back

A member that was replaced gets a slot in the dictionary, which takes precedence over the block.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from culver.registry import Block, split_member

_NUMBER = itemgetter(0)
_FIRST = itemgetter(1)


class _Span(NamedTuple):
    number: int
    first: int
    rows: int
    name: str


class SubscriptionNames:
    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._ids: dict[int, str] = {}  # by slot
        self._spans: list[_Span] = []  # by number
        self._sets: dict[str, list[_Span]] = {}  # by first

    def add(self, subscription: str, slot: int) -> None:
        self._slots[subscription] = slot
        self._ids[slot] = subscription

    def remove(self, slot: int) -> None:
        subscription = self._ids.pop(slot, None)
        if subscription is not None:
            del self._slots[subscription]

    def add_block(self, block: Block) -> None:
        span = _Span(block.number, block.first, block.count, block.name)
        spans = self._sets.setdefault(block.name, [])
        # The registry gives places again where all members of a block have gone, one by one.
        for gone in [other for other in spans if other.first + other.rows > block.first]:
            spans.remove(gone)
            self._spans.remove(gone)
        insort(self._spans, span)
        insort(spans, span, key=_FIRST)

    def remove_block(self, block: Block) -> None:
        span = _Span(block.number, block.first, block.count, block.name)
        spans = self._sets.get(block.name, [])
        if span in spans:
            spans.remove(span)
            self._spans.remove(span)
            if not spans:
                del self._sets[block.name]

    def singles(self) -> Iterable[tuple[str, int]]:
        """The subscriptions that have a slot of their own, apart from a block."""
        return self._slots.items()

    def blocks(self) -> Iterator[tuple[str, int, int, int]]:
        """The set, the first place, the number of rows and the first registration of each block."""
        for span in self._spans:
            yield span.name, span.first, span.rows, span.number

    def has_set(self, name: str) -> bool:
        return name in self._sets

    def slot(self, subscription: str) -> int | None:
        """The slot of a subscription that has one of its own, apart from a block."""
        return self._slots.get(subscription)

    def number(self, subscription: str) -> int | None:
        """The number that a subscription has or had as a member of a block."""
        parts = split_member(subscription)
        spans = self._sets.get(parts[0]) if parts is not None else None
        if parts is None or spans is None:
            return None
        at = bisect_right(spans, parts[1], key=_FIRST) - 1
        if at < 0 or parts[1] >= spans[at].first + spans[at].rows:
            return None
        return spans[at].number + parts[1] - spans[at].first

    def member(self, number: int) -> str | None:
        """The id of the subscription that has or had a number as a member of a block."""
        at = bisect_right(self._spans, number, key=_NUMBER) - 1
        if at < 0:
            return None
        span = self._spans[at]
        place = number - span.number
        return f"{span.name}.{span.first + place}" if place < span.rows else None

    def subscription(self, slot: int, number: int) -> str:
        """The id of the subscription in a slot, which has that number."""
        subscription = self._ids.get(slot)
        if subscription is not None:
            return subscription
        member = self.member(number)
        assert member is not None
        return member
