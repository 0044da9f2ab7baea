"""Whom a site dials that is linked with nobody: members whose addresses it has heard of.

    no link for 5 s                     dials three members, and three others every 10 s while none answers
    a link of its own choice for 10 s   dials these members no longer

A link of its own choice is one with a configured address, or one that another site has dialled. The graph thus stays
the one that operators have drawn, except where a site would be cut off by the death of its only neighbours.
"""

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

_LONELY_SECONDS = 5.0
_AGAIN_SECONDS = 10.0
_STEADY_SECONDS = 10.0
_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class DialChanges:
    dial: tuple[str, ...] = ()
    hang_up: tuple[str, ...] = ()


class LonelyDials:
    """`dialled` are the addresses that are dialled for want of better ones."""

    def __init__(self, random: Random) -> None:
        self.dialled: tuple[str, ...] = ()
        self._random = random
        self._lonely_since: float | None = None
        self._steady_since: float | None = None
        self._dialled_at = float("-inf")

    def look(
        self, chosen_links: int, rescue_links: int, addresses: Collection[str], now: float
    ) -> DialChanges:
        """Say what to change. `chosen_links` are open links of the site's own choice, `rescue_links` those to
        addresses that are `dialled`, and `addresses` those of all other members."""
        if not chosen_links:
            self._steady_since = None
        elif self._steady_since is None:
            self._steady_since = now
        if chosen_links or rescue_links:
            self._lonely_since = None
            if self._steady_since is not None and now - self._steady_since >= _STEADY_SECONDS:
                return self._change(())
            return DialChanges()
        self._lonely_since = now if self._lonely_since is None else self._lonely_since
        waited = now - self._lonely_since >= _LONELY_SECONDS and now - self._dialled_at >= _AGAIN_SECONDS
        if not waited or not addresses:
            return DialChanges()
        self._dialled_at = now
        ordered = sorted(addresses)
        return self._change(tuple(self._random.sample(ordered, min(_AT_ONCE, len(ordered)))))

    def _change(self, wanted: tuple[str, ...]) -> DialChanges:
        before, self.dialled = self.dialled, wanted
        return DialChanges(
            tuple(each for each in wanted if each not in before),
            tuple(each for each in before if each not in wanted),
        )
