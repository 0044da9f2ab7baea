"""The advertisements: this site's own, and those of all others.

    own      version 7: predicate                          change -> version 8, sent as the difference from 7
    lyon     heard 31, in effect 30 from position 512      31 is being registered, or refused with a reason

An advertisement is the encoded predicate of a site (B-DRP, section 2.2): its mailbox at every other site gets what
that predicate matches. Versions only grow. A site that hears of its own version from an earlier run goes on above
it.

After a restart the predicates in effect are known, and their versions are not. A neighbour that was cut off may tell
of an older version then, which must not take the place of a newer one. So a restored predicate stays until its own
site has said which version it has: a site that still waits for an answer asks for it every second.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

import msgspec

from culver.errors import InvalidFilter
from culver.matching import NOTHING, EncodedPredicate, PredicateDelta, apply_delta, delta
from culver.overlay.core.overlay_messages import Advertisement

_VERSIONS_KEPT = 1024


@dataclass(slots=True)
class AdvertisedSite:
    """The state of another site's advertisement. `registered` is the version in effect here, from `position` on;
    0 where there is none. `registering` is on its way into the index. `confirmed` is the newest version that the site
    itself has named."""

    heard: int = 0
    heard_at: float = 0.0
    predicate: EncodedPredicate = NOTHING
    refusal: str = ""
    registered: int = 0
    registered_predicate: EncodedPredicate | None = None
    registering: int = 0
    confirmed: int = 0
    is_restored: bool = False
    position: int = 0
    # The versions of this site's own advertisement that are in effect there, ascending, and from where.
    applied: list[tuple[int, int]] = field(default_factory=list)
    own_refusal: str = ""


class AdvertisementBook:
    """`open_limit` is how many sites may advertise a predicate that lets everything through, and `most_sites` how
    many sites there may be."""

    def __init__(self, own: str, version: int, open_limit: int, most_sites: int) -> None:
        self.own = own
        self.version = version
        self.predicate = NOTHING
        self.sites: dict[str, AdvertisedSite] = {}
        # Versions below may be those of an earlier run.
        self._first_version = version
        self._open_limit = open_limit
        self._most_sites = most_sites

    def site(self, key: str) -> AdvertisedSite:
        return self.sites.setdefault(key, AdvertisedSite())

    def restore(self, key: str, predicate: EncodedPredicate, position: int) -> None:
        """Take note of a predicate that was in effect when the site stopped. Its version is not known any more."""
        site = self.site(key)
        site.predicate = site.registered_predicate = predicate
        site.position, site.is_restored = position, True

    def change(self, predicate: EncodedPredicate) -> Advertisement | None:
        """Advertise this from now on. Returns what to flood; None where nothing has changed."""
        if predicate == self.predicate:
            return None
        base, change = self.version, delta(self.predicate, predicate)
        self.version, self.predicate = self.version + 1, predicate
        for site in self.sites.values():
            site.own_refusal = ""
        if change is None:
            return self.whole(self.own)
        return Advertisement(self.own, self.version, base, "", msgspec.msgpack.encode(change))

    def go_beyond(self, version: int) -> Advertisement:
        """Another site has heard that version from an earlier run: go on above it. Answers to versions up to it say
        nothing about this run's predicate."""
        self.version = self._first_version = max(self.version, version + 1)
        for site in self.sites.values():
            site.applied.clear()
            site.own_refusal = ""
        whole = self.whole(self.own)
        assert whole is not None
        return whole

    def whole(self, key: str) -> Advertisement | None:
        """The whole advertisement of a site, as far as it is known here."""
        if key == self.own:
            return Advertisement(key, self.version, 0, self.predicate.text, b"")
        site = self.sites.get(key)
        if site is None or not site.heard:
            return None
        return Advertisement(key, site.heard, 0, site.predicate.text, b"")

    def versions(self) -> tuple[tuple[str, int], ...]:
        heard = [(key, site.heard) for key, site in self.sites.items() if site.heard]
        return ((self.own, self.version), *heard)

    def is_news(self, key: str, version: int) -> bool:
        site = self.sites.get(key)
        return version > (0 if site is None else site.heard)

    def fits(self, message: Advertisement) -> bool:
        """Whether the difference that a message carries begins at the version at hand."""
        site = self.sites.get(message.site)
        return not message.base or (site is not None and site.heard == message.base)

    def take(self, message: Advertisement, now: float) -> None:
        """Take note of a newer version that fits. Raises InvalidFilter where it is none, and then changes nothing."""
        if message.site not in self.sites and len(self.sites) >= self._most_sites:
            raise InvalidFilter(f"there are {self._most_sites} sites already, which is the limit")
        if message.base:
            try:
                change = msgspec.msgpack.decode(message.delta, type=PredicateDelta)
            except msgspec.DecodeError as exc:
                raise InvalidFilter(f"the difference cannot be read: {exc}") from None
            predicate = apply_delta(self.sites[message.site].predicate, change)
        else:
            predicate = EncodedPredicate.parse(message.predicate)
        site = self.site(message.site)
        site.predicate, site.heard, site.heard_at = predicate, message.version, now

    def next_registration(self, key: str) -> tuple[int, EncodedPredicate] | None:
        """The next thing to register for a site: at most one version at a time, and none that is in effect or
        refused, or may be older than that in effect."""
        site = self.sites[key]
        if site.registering or site.registered == site.heard:
            return None
        if site.registered_predicate == site.predicate:
            site.registered, site.refusal = site.heard, ""
            return None
        if site.heard < site.confirmed or (site.is_restored and not site.confirmed):
            return None
        if not self.may_register(key):
            site.refusal = (
                f"it lets every event through, and {self._open_limit} sites with such a predicate are the limit "
                "(overlay.open_limit)"
            )
            return None
        site.refusal = ""
        site.registering = site.heard
        return site.heard, site.predicate

    def confirm(self, key: str, version: int) -> None:
        """A site has said itself that its advertisement has this version."""
        site = self.sites.get(key)
        if site is not None:
            site.confirmed = max(site.confirmed, version)

    def may_register(self, key: str) -> bool:
        """Whether the limit of open predicates leaves room for that of a site."""
        is_open = self.sites[key].predicate.matches_everything
        return not is_open or self._open_sites(but=key) < self._open_limit

    def registered(self, key: str, version: int, predicate: EncodedPredicate, position: int) -> None:
        """A version is in effect from a position of this site's log on."""
        site = self.sites[key]
        site.registering, site.registered = 0, version
        site.registered_predicate, site.position = predicate, position

    def in_effect_since(self, key: str) -> int:
        """The position of this site's log from which the predicate of another site is in effect."""
        return self.sites[key].position

    def applied(self, key: str, version: int, position: int) -> None:
        """A version of this site's own advertisement is in effect at another site, from a position there on. Ignores
        versions that this run has not had."""
        if not self._first_version <= version <= self.version:
            return
        site = self.site(key)
        site.own_refusal = ""
        if not site.applied or site.applied[-1][0] < version:
            site.applied.append((version, position))
            del site.applied[:-_VERSIONS_KEPT]

    def refused(self, key: str, version: int, reason: str) -> None:
        """Another site refuses a version of this site's own advertisement. Ignores all but the newest."""
        if version == self.version:
            self.site(key).own_refusal = reason

    def is_answered(self, key: str) -> bool:
        """Whether another site has applied or refused this site's own version of now."""
        site = self.sites[key]
        return bool(site.own_refusal) or (bool(site.applied) and site.applied[-1][0] >= self.version)

    def in_effect_from(self, key: str, version: int) -> int | None:
        """The position of another site's log from which a version of this site's own advertisement, or a later one,
        is in effect there. None while it is not."""
        site = self.sites.get(key)
        if site is None:
            return None
        place = bisect_left(site.applied, (version, 0))
        return site.applied[place][1] if place < len(site.applied) else None

    def _open_sites(self, but: str) -> int:
        return sum(
            key != but
            and site.registered_predicate is not None
            and site.registered_predicate.matches_everything
            for key, site in self.sites.items()
        )
