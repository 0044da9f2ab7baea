"""Which cluster this site is in, for the events of each origin, and the predicates of the others there.

    known sites        all that were ever heard of, dead or alive, and not forgotten
    layouts            worked out from them, once they have not changed for a second: one for each number of clusters
                       that some origin has (`origin_clustering`)
    mates              the sites that share a cluster with this one in any layout: they know this site's predicate,
                       and it knows theirs

Sites may disagree about a layout for a while. That costs time, and nothing else: claims decide who gets what.
"""

from collections.abc import Collection, Iterable

import msgspec

from culver.errors import InvalidFilter
from culver.matching import NOTHING, SitePredicate, read_predicate
from culver.overlay.clusters.carriage import ClusterMatcher
from culver.overlay.clusters.cluster_instructions import ClusterOutbox, StoreAdvertisement
from culver.overlay.clusters.cluster_messages import AdvertisementStored, Claim, MemberAdvertisement
from culver.overlay.clusters.layout.cluster_count import usual_count
from culver.overlay.clusters.layout.cluster_layout import ClusterLayout
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.clusters.member_streams import MemberClaims
from culver.overlay.core.link_states import LinkStates

_SETTLE_SECONDS = 1.0
_REPEAT_SECONDS = 1.0
# Mates that have not stored an advertisement after so long are not waited for.
_PATIENCE_SECONDS = 2.0
_KEPT_SECONDS = 10.0
_NEVER = float("-inf")


class ClusterMembership:
    """Reads from the link states how many clusters each origin has."""

    def __init__(
        self,
        states: LinkStates,
        claims: MemberClaims,
        out: ClusterOutbox,
        balance: StreamBalance,
    ) -> None:
        self._states = states
        self._claims = claims
        self._out = out
        self._balance = balance
        self._known: frozenset[str] = frozenset()
        self._known_since = _NEVER
        self._brokers: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._layouts: dict[int, ClusterLayout] = {}
        self.mates: tuple[str, ...] = ()
        """The other sites that share a cluster with this one, for the events of any origin."""
        # What each mate has stored of this site's advertisement, and when it was last told.
        self._stored: dict[str, int] = {}
        self._told: dict[str, tuple[int, float]] = {}
        self._changed_at = _NEVER
        self._claimed: dict[str, tuple[Claim, float]] = {}
        # Above those of earlier runs, as versions are.
        self._claim_numbers = claims.version

    def look(self, known: frozenset[str], now: float) -> bool:
        """Work out the layouts anew if other sites are known, and have been for a while, or an origin has another
        number of clusters. Returns whether anything is new."""
        if known != self._known:
            self._known, self._known_since = known, now
        if now - self._known_since < _SETTLE_SECONDS:
            return False
        counts = {site: self._count(site, known) for site in known if site in self._states.states}
        if known == self._brokers and counts == self._counts:
            return False
        kept = self._layouts if known == self._brokers else {}
        self._layouts = {
            count: kept.get(count) or ClusterLayout(known, count) for count in sorted({*counts.values()})
        }
        self._brokers, self._counts, self._changed_at = known, counts, now
        own = self._states.own
        mates = {site for each in self._layouts.values() for site in each.mates(own)}
        self.mates = tuple(sorted(mates))
        return True

    def layout_of(self, origin: str) -> ClusterLayout | None:
        """The clusters for the events of an origin; None while they are not known."""
        if origin not in self._states.states:
            return None
        return self._layouts.get(self._counts.get(origin) or self._count(origin, self._brokers))

    def _count(self, origin: str, known: Collection[str]) -> int:
        told = self._states.states[origin].clusters
        return min(told, len(known)) if told else usual_count(len(known))

    def cluster_at(self, origin: str) -> int | None:
        """This site's own cluster, for the events of an origin; None while that is not known."""
        layout = self.layout_of(origin)
        return None if layout is None else layout.cluster_of(self._states.own)

    def may_carry(self, origin: str, cluster: int, site: str) -> bool:
        """Whether a site is in a cluster of an origin."""
        layout = self.layout_of(origin)
        return layout is not None and site in layout and layout.cluster_of(site) == cluster

    def candidates(self, cluster: int, members: Collection[str]) -> list[str]:
        """The sites that may carry a cluster for this one: those of the layout, its own ring first, and then whoever
        has claimed to be a member."""
        found: list[str] = []
        layout = self.layout_of(self._states.own)
        if layout is not None and cluster < layout.clusters:
            found += layout.contacts(self._states.own, cluster)
        return list(dict.fromkeys([*found, *sorted(members)]))

    # --- this site's own predicate --------------------------------------------------------------------

    def changed(self, now: float) -> None:
        """This site advertises another predicate."""
        self._changed_at = now
        self.share(now)

    def share(self, now: float) -> None:
        """Give the own predicate to all mates that can be reached, again every second until they have stored it. One
        that gets too many of them hears it later, or asks for it where it carries something."""
        version = self._claims.version
        for site in self.mates:
            told, told_at = self._told.get(site, (-1, _NEVER))
            if self._stored.get(site) == version or not self._states.reaches(site):
                continue
            if self._balance.holds_back(site, now):
                continue
            if told != version or now - told_at >= _REPEAT_SECONDS:
                self._told[site] = version, now
                self._out.say(site, self.own_advertisement())

    def own_advertisement(self) -> MemberAdvertisement:
        return MemberAdvertisement(self._states.own, self._claims.version, self._claims.predicate.text)

    def stored(self, site: str, version: int) -> None:
        """A mate has a version on disk."""
        self._stored[site] = version

    def claim(self, origins: Iterable[str], now: float) -> None:
        """Claim at every origin that has not answered, again every second. Waits until the mates know the predicate,
        as far as they answer."""
        if not self._layouts or not self._claims.is_advertised or not self._is_shared(now):
            return
        active = self._claims.predicate != NOTHING
        for origin in origins:
            cluster = self.cluster_at(origin)
            if cluster is None:
                continue
            said, said_at = self._claimed.get(origin, (None, _NEVER))
            claim = Claim(self._claims.version, cluster, active, said.number if said is not None else 0)
            if claim != said:
                self._claim_numbers += 1
                claim = msgspec.structs.replace(claim, number=self._claim_numbers)
            elif self._claims.is_answered(origin, claim) or now - said_at < _REPEAT_SECONDS:
                continue
            self._claimed[origin] = claim, now
            self._out.say(origin, claim)

    def answered(self, origin: str, number: int) -> None:
        """An origin has answered a claim. One that this run has not made comes from an earlier run, whose clock was
        ahead: go on above it."""
        self._claim_numbers = max(number, self._claim_numbers)
        said, _ = self._claimed.get(origin, (None, _NEVER))
        if said is not None and said.number < number:
            del self._claimed[origin]

    def _is_shared(self, now: float) -> bool:
        if now - self._changed_at >= _PATIENCE_SECONDS:
            return True
        waiting = (
            site
            for site in self.mates
            if self._states.reaches(site) and not self._balance.holds_back(site, now)
        )
        return all(self._stored.get(site) == self._claims.version for site in waiting)

    def forget(self, site: str) -> None:
        self._stored.pop(site, None)
        self._told.pop(site, None)
        self._claimed.pop(site, None)


