"""Subscription id to slot and back, without an id in memory for each member of a set.

    "alerts"     a slot, in a dictionary
    "quotes.7"   set quotes, place 7 -> the block that has it -> its number; and back

A member that was replaced gets a slot in the dictionary, which takes precedence over the block.
"""

from bisect import bisect_right, insort
from operator import itemgetter
from typing import NamedTuple

from culver.registry import Block, split_member

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

    def subscription(self, slot: int, number: int) -> str:
        """The id of the subscription in a slot, which has that number."""
        subscription = self._ids.get(slot)
        if subscription is not None:
            return subscription
        span = self._spans[bisect_right(self._spans, number, key=itemgetter(0)) - 1]
        return f"{span.name}.{span.first + number - span.number}"
