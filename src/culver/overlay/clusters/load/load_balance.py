"""Hands load over to other brokers while there is too much of it (section 3.3 and algorithm 2 of the paper).

A broker is overloaded above 0.9 R, where R is measured. From then on it relieves itself until its load is at the mean
use of its cluster, in this order:

    ring publish load      a share of its own publications goes to others of the cluster, which disseminate them as
                           their own, through their rings
    ring content           it takes a share only; senders pass the rest to others of its cluster (`carrier`)
    cluster publish load   a share of the ring content that still comes goes to others of the cluster, which match it
    subscription load      others of the cluster keep their new subscriptions for a while, and random ones of them get
                           all ring content meanwhile

It stops once its load, with all that it handed over, would be below 0.6 R.

Load does not go to and fro, for four reasons. What was handed over is never handed on: the owner asks `ring_helper`
for its own publications and `cluster_helper` for what came through the ring, not for what a helper was given. A
broker is either relieved or a helper: one that relieves itself accepts nothing, and a helper that becomes overloaded
first gives back all that it took and waits until its figures show that. A helper fills up to the mean of the cluster
and never to 0.9 R, so help alone makes nobody overloaded. And shares are worked out from the load without any
hand-over, no more often than the smoothed figures can follow.
"""

import random as chance
from collections.abc import Sequence

from culver.overlay.clusters.load.broker_load import (
    LEAST_ACCEPTANCE,
    TRANSFERABLE,
    BrokerLoad,
    Lease,
    LoadSettings,
)
from culver.overlay.clusters.load.load_messages import (
    MOST_RATE,
    LoadKind,
    OffloadAccept,
    OffloadRequest,
    SendLoadMessage,
)
from culver.overlay.clusters.load.load_rates import MessageRate
from culver.overlay.clusters.load.share_turns import ShareTurns

_RING, _CLUSTER, _SUBSCRIPTION, _CLIENT = LoadKind
# A hand-over that saves fewer messages than this for each publication gains nothing.
_LEAST_SAVING = 0.2
# Leases are asked for anew when the need has changed by so much.
_CHANGED_NEED = 0.1


