"""Hands the streams of origins over to other sites of the cluster while there is too much to do (section 3.3).

In a node, ring content comes as streams: a site carries an origin's events to its cluster, and keeps nothing of them.
So what the paper does with single publications happens to whole streams here, and nothing is forwarded twice:

    ring content           an overloaded site refuses streams that it does not carry yet, and origins prefer others
    cluster publish load   it asks the others of its cluster to take streams of its own. Where one accepts as many
                           messages a second as a stream has, the origin is told to send it there
    subscription load      others of the cluster keep their new predicates for a while

A stream that went to a helper is the helper's own from then on. It does not come back by itself, so nothing swings. A
helper fills up to the mean of the cluster or to 0.6 R, whichever is more: streams cannot be cut, and would not fit
below. None of this decides what arrives: origins get their streams carried by whoever they insist on.
"""

import random as chance
from collections.abc import Callable, Iterable

from culver.overlay.clusters.load.broker_load import LEAST_ACCEPTANCE, BrokerLoad, Lease, LoadSettings
from culver.overlay.clusters.load.load_messages import (
    MOST_RATE,
    LoadFigures,
    LoadKind,
    LoadMessage,
    OffloadAccept,
    OffloadRequest,
    SendLoadMessage,
)
from culver.overlay.clusters.load.load_rates import MessageRate

_CLUSTER = LoadKind.CLUSTER
_TOLD_SECONDS = 1.0
# A single busy second without messages, such as a start, counts for little.
_IDLE_CALLS = 10

StreamKey = tuple[str, int]
"""The origin and the cluster of a stream."""


