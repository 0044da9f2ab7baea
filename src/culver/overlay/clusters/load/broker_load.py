"""The load of a broker: measures its own, remembers that of others, and tells when it is too much (section 3.3).

A broker is overloaded above 0.9 R, where R is measured. From then on it is relieved, until its load is below 0.6 R.
Two classes know how: `load_balance` hands single publications over, and `stream_balance` whole streams.

A broker is either relieved or a helper: one that is relieved accepts nothing, and a helper that becomes overloaded
first ends all that it has accepted and waits until its figures show that.
"""

import random as chance
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from culver.overlay.clusters.load.known_loads import KnownLoads
from culver.overlay.clusters.load.load_messages import (
    MOST_RATE,
    HoldBack,
    LoadFigures,
    LoadKind,
    LoadMessage,
    OffloadAccept,
    OffloadRequest,
    ResumeSubscriptions,
    SendLoadMessage,
    is_sound,
)
from culver.overlay.clusters.load.load_rates import MeasuredCapacity, MessageRate
from culver.overlay.clusters.load.subscription_pause import SubscriptionPause

_RING, _CLUSTER, _SUBSCRIPTION, _CLIENT = LoadKind
TRANSFERABLE = (_RING, _CLUSTER)
# Shares below this are not worth their bookkeeping, and a ring that is refused altogether could not be measured.
LEAST_ACCEPTANCE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """`overloaded` and `relieved` are shares of R. Figures follow the load within a few `window_seconds`.

    With `relieved` at 0.75, brokers of the paper's figure 3 take their load back too early: the standard deviation of
    loads is 12.6 messages a second instead of 7.5 at 0.6, and 7.5 at 0.5 (`culver bench overlay --paper clusters`).
    """

    overloaded: float = 0.9
    relieved: float = 0.6
    window_seconds: float = 5.0
    revision_seconds: float = 10.0
    lease_seconds: float = 30.0
    figures_seconds: float = 30.0
    hold_back_seconds: tuple[float, float] = (5.0, 15.0)
    first_capacity: float = 1000.0
    most_sites: int = 10_000


class Lease(NamedTuple):
    amount: float
    since: float
    until: float