class PredicateShelf:
    """The predicates of this site and of others in its clusters, at hand for matching. `versions` says which."""

    def __init__(self, own: str, matcher: ClusterMatcher, out: ClusterOutbox) -> None:
        self._own = own
        self._matcher = matcher
        self._out = out
        self.versions: dict[str, int] = {}
        self._predicates: dict[str, SitePredicate] = {}
        self._stored: dict[str, int] = {}
        self._wanted_at: dict[str, float] = {}

    def __contains__(self, site: str) -> bool:
        return site in self.versions

    def sites(self) -> list[str]:
        """The other sites whose predicates are known."""
        return [site for site in self.versions if site != self._own]

    def restore(self, site: str, version: int, predicate: SitePredicate) -> None:
        self._put(site, version, predicate)
        self._stored[site] = version

    def put_own(self, version: int, predicate: SitePredicate) -> None:
        self._put(self._own, version, predicate)

    def take(self, source: str, message: MemberAdvertisement) -> None:
        """Take a predicate, and have it stored if it is new. The site itself hears when it is."""
        site = message.site
        if message.version > self.versions.get(site, -1):
            try:
                predicate = read_predicate(message.predicate)
            except InvalidFilter as exc:
                self._out.refuse(source, f"an advertisement that cannot be taken: {exc.message}")
                return
            self._put(site, message.version, predicate)
            self._out.append(StoreAdvertisement(site, message.version, predicate))
        elif source == site and self._stored.get(site) == message.version:
            self._out.say(site, AdvertisementStored(message.version))

    def stored(self, site: str, version: int) -> None:
        if self.versions.get(site) == version:
            self._stored[site] = version
            self._out.say(site, AdvertisementStored(version))

    def copy_for(self, site: str) -> MemberAdvertisement | None:
        """The advertisement of a site, to pass it on."""
        if site not in self.versions:
            return None
        return MemberAdvertisement(site, self.versions[site], self._predicates[site].text)

    def predicate_of(self, site: str) -> tuple[int, SitePredicate] | None:
        """The version and the predicate of a site, where they are known."""
        return (self.versions[site], self._predicates[site]) if site in self.versions else None

    def prune(self, wanted: Collection[str], now: float) -> None:
        """Drop the predicates of sites that have not been wanted for a while."""
        for site in self.sites():
            if site in wanted:
                self._wanted_at[site] = now
            elif now - self._wanted_at.setdefault(site, now) >= _KEPT_SECONDS:
                self.drop(site)

    def drop(self, site: str) -> None:
        if self.versions.pop(site, None) is not None:
            del self._predicates[site]
            self._stored.pop(site, None)
            self._wanted_at.pop(site, None)
            self._matcher.change(site, None)
            self._out.append(StoreAdvertisement(site, 0, None))

    def _put(self, site: str, version: int, predicate: SitePredicate) -> None:
        self.versions[site], self._predicates[site] = version, predicate
        self._matcher.change(site, predicate)
