"""All carriages of a site: one for each origin and cluster for which the site is the carrier."""

from collections.abc import Callable

from culver.overlay.clusters.carriage import Carriage, ClusterMatcher
from culver.overlay.clusters.cluster_instructions import ClusterOutbox
from culver.overlay.clusters.cluster_membership import PredicateShelf
from culver.overlay.clusters.cluster_messages import (
    MOST_CLUSTER,
    AdvertisementWanted,
    CarriageGap,
    CarrierRefusal,
    CarrierTerms,
    MemberGap,
)
from culver.overlay.clusters.load.load_messages import LoadKind
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.clusters.window_parts import WindowAssembly, divide_window
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.outgoing_streams import WindowPacket
from culver.overlay.core.overlay_messages import StreamPart
from culver.overlay.site_keys import is_site_key

# An origin repeats its terms every 20 seconds.
_KEPT_SECONDS = 70.0
_ASK_SECONDS = 1.0

_Key = tuple[str, int]


class CarriageTable:
    """`send` takes the packets of an origin that go on to members. `first_window` is above those of earlier runs."""

    def __init__(
        self,
        states: LinkStates,
        matcher: ClusterMatcher,
        shelf: PredicateShelf,
        out: ClusterOutbox,
        first_window: int,
        most_sites: int,
        send: Callable[[str, WindowPacket], None],
        balance: StreamBalance,
    ) -> None:
        self._states = states
        self._matcher = matcher
        self._shelf = shelf
        self._out = out
        self._windows = first_window
        self._most_sites = most_sites
        self._send = send
        self._balance = balance
        self.carriages: dict[_Key, Carriage] = {}
        self._assemblies: dict[_Key, WindowAssembly] = {}
        self._heard_at: dict[_Key, float] = {}
        self._asked_at: dict[str, float] = {}
        self._asked_whom = 0
        # A dict for its order: the carriages that may have news for their origins.
        self._touched: dict[_Key, None] = {}

    def members(self) -> set[str]:
        """The members of all clusters that this site carries something to."""
        return {site for carriage in self.carriages.values() for site in carriage.members()}

    def on_terms(self, origin: str, terms: CarrierTerms, own_cluster: int | None, now: float) -> None:
        """Take the terms of an origin, if this site is in the cluster as it sees it, or as the terms do."""
        own, fault = self._states.own, self._fault(origin, terms)
        if fault is not None:
            self._out.refuse(origin, fault)
            return
        if terms.cluster != own_cluster and all(member.site != own for member in terms.members):
            self._out.say(origin, CarrierRefusal(terms.number, terms.cluster))
            return
        key = origin, terms.cluster
        if key in self.carriages:
            self.carriages[key].take_terms(terms)
        elif not self._balance.accepts_streams and not terms.insists:
            self._out.say(origin, CarrierRefusal(terms.number, terms.cluster, is_overloaded=True))
            return
        else:
            self.carriages[key] = Carriage(origin, terms)
            self._assemblies[key] = WindowAssembly()
        self._heard_at[key] = now
        self._look(key, now)

    def on_part(
        self,
        origin: str,
        window: int,
        part: StreamPart,
        offsets: tuple[int, ...],
        payloads: tuple[bytes, ...],
        now: float,
    ) -> None:
        """Take a packet of an origin. A window that is complete is matched, and goes on to the members."""
        key = origin, part.carries - 1
        carriage = self.carriages.get(key)
        if carriage is None:
            return  # the origin tells its terms again
        self._heard_at[key] = now
        self._touched[key] = None
        if origin != self._states.own:
            self._balance.received_messages(LoadKind.RING, len(offsets), now)
            self._balance.carried(key, len(offsets), now)
        events = self._assemblies[key].take(window, part, offsets, payloads)
        if events is None:
            return
        matched = self._matcher.match([payload for _, payload in events])
        shares = carriage.process(part.previous, part.end, events, matched, self._shelf.versions, now)
        if shares:
            sent = sum(len(share.offsets) for site, share in shares.items() if site != self._states.own)
            self._balance.sent(LoadKind.CLUSTER, sent, now)
            self._balance.carried(key, sent, now)
            self._windows += 1
            for packet in divide_window(self._windows, shares, dict(events)):
                self._send(origin, packet)

    def on_gap(self, origin: str, gap: CarriageGap, now: float) -> None:
        key = origin, gap.cluster
        carriage = self.carriages.get(key)
        if carriage is not None:
            self._touched[key] = None
            for site in carriage.skip(gap.start, gap.end, now):
                self._out.say(site, MemberGap(origin, gap.start, gap.end, gap.reason))

    def heard(self, member: str, origin: str, position: int, wants_more: bool) -> None:
        """A member has said what it has of an origin's events."""
        for key, carriage in self.carriages.items():
            if carriage.origin == origin:
                self._touched[key] = None
                carriage.heard(member, position, wants_more)
                carriage.go_ahead(self._states.states[origin].position)

    def look(self, now: float) -> None:
        """Take note of who can be reached, ask members what they have, and whoever may know for missing
        predicates."""
        for key in self.carriages:
            self._look(key, now)
        for key in [key for key, heard_at in self._heard_at.items() if now - heard_at >= _KEPT_SECONDS]:
            self._drop(key)

    def hand_over(self) -> None:
        """Tell origins of streams that others of the cluster have agreed to carry. This site goes on with them until
        the origins have changed that."""
        for key, helper in self._balance.hand_over():
            number = self.carriages[key].number
            self._out.say(key[0], CarrierRefusal(number, key[1], is_overloaded=True, instead=helper))

    def report(self, now: float) -> None:
        """Report what is new to the origins."""
        touched, self._touched = self._touched, {}
        for key in touched:
            report = self.carriages[key].report(now)
            if report is not None:
                self._out.say(key[0], report)

    def forget(self, origin: str) -> None:
        """Carry nothing more for an origin that is replaced."""
        for key in [key for key in self.carriages if key[0] == origin]:
            self._drop(key)

    def _fault(self, origin: str, terms: CarrierTerms) -> str | None:
        if terms.cluster >= MOST_CLUSTER or len(terms.members) > self._most_sites:
            return "terms that no cluster can have"
        if not all(is_site_key(member.site) for member in terms.members):
            return "terms that no cluster can have"
        if any(member.site == origin for member in terms.members) or terms.start < terms.floor:
            return "terms that contradict themselves"
        return None

    def _drop(self, key: _Key) -> None:
        del self.carriages[key], self._assemblies[key], self._heard_at[key]
        self._touched.pop(key, None)
        self._balance.dropped(key)

    def _look(self, key: _Key, now: float) -> None:
        carriage = self.carriages[key]
        self._touched[key] = None
        carriage.look(self._states.reaches, now)
        for site, news in carriage.news(self._shelf.versions, now):
            self._out.say(site, news)
        for site in carriage.lacking(self._shelf.versions):
            if now - self._asked_at.get(site, float("-inf")) >= _ASK_SECONDS:
                self._asked_at[site] = now
                self._ask(site, carriage)

    def _ask(self, site: str, carriage: Carriage) -> None:
        """Ask a member for its advertisement; if it cannot be reached, the other members in turn."""
        if not self._states.reaches(site):
            others = [each for each in carriage.members() if each not in (site, self._states.own)]
            others = [each for each in others if self._states.reaches(each)]
            if not others:
                return
            self._asked_whom += 1
            self._out.say(others[self._asked_whom % len(others)], AdvertisementWanted(site))
        elif site != self._states.own:
            self._out.say(site, AdvertisementWanted(site))
