"""What the overlay promises, and every broken promise.

- A subscription that a site says is in effect at another, from a position there on, gets every matching event that is
  acknowledged at or behind that position.
- No site has an event of another twice, and events of one origin are in its order.
- An event reaches only sites that advertised a predicate for it.
- Where a site lost its data directory, what is missing lies in an announced gap. That has no end if the site was
  the origin: nobody knows what it had.
- Where a site runs on an earlier copy of its disk, it gives offsets anew. What is missing of the events that have
  them now lies in an announced gap. Nobody misses what only the lost state had.
- A site that takes a new key keeps its subscriptions and what was promised to them. Its old key is that of an origin
  that lost its directory.
- With `watches_links`, a packet crosses each link once at most, and takes shortest ways.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from culver.matching import EncodedPredicate
from culver.overlay.core.node_instructions import AnnounceGap, Refuse
from culver.overlay.core.overlay_messages import OverlayMessage, Packet
from culver.overlay.core.replaced_sites import FORGOTTEN
from culver.simulation.seeded_run import SeededRun
from culver.simulation.simulated_site import EventPool, OverlayWatcher, SimulatedSite
from culver.simulation.site_disk import LoggedEvent, SiteDisk

_NOTHING = 1 << 62


class OverlayOracle(OverlayWatcher):
    """`matches` says whether a local subscription matches an event."""

    def __init__(
        self, run: SeededRun, pool: EventPool, matches: Callable[[int, int], bool], *, watches_links: bool
    ) -> None:
        self._run = run
        self._pool = pool
        self._matches = matches
        self._watches_links = watches_links
        # What each origin has published: its offsets and the numbers of the events there.
        self._published: dict[str, dict[int, int]] = defaultdict(dict)
        # The same, with what it had before it went back to an earlier copy of its disk.
        self._ever_published: dict[str, set[tuple[int, int]]] = defaultdict(set)
        # What each site has of each origin, in the order of its log: offsets and numbers.
        self._received: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._advertised: dict[str, list[EncodedPredicate]] = defaultdict(list)
        # From where a subscription of a site is in effect at an origin: the earliest position ever told.
        self._promised: dict[tuple[str, int, str], int] = {}
        # From where on sites have given offsets anew. One that loses its directory then may not have told everybody.
        self._given_anew: dict[str, int] = {}
        # The new keys of sites that have told.
        self._renewed: dict[str, str] = {}
        # Sites, and origins whose promise to them nobody knows of: both went back to before it, or the origin went
        # back to an earlier filter that was in effect from the same position on.
        self._unknown: set[tuple[str, str]] = set()
        self._gaps: dict[tuple[str, str], list[AnnounceGap]] = defaultdict(list)
        self._crossings: Counter[tuple[str, int, str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.gap_reasons: Counter[str] = Counter()
        self.has_restored = False
        self.deliveries = 0
        self.packets = 0

    def published(self, site: SimulatedSite, offset: int) -> None:
        number = site.disk.log[offset].number
        self._published[site.key][offset] = number
        self._ever_published[site.key].add((offset, number))

    def appended(self, site: SimulatedSite, event: LoggedEvent) -> None:
        assert event.origin is not None
        received = self._received[site.key, event.origin]
        if received and next(reversed(received)) >= event.offset:
            how = "twice" if event.offset in received else "out of order"
            self._run.violate(f"{site.key} has {event.offset} of {event.origin} {how}")
        received[event.offset] = event.number
        self.deliveries += 1
        if (event.offset, event.number) not in self._ever_published[event.origin]:
            self._run.violate(
                f"{site.key} has another event {event.offset} of {event.origin} than was published"
            )
        if not any(self._pool.encoded_matches(each, event.number) for each in self._advertised[site.key]):
            self._run.violate(f"{site.key} never asked for {event.offset} of {event.origin}")

    def gap(self, site: SimulatedSite, gap: AnnounceGap) -> None:
        self._run.record("gap", site.key, gap.origin, gap.start, gap.end, gap.reason)
        self._gaps[site.key, gap.origin].append(gap)
        self.gap_reasons[gap.reason] += 1

    def refused(self, site: SimulatedSite, refusal: Refuse) -> None:
        self.refusals[refusal.reason] += 1

    def advertised(self, site: SimulatedSite, predicate: EncodedPredicate) -> None:
        if predicate not in self._advertised[site.key]:
            self._advertised[site.key].append(predicate)

    def sent(self, site: SimulatedSite, peer: str, message: OverlayMessage) -> None:
        if not self._watches_links or not isinstance(message, Packet):
            return
        self.packets += 1
        for offset in message.offsets:
            self._crossings[message.origin, offset, site.name, peer] += 1
            if self._crossings[message.origin, offset, site.name, peer] > 1:
                self._run.violate(f"{offset} of {message.origin} crosses {site.name} - {peer} twice")
        node = site.node
        assert node is not None
        distance = node.states.distance(message.origin)
        if distance is not None and message.origin != site.key and message.hops - 1 > distance:
            self._run.violate(
                f"{message.origin} reaches {site.name} by {message.hops - 1} links, not {distance}"
            )

    def crashing(self, site: SimulatedSite) -> None:
        """Take note of what the site has promised in this run."""
        node = site.node
        assert node is not None
        for number, version in site.versions.items():
            if number not in site.disk.subscriptions:
                continue
            for origin in node.book.sites:
                position = node.book.in_effect_from(origin, version)
                if position is not None:
                    promise = site.key, number, origin
                    self._promised[promise] = min(position, self._promised.get(promise, position))

    def restored(self, site: SimulatedSite, lost: SiteDisk) -> None:
        """Forget what the site has lost: events that it published or received, and subscriptions."""
        self.has_restored = True
        for key, mailbox in site.disk.mailboxes.items():
            newer = lost.mailboxes.get(key)
            if newer is not None and newer.since == mailbox.since and newer.predicate != mailbox.predicate:
                # Positions cannot tell the two filters apart.
                self._unknown.add((key, site.key))
        published = self._published[site.key]
        position = len(site.disk.log)
        self._given_anew[site.key] = min(position, self._given_anew.get(site.key, position))
        for offset in [each for each in published if each >= position]:
            del published[offset]
        for of_site, origin in self._received:
            if of_site == site.key:
                self._received[of_site, origin] = {
                    event.offset: event.number for event in site.disk.log if event.origin == origin
                }
        for promise in [each for each in self._promised if each[0] == site.key]:
            if promise[1] not in site.disk.subscriptions:
                del self._promised[promise]
            elif site.disk.promised.get(promise[2], -1) < self._promised[promise]:
                self._unknown.add((site.key, promise[2]))

    def renewed(self, site: SimulatedSite, old_key: str) -> None:
        """Hold the site to what its old key was promised."""
        new_key = self._renewed[old_key] = site.key
        self._run.record("renewed", old_key, new_key)
        self._advertised[new_key] = self._advertised[old_key]
        for promise in [each for each in self._promised if each[0] == old_key]:
            self._promised[new_key, *promise[1:]] = self._promised[promise]
        for of_site, origin in [each for each in self._received if each[0] == old_key]:
            self._received[new_key, origin] = self._received[of_site, origin]
        for of_site, origin in [each for each in self._gaps if each[0] == old_key]:
            self._gaps[new_key, origin] = self._gaps[of_site, origin]
        self._unknown |= {(new_key, origin) for key, origin in self._unknown if key == old_key}

    def unsubscribed(self, site: str, number: int) -> None:
        """A subscription has ended, and nothing is promised to it any more."""
        for promise in [each for each in self._promised if each[:2] == (site, number)]:
            del self._promised[promise]

    def check(self, sites: list[SimulatedSite], *, everything: bool) -> None:
        """Check all promises, after all faults are over and everything has arrived. With `everything`, every
        subscription must be in effect at every other site too."""
        for site in sites:
            self.crashing(site)
        keys = {site.key for site in sites}
        for site in sites:
            for number in site.disk.subscriptions:
                for origin in {*keys, *self._published} - {site.key}:
                    position = self._promised.get((site.key, number, origin))
                    if position is None:
                        if everything and origin in keys:
                            self._run.violate(f"{number} of {site.key} is not in effect at {origin}")
                        continue
                    is_lost = origin not in keys or origin in self._given_anew
                    if is_lost and (site.key, origin) in self._unknown:
                        continue
                    has_told = self._newest_key(origin) in keys
                    given_anew = _NOTHING if has_told else self._given_anew.get(origin, _NOTHING)
                    self._check_stream(site.key, number, origin, position, given_anew, origin not in keys)

    def _newest_key(self, key: str) -> str:
        while key in self._renewed:
            key = self._renewed[key]
        return key

    def _check_stream(
        self, site: str, number: int, origin: str, position: int, given_anew: int, is_gone: bool
    ) -> None:
        received, gaps = self._received[site, origin], self._gaps[site, origin]
        for offset, event in self._published[origin].items():
            if offset < position or not self._matches(number, event):
                continue
            if offset in received and (received[offset] == event or not self.has_restored):
                continue
            if not any(
                gap.start <= offset < gap.end
                or (is_gone and gap.reason == FORGOTTEN and offset >= min(gap.start, given_anew))
                for gap in gaps
            ):
                self._run.violate(f"{site} has no event {offset} of {origin}, which {number} wants")
                return