class StreamBalance(BrokerLoad):
    """One site's part. Besides what every `BrokerLoad` asks for, its owner counts what it carries (`carried`), and
    says how long the site was busy (`worked`): before, R is unknown, and nothing is balanced."""

    def __init__(
        self, own: str, random: chance.Random, now: float, settings: LoadSettings | None = None
    ) -> None:
        super().__init__(own, random, now, settings)
        self.handled = 0
        """Messages since the last `worked`."""
        self._is_measured = False
        self._idle_seconds = 0.0
        self._streams: dict[StreamKey, MessageRate] = {}
        # The streams, with their messages a second, that others should take.
        self._planned: dict[str, list[tuple[float, StreamKey]]] = {}
        self._told_at: dict[str, float] = {}
        self.may_carry: Callable[[str, int, str], bool] = lambda origin, cluster, site: True
        """Whether a site is in a cluster of an origin: others cannot take its stream."""

    # --- what the site does -----------------------------------------------------------------------------

    def sent(self, kind: LoadKind, messages: int, now: float) -> None:
        super().sent(kind, messages, now)
        self.handled += messages

    def received_messages(self, kind: LoadKind, messages: int, now: float) -> None:
        super().received_messages(kind, messages, now)
        self.handled += messages

    def carried(self, stream: StreamKey, messages: int, now: float) -> None:
        """So many of the messages that were sent or received belong to a stream that the site carries."""
        if stream not in self._streams:
            self._streams[stream] = MessageRate(self._settings.window_seconds, now)
        self._streams[stream].add(messages, now)

    def dropped(self, stream: StreamKey) -> None:
        """The site carries a stream no longer."""
        self._streams.pop(stream, None)

    def worked(self, busy_seconds: float) -> None:
        """The site was busy for so long since the last call, about a second ago. What it does without any message is
        taken off: an idle site would seem too weak to help another one."""
        if not self.handled:
            change = busy_seconds - self._idle_seconds
            self._idle_seconds += change if change < 0 else change / _IDLE_CALLS
        elif busy_seconds > self._idle_seconds:
            self._capacity.worked(busy_seconds - self._idle_seconds, self.handled)
            self._is_measured = True
        self.handled = 0

    def use(self, now: float) -> tuple[float, float] | None:
        """The load as a share of R, and R in messages a second. None before R is known."""
        if not self._is_measured:
            return None
        figures = self.loads(now)
        return figures.use, figures.capacity

    # --- what others hear, and what is known of them ----------------------------------------------------

    def figures_for(self, site: str, now: float) -> LoadFigures | None:
        """The figures to attach to a message for a site, if R is known and it has not just heard them."""
        if not self._is_measured or now - self._told_at.get(site, float("-inf")) < _TOLD_SECONDS:
            return None
        self._told_at[site] = now
        return self.loads(now)

    def preferred(self, sites: Iterable[str]) -> list[str]:
        """The sites in the order in which they should carry a stream: as they are given where the first is not
        overloaded, or else the one with the least to do first."""
        found = list(sites)
        if found and self._is_able(found[0]):
            return found
        return sorted(found, key=lambda site: (not self._is_able(site), self._known.use_of(site)))

    def _is_able(self, site: str) -> bool:
        return self._known.accepts_all(site) and self._known.use_of(site) < self._settings.overloaded

    @property
    def accepts_streams(self) -> bool:
        """Whether the site takes streams that it does not carry yet. It carries them all the same where an origin
        finds nobody else."""
        return not self._is_relieved

    # --- negotiation ------------------------------------------------------------------------------------

    def received(self, site: str, message: LoadMessage, now: float) -> list[SendLoadMessage]:
        return super().received(site, message, now) if self._is_measured else []

    def tick(self, now: float) -> list[SendLoadMessage]:
        return super().tick(now) if self._is_measured else []

    def hand_over(self) -> list[tuple[StreamKey, str]]:
        """The streams that go to sites that have accepted them. Each is named once."""
        found = []
        for site in sorted(self._granted[_CLUSTER]):
            room = self._granted[_CLUSTER].pop(site).amount
            for rate, stream in self._planned.pop(site, ()):
                if stream in self._streams and rate <= room:
                    room -= rate
                    found.append((stream, site))
        return found

    def _relieve(self, load: float, capacity: float, now: float) -> list[SendLoadMessage]:
        if load < self._settings.relieved * capacity:
            self._is_relieved = False
            self._acceptance = 1.0
            self._planned = {}
            return []
        self._acceptance = LEAST_ACCEPTANCE
        level = self._helping_level(now)
        rooms = {
            site: self._known.room_of(site, level)
            for site in self._known.alive(self._members)
            if site in self._known and self._known.accepts_all(site)
        }
        self._planned = self._plan(load - level * capacity, rooms, now)
        asked = {
            site: min(MOST_RATE, sum(rate for rate, _ in streams)) for site, streams in self._planned.items()
        }
        self._requested[_CLUSTER] = asked
        return [SendLoadMessage(site, OffloadRequest(_CLUSTER, asked[site])) for site in sorted(asked)]

    def _plan(
        self, excess: float, rooms: dict[str, float], now: float
    ) -> dict[str, list[tuple[float, StreamKey]]]:
        """Who should take which streams: the smallest one that is enough, or else the largest one that fits, and so
        on. Each goes to the site with the most room."""
        planned: dict[str, list[tuple[float, StreamKey]]] = {}
        left = sorted((rate.rate(now), stream) for stream, rate in self._streams.items())
        while excess > 0 and rooms:
            site = max(sorted(rooms), key=rooms.__getitem__)
            fitting = [each for each in left if 0 < each[0] <= rooms[site] and self.may_carry(*each[1], site)]
            if not fitting:
                del rooms[site]
                continue
            rate, stream = next((each for each in fitting if each[0] >= excess), fitting[-1])
            left.remove((rate, stream))
            planned.setdefault(site, []).append((rate, stream))
            rooms[site] -= rate
            excess -= rate
        return planned

    def _answer(self, site: str, kind: LoadKind, amount: float, now: float) -> list[SendLoadMessage]:
        figures, granted = self.loads(now), 0.0
        if kind is _CLUSTER and not self._is_relieved and now >= self._waits_until:
            room = self._helping_level(now) * figures.capacity - figures.total - self._coming(now)
            granted = min(amount, max(0.0, room))
        if granted > 0:
            before = self._taken.get((kind, site))
            until = now + 2 * self._settings.window_seconds
            self._taken[kind, site] = Lease(granted + (before.amount if before else 0.0), now, until)
        return [SendLoadMessage(site, OffloadAccept(kind, granted, self._settings.lease_seconds))]

    def _helping_level(self, now: float) -> float:
        return min(max(self._level(now), self._settings.relieved), self._settings.overloaded)

    def _forget(self, now: float) -> None:
        super()._forget(now)
        for site in [site for site, when in self._told_at.items() if now - when >= _TOLD_SECONDS]:
            del self._told_at[site]