class BrokerLoad(ABC):
    """One broker's part. Not thread-safe. Its owner

    - names the others of the cluster and of the ring (`arrange`), and those that have died (`lost`),
    - counts what the broker sends and receives (`sent`, `received_messages`),
    - attaches `loads` to its traffic and passes on what others attach (`heard`, `received`),
    - calls `tick` about once a second and sends what it returns.

    Times are seconds of one clock that does not go back.
    """

    def __init__(
        self, own: str, random: chance.Random, now: float, settings: LoadSettings | None = None
    ) -> None:
        self.own = own
        self._random = random
        self._settings = settings = settings or LoadSettings()
        self._capacity = MeasuredCapacity(settings.first_capacity)
        self._members: tuple[str, ...] = ()
        self._ring: tuple[str, ...] = ()
        self._known = KnownLoads(settings.first_capacity, settings.figures_seconds, settings.most_sites)
        self._pause = SubscriptionPause(random, settings.hold_back_seconds)
        self._sent = {kind: MessageRate(settings.window_seconds, now) for kind in LoadKind}
        self._received = {kind: MessageRate(settings.window_seconds, now) for kind in LoadKind}
        self._is_relieved = False
        self._waits_until = now
        self._revised = now - settings.revision_seconds
        self._acceptance = 1.0
        # Messages a second: what was asked of others, what they granted, and what was granted to others.
        self._requested: dict[LoadKind, dict[str, float]] = {kind: {} for kind in TRANSFERABLE}
        self._granted: dict[LoadKind, dict[str, Lease]] = {kind: {} for kind in TRANSFERABLE}
        self._taken: dict[tuple[LoadKind, str], Lease] = {}

    # --- what the broker does ---------------------------------------------------------------------------

    def arrange(self, members: Iterable[str], ring: Iterable[str]) -> None:
        """Name the brokers of the own cluster and ring; the own one may be among them. Leases of others end."""
        self._members = tuple(sorted(set(members) - {self.own}))
        self._ring = tuple(site for site in ring if site != self.own)
        for leases in self._granted.values():
            for site in leases.keys() - set(self._members):
                del leases[site]
        for key in [key for key in self._taken if key[1] not in self._members]:
            del self._taken[key]

    def sent(self, kind: LoadKind, messages: int, now: float) -> None:
        """Count messages to other brokers or clients, but not those to helpers: they are counted already."""
        self._sent[kind].add(messages, now)

    def received_messages(self, kind: LoadKind, messages: int, now: float) -> None:
        self._received[kind].add(messages, now)

    def lost(self, site: str) -> None:
        """The site is dead or unreachable. It counts again once it is heard."""
        self._known.lost(site)
        self._pause.resume(site)
        for kind in TRANSFERABLE:
            self._granted[kind].pop(site, None)
            self._taken.pop((kind, site), None)

    # --- figures ----------------------------------------------------------------------------------------

    def loads(self, now: float) -> LoadFigures:
        """The figures to attach to traffic and gossip."""

        def rate(meters: dict[LoadKind, MessageRate], kind: LoadKind) -> float:
            return min(MOST_RATE, meters[kind].rate(now))

        return LoadFigures(
            ring_send=rate(self._sent, _RING),
            ring_receive=rate(self._received, _RING),
            cluster_send=rate(self._sent, _CLUSTER),
            cluster_receive=rate(self._received, _CLUSTER),
            subscription_send=rate(self._sent, _SUBSCRIPTION),
            subscription_receive=rate(self._received, _SUBSCRIPTION),
            client=min(MOST_RATE, rate(self._sent, _CLIENT) + rate(self._received, _CLIENT)),
            capacity=min(MOST_RATE, max(self._capacity.rate, 1e-3)),
            ring_use=self._known.mean_use(self._ring),
            acceptance=self._acceptance,
        )

    def heard(self, site: str, figures: LoadFigures, now: float) -> bool:
        """Take the figures of another broker. Returns False where they make no sense and are ignored."""
        return site != self.own and self._known.heard(site, figures, now)

    @property
    def is_relieved(self) -> bool:
        """Whether the broker was overloaded and still hands load over."""
        return self._is_relieved

    @property
    def helped(self) -> set[str]:
        """The brokers whose load this one has accepted."""
        return {site for _, site in self._taken}

    def is_overloaded(self, now: float) -> bool:
        return self.loads(now).use >= self._settings.overloaded

    def holds_back(self, site: str, now: float) -> bool:
        """Whether new subscriptions must not go to a site of the cluster yet."""
        return self._pause.holds_back(site, now)

    # --- negotiation ------------------------------------------------------------------------------------

    def received(self, site: str, message: LoadMessage, now: float) -> list[SendLoadMessage]:
        """Take the message of another broker. Nonsense, and whatever comes from outside the cluster, is ignored."""
        if site not in self._members or not is_sound(message):
            return []
        match message:
            case OffloadRequest(kind, amount) if kind in TRANSFERABLE:
                return self._answer(site, kind, amount, now)
            case OffloadAccept(kind, amount, seconds) if kind in TRANSFERABLE:
                # Beyond what was asked for, an answer would only draw load to its sender.
                amount = min(amount, self._requested[kind].get(site, 0.0))
                if amount > 0:
                    until = now + min(seconds, self._settings.lease_seconds)
                    self._granted[kind][site] = Lease(amount, now, until)
                else:
                    self._granted[kind].pop(site, None)
            case HoldBack(seconds):
                self._pause.asked(site, seconds, now)
            case ResumeSubscriptions():
                self._pause.resume(site)
        return []

    def tick(self, now: float) -> list[SendLoadMessage]:
        """Revise what is handed over. Call it about once a second."""
        self._forget(now)
        load, capacity = self.loads(now).total, self._capacity.rate
        limit = self._settings.overloaded * capacity
        too_many = load >= limit > load - self._received[_SUBSCRIPTION].rate(now)
        instructions = self._pause.tick(too_many, self._known.alive(self._members), now)
        if load >= limit and not self._is_relieved:
            if self._taken:
                instructions += self._give_back(now)
            elif now >= self._waits_until:
                self._is_relieved = True
        if self._is_relieved and now - self._revised >= self._settings.revision_seconds:
            self._revised = now
            instructions += self._relieve(load, capacity, now)
        return instructions

    @abstractmethod
    def _relieve(self, load: float, capacity: float, now: float) -> list[SendLoadMessage]:
        """Work out anew what others should take; or stop, where that is no longer needed."""

    @abstractmethod
    def _answer(self, site: str, kind: LoadKind, amount: float, now: float) -> list[SendLoadMessage]:
        """Answer a request for so many messages a second."""

    def _coming(self, now: float) -> float:
        """The load that was accepted lately and does not show in the figures yet."""
        window = self._settings.window_seconds
        return sum(
            each.amount * max(0.0, 1 - (now - each.since) / (2 * window)) for each in self._taken.values()
        )

    def _forget(self, now: float) -> None:
        self._known.forget(now)
        for leases in self._granted.values():
            for site in [site for site, lease in leases.items() if lease.until <= now]:
                del leases[site]
        for key in [key for key, lease in self._taken.items() if lease.until <= now]:
            del self._taken[key]

    def _give_back(self, now: float) -> list[SendLoadMessage]:
        returned = sorted(self._taken)
        self._taken = {}
        self._waits_until = now + 3 * self._settings.window_seconds
        return [SendLoadMessage(site, OffloadAccept(kind, 0.0, 0.0)) for kind, site in returned]

    def _level(self, now: float) -> float:
        """The mean use of the cluster, as far as it is known."""
        return self._known.mean_use(self._members, self.loads(now).use)
