"""Exchanges advertisements: they are flooded when they change, compared by neighbours, and answered by whoever
applies them.

    lyon   Advertisement 31 -->             bonn takes it, floods it, registers it
    lyon   AdvertisementCheck 31 -->        bonn confirms that 31 is what lyon has now
    lyon   <-- AdvertisementApplied 31      it is in effect at bonn from position 512 on, or refused

A site asks every second while an answer is missing.
"""

from collections.abc import Callable

from culver.errors import InvalidFilter
from culver.overlay.core.advertisement_book import AdvertisementBook
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import NodeOutbox, Register
from culver.overlay.core.overlay_messages import (
    Advertisement,
    AdvertisementApplied,
    AdvertisementCheck,
    AdvertisementDigest,
    AdvertisementRequest,
)


class AdvertisementExchange:
    """`is_gone` tells whether a site is replaced or forgotten, and `has_stream` whether a stream to it has begun:
    nobody hears before that what is in effect for him."""

    def __init__(
        self,
        book: AdvertisementBook,
        states: LinkStates,
        out: NodeOutbox,
        is_gone: Callable[[str], bool],
        has_stream: Callable[[str], bool],
    ) -> None:
        self._book = book
        self._states = states
        self._out = out
        self._is_gone = is_gone
        self._has_stream = has_stream
        # What others heard from an earlier run, if that is more than this run has said.
        self._earlier_version = 0

    def heard_own(self, version: int) -> None:
        """Somebody tells of a version of this site's own advertisement."""
        self._earlier_version = max(self._earlier_version, version)

    def go_beyond(self) -> None:
        """Go on above what an earlier run has said."""
        if self._earlier_version > self._book.version:
            self._out.flood(self._book.go_beyond(self._earlier_version))

    def on_advertisement(self, link: int, peer: str, message: Advertisement, now: float) -> None:
        if message.site == self._book.own:
            self.heard_own(message.version)
            return
        if not self._is_news(message.site, message.version):
            return
        if not self._book.fits(message):
            self._out.send(link, AdvertisementRequest(message.site))
            return
        try:
            self._book.take(message, now)
        except InvalidFilter as exc:
            if message.base:
                self._out.send(link, AdvertisementRequest(message.site))
            else:
                reason = f"an advertisement that cannot be taken: {exc.message}"
                self._out.refuse(peer, reason)
                self._answer(message.site, message.version, 0, reason)
            return
        self._out.flood(message, but=link)
        self.register_next(message.site)

    def on_digest(self, link: int, message: AdvertisementDigest) -> None:
        for site, version in dict(message.versions).items():
            if site == self._book.own:
                self.heard_own(version)
            elif self._is_news(site, version):
                self._out.send(link, AdvertisementRequest(site))

    def on_request(self, link: int, site: str) -> None:
        whole = self._book.whole(site)
        if whole is not None:
            self._out.send(link, whole)

    def on_check(self, link: int, site: str, version: int) -> None:
        self._book.confirm(site, version)
        if self._is_news(site, version):
            self._out.send(link, AdvertisementRequest(site))
        elif site in self._book.sites and not self._book.sites[site].registering:
            self.register_next(site)

    def check(self) -> None:
        """Ask again where an answer is missing, and register what could not be registered before."""
        for site, known in self._book.sites.items():
            if known.heard != known.registered and not known.registering and self._book.may_register(site):
                self.register_next(site)
        for site in self._states.reachable():
            if site not in self._book.sites or not self._book.is_answered(site):
                self._out.route(AdvertisementCheck(self._book.own, site, 0, self._book.version))

    def register_next(self, site: str) -> None:
        """Register a site's newest predicate, or tell the site how that stands."""
        known = self._book.sites[site]
        wanted = self._book.next_registration(site)
        if wanted is not None:
            self._out.append(Register(site, *wanted))
        elif known.refusal:
            self._out.refuse(site, known.refusal)
            self._answer(site, known.heard, 0, known.refusal)
        elif known.registered and not known.registering and self._has_stream(site):
            self._answer(site, known.registered, known.position, "")

    def _answer(self, site: str, version: int, position: int, refusal: str) -> None:
        self._out.route(AdvertisementApplied(self._book.own, site, 0, version, position, refusal))

    def _is_news(self, site: str, version: int) -> bool:
        """Whether to take an advertisement: only of sites with a link state, whose number is limited."""
        return site in self._states.states and not self._is_gone(site) and self._book.is_news(site, version)
