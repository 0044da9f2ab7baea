"""Which durable subscriptions a group follows."""

import msgspec
import numpy as np

from culver.jit import Integers
from culver.model import SITE_PREFIX
from culver.registry import split_member


class Selection(msgspec.Struct, frozen=True):
    """The members of a set, the subscriptions whose ids begin with a prefix, or those of a list: one of the three is
    given. The mailboxes of other sites are never part of it."""

    set_name: str | None = None
    prefix: str | None = None
    subscriptions: frozenset[str] | None = None

    def __str__(self) -> str:
        if self.set_name is not None:
            return f"set {self.set_name!r}"
        return f"prefix {self.prefix!r}" if self.prefix is not None else "list of subscriptions"

    def includes(self, subscription: str) -> bool:
        if subscription.startswith(SITE_PREFIX):
            return False
        if self.set_name is not None:
            member = split_member(subscription)
            return member is not None and member[0] == self.set_name
        if self.prefix is not None:
            return subscription.startswith(self.prefix)
        return self.subscriptions is not None and subscription in self.subscriptions

    def concerns(self, set_name: str) -> bool:
        """Whether members of a set may be part of it."""
        if self.set_name is not None:
            return set_name == self.set_name
        start = f"{set_name}."
        if self.prefix is not None:
            return start.startswith(self.prefix) or self.prefix.startswith(start)
        return any(each.startswith(start) for each in self.subscriptions or ())

    def rows(self, set_name: str, first: int, count: int) -> Integers:
        """Which of the rows `0 .. count` of a set's block belong to it, if the block's first place is `first`."""
        start = f"{set_name}."
        if not self.concerns(set_name):
            return np.empty(0, np.int64)
        if self.set_name is not None or (self.prefix is not None and start.startswith(self.prefix)):
            return np.arange(count, dtype=np.int64)
        members = (f"{start}{place}" for place in range(first, first + count))
        return np.flatnonzero(np.fromiter(map(self.includes, members), np.bool_, count)).astype(np.int64)
