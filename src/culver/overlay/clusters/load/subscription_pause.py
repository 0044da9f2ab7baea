"""Holds subscriptions back where there are too many of them (section 3.3: cluster subscription load).

An overloaded broker tells the others of its cluster to keep their new subscriptions, each for a random time so that
they do not come back at once. When all times are over it tells them to send again, or to wait once more.
"""

import random as chance
from collections.abc import Iterable

from culver.overlay.clusters.load.load_messages import HoldBack, ResumeSubscriptions, SendLoadMessage


class SubscriptionPause:
    """Both sides of it: the broker that has too many, and the one that keeps its own."""

    def __init__(self, random: chance.Random, bounds_seconds: tuple[float, float]) -> None:
        self._random = random
        self._bounds = bounds_seconds
        self._ends: float | None = None
        self._told: list[str] = []
        self._held_back: dict[str, float] = {}

    @property
    def is_on(self) -> bool:
        """Whether others hold their subscriptions back from this broker."""
        return self._ends is not None

    def tick(self, too_many: bool, members: Iterable[str], now: float) -> list[SendLoadMessage]:
        """Begin or end a pause, as `too_many` subscriptions come or not."""
        for site in [site for site, until in self._held_back.items() if until <= now]:
            del self._held_back[site]
        if self._ends is not None and now < self._ends:
            return []
        if too_many:
            waits = {site: self._random.uniform(*self._bounds) for site in members}
            self._told = list(waits)
            self._ends = now + max(waits.values(), default=0.0)
            return [SendLoadMessage(site, HoldBack(seconds)) for site, seconds in waits.items()]
        told, self._told = self._told, []
        self._ends = None
        return [SendLoadMessage(site, ResumeSubscriptions()) for site in told]

    def asked(self, site: str, seconds: float, now: float) -> None:
        """Another broker has too many subscriptions."""
        self._held_back[site] = now + min(seconds, 4 * self._bounds[1])

    def resume(self, site: str) -> None:
        """The other broker takes subscriptions again, or is gone."""
        self._held_back.pop(site, None)

    def holds_back(self, site: str, now: float) -> bool:
        return self._held_back.get(site, now) > now