class LoadBalance(BrokerLoad):
    """One broker's part. Besides what every `BrokerLoad` asks for, its owner

    - counts how long the broker was busy (`worked`),
    - asks who disseminates a publication (`ring_helper`), to whom in another cluster it goes (`carrier`), and who
      matches it in this one (`cluster_helper`).
    """

    def __init__(
        self, own: str, random: chance.Random, now: float, settings: LoadSettings | None = None
    ) -> None:
        super().__init__(own, random, now, settings)
        window = self._settings.window_seconds
        # By kind: all publications that were asked about, those that went to helpers, messages for each of the
        # others.
        self._asked = {kind: MessageRate(window, now) for kind in TRANSFERABLE}
        self._handed = {kind: MessageRate(window, now) for kind in TRANSFERABLE}
        self._cost = dict.fromkeys(TRANSFERABLE, 0.0)
        self._credit = 0.0
        # Publications a second that helpers should have.
        self._wanted = dict.fromkeys(TRANSFERABLE, 0.0)
        self._turns: dict[LoadKind, ShareTurns[str]] = {kind: ShareTurns() for kind in TRANSFERABLE}
        self._carriers: dict[int, ShareTurns[str]] = {}
        self._credits: dict[str, float] = {}

    def worked(self, busy_seconds: float, messages: int) -> None:
        """The broker was busy for so long with so many messages, sent and received."""
        self._capacity.worked(busy_seconds, messages)

    # --- who does what ----------------------------------------------------------------------------------

    def ring_helper(self, now: float) -> str | None:
        """Who disseminates this publication of an own client in this broker's stead; None: it does so itself. Ask
        once for each publication, and not for those of others. The helper disseminates it through its own ring and
        in the common cluster."""
        self._asked[_RING].add(1, now)
        return self._handed_to(_RING, self._next_helper(_RING, now), now)

    def cluster_helper(self, now: float) -> str | None:
        """Who matches this publication and sends it to the brokers of this cluster in this broker's stead; None: it
        does so itself. Ask once for each publication that came through the ring or is disseminated from here."""
        self._asked[_CLUSTER].add(1, now)
        if self._pause.is_on:
            limit = self._settings.overloaded
            able = [site for site in self._known.alive(self._members) if self._known.use_of(site) < limit]
            chosen = self._random.choice(able) if able else None
        else:
            chosen = self._next_helper(_CLUSTER, now)
        return self._handed_to(_CLUSTER, chosen, now)

    def carrier(self, cluster: int, contacts: Sequence[str]) -> str | None:
        """Who takes a publication to a cluster: the first of `contacts` unless it is lost or refuses this one. Then
        others have turns in proportion to the room that they have. None only where there are no contacts; where all
        are lost, the first."""
        known = self._known
        alive = known.alive(contacts)
        if not alive:
            return contacts[0] if contacts else None
        first = alive[0]
        if known.accepts_all(first):
            return first
        self._credits[first] = credit = self._credits.get(first, 0.0) + known.acceptance_of(first)
        if credit >= 1.0:
            self._credits[first] = credit - 1.0
            return first
        level = min(self._settings.overloaded, known.mean_use(alive))
        rooms = {site: known.room_of(site, level) for site in alive[1:] if known.accepts_all(site)}
        if not any(rooms.values()):
            # All are at the mean, or overloaded: the less they have to do, the more they get.
            rooms = {site: 1 / (0.1 + known.use_of(site)) for site in alive}
        return self._carriers.setdefault(cluster, ShareTurns()).next(rooms)

    def accepts_ring_content(self, now: float) -> bool:
        """Whether the broker takes the next publication from a ring. It says False for the share that it refuses. One
        that comes all the same must be disseminated all the same."""
        if self._acceptance >= 1.0:
            return True
        self._credit += self._acceptance
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True

    # --- negotiation ------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[SendLoadMessage]:
        self._measure_costs(now)
        return super().tick(now)

    def _forget(self, now: float) -> None:
        super()._forget(now)
        for site in [site for site in self._credits if site not in self._known]:
            del self._credits[site]

    def _measure_costs(self, now: float) -> None:
        for kind in TRANSFERABLE:
            handed = self._handed[kind].rate(now)
            kept = self._asked[kind].rate(now) - handed
            if kept > 0.1:
                self._cost[kind] = max(0.0, self._sent[kind].rate(now) - handed) / kept

    def _relieve(self, load: float, capacity: float, now: float) -> list[SendLoadMessage]:
        """Work out anew what helpers and senders should take, from the load as it would be without helpers."""
        ring_saving = self._cost[_RING] + self._cost[_CLUSTER] - 1
        cluster_saving = self._cost[_CLUSTER] - 1
        demand = (
            load
            + self._handed[_RING].rate(now) * max(0.0, ring_saving)
            + self._handed[_CLUSTER].rate(now) * max(0.0, cluster_saving)
        )
        content = self._received[_RING].rate(now) * (1 + self._cost[_CLUSTER])
        refused = content * (1 / self._acceptance - 1)
        if demand + refused < self._settings.relieved * capacity:
            self._is_relieved = False
            self._acceptance = 1.0
            return [message for kind in TRANSFERABLE for message in self._request(kind, 0.0, 0.0, now)]
        excess = demand - self._level(now) * capacity
        ring = self._hand_over(_RING, excess, ring_saving, now)
        excess -= ring * max(0.0, ring_saving)
        cluster = 0.0
        if excess > 0 and self._acceptance <= LEAST_ACCEPTANCE:
            # Senders know no better way: what comes all the same can only be handed over after it came.
            cluster = self._hand_over(_CLUSTER, excess, cluster_saving, now)
        self._revise_acceptance(excess, content)
        return [
            *self._request(_RING, ring, 1 + self._cost[_RING] + self._cost[_CLUSTER], now),
            *self._request(_CLUSTER, cluster, 1 + self._cost[_CLUSTER], now),
        ]

    def _hand_over(self, kind: LoadKind, excess: float, saving: float, now: float) -> float:
        if excess <= 0 or saving < _LEAST_SAVING:
            return 0.0
        return min(self._asked[kind].rate(now), excess / saving)

    def _revise_acceptance(self, excess: float, content: float) -> None:
        if content <= 0:
            self._acceptance = min(1.0, 2 * self._acceptance)
            return
        factor = min(1.5, max(0.3, 1 - excess / content))
        self._acceptance = min(1.0, max(LEAST_ACCEPTANCE, self._acceptance * factor))

    def _request(self, kind: LoadKind, wanted: float, cost: float, now: float) -> list[SendLoadMessage]:
        """Ask all that have room for their parts of `wanted` publications a second, unless their leases do."""
        before, self._wanted[kind] = self._wanted[kind], wanted
        leases = self._granted[kind]
        if wanted <= 0:
            self._granted[kind], self._requested[kind] = {}, {}
            return [SendLoadMessage(site, OffloadRequest(kind, 0.0)) for site in sorted(leases)]
        need = wanted * cost
        enough = sum(lease.amount for lease in leases.values()) >= (1 - _CHANGED_NEED) * need
        lasting = all(lease.until - now > self._settings.lease_seconds / 2 for lease in leases.values())
        if leases and enough and lasting and abs(wanted - before) <= _CHANGED_NEED * before:
            return []
        rooms = self._rooms(kind, now)
        total = sum(rooms.values()) + sum(lease.amount for lease in leases.values())
        if total <= 0:
            return []
        self._requested[kind] = asked = {
            site: min(MOST_RATE, need * (rooms.get(site, 0.0) + _amount(leases, site)) / total)
            for site in sorted(rooms.keys() | leases.keys())
        }
        return [SendLoadMessage(site, OffloadRequest(kind, amount)) for site, amount in asked.items()]

    def _rooms(self, kind: LoadKind, now: float) -> dict[str, float]:
        """Messages a second that others of the cluster can still take, of those that can."""
        level = min(self._level(now), self._settings.overloaded)
        known, limit = self._known, self._settings.overloaded
        rooms = {
            site: known.room_of(site, level)
            for site in known.alive(self._members)
            if site in known
            and known.accepts_all(site)
            and (kind is not _RING or known.ring_use_of(site) < limit)
        }
        return {site: room for site, room in rooms.items() if room > 0}

    def _answer(self, site: str, kind: LoadKind, amount: float, now: float) -> list[SendLoadMessage]:
        lease = self._taken.pop((kind, site), None)
        if amount <= 0:
            return []
        figures = self.loads(now)
        granted = 0.0
        able = kind is not _RING or figures.ring_use < self._settings.overloaded
        if not self._is_relieved and now >= self._waits_until and able:
            level = min(self._level(now), self._settings.overloaded)
            held = lease.amount if lease is not None else 0.0
            granted = min(
                amount, max(0.0, held + level * figures.capacity - figures.total - self._coming(now))
            )
        if granted > 0:
            since = lease.since if lease is not None else now
            self._taken[kind, site] = Lease(granted, since, now + 1.5 * self._settings.lease_seconds)
        return [SendLoadMessage(site, OffloadAccept(kind, granted, self._settings.lease_seconds))]

    # --- details ----------------------------------------------------------------------------------------

    def _next_helper(self, kind: LoadKind, now: float) -> str | None:
        leases, wanted = self._granted[kind], self._wanted[kind]
        alive = {site: lease.amount for site, lease in leases.items() if lease.until > now}
        if wanted <= 0 or not alive:
            return None
        total = sum(alive.values())
        cost = 1 + self._cost[_CLUSTER] + (self._cost[_RING] if kind is _RING else 0.0)
        handed = min(wanted, total / cost)
        weights = {site: handed * amount / total for site, amount in alive.items()}
        weights[self.own] = max(0.0, self._asked[kind].rate(now) - handed)
        chosen = self._turns[kind].next(weights)
        return None if chosen == self.own else chosen

    def _handed_to(self, kind: LoadKind, site: str | None, now: float) -> str | None:
        if site is not None:
            self._handed[kind].add(1, now)
            self._sent[kind].add(1, now)
        return site


def _amount(leases: dict[str, Lease], site: str) -> float:
    return leases[site].amount if site in leases else 0.0
