"""One site of the overlay: what it knows of the others, and what it does about it. No input or output.

    links      opened, closed, received                 -->  Send, CloseLink
    catalogue  local predicates change; registered      -->  Register, Unregister
    mailboxes  offered, for every other site            -->  MoveCursor, Rewind
    log        appended                                 -->  Append, AnnounceGap

A remote site is a durable subscriber. Its advertised predicate is a registration in the ordinary index, its mailbox
holds what it has not acknowledged, and this log is the only store: sites in between forward packets and keep nothing.
An event that came from elsewhere is never sent on but in transit, so there are no loops to break.

Forwarding is B-DRP's dynamic receiver partitioning (section 2.2): a packet carries the set of its destinations, and
each site divides the set by the next hop.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from culver.errors import InvalidFilter
from culver.matching import EncodedPredicate
from culver.overlay.core.advertisement_book import AdvertisementBook
from culver.overlay.core.incoming_streams import AnswerNeeded, IncomingStreams, StreamPiece
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import (
    AnnounceGap,
    Append,
    Instruction,
    MoveCursor,
    Refuse,
    Register,
    Rewind,
    Send,
    Unregister,
)
from culver.overlay.core.outgoing_streams import Offered, OutgoingStreams, WindowPacket
from culver.overlay.core.overlay_messages import (
    MOST_HOPS,
    Advertisement,
    AdvertisementApplied,
    AdvertisementCheck,
    AdvertisementDigest,
    AdvertisementRequest,
    LinkState,
    OverlayMessage,
    Packet,
    Routed,
    SiteNumbers,
    StreamAcknowledgement,
    StreamPart,
    StreamStart,
)
from culver.overlay.core.site_numbers import NumberTable, UnknownNumber
from culver.overlay.site_key import is_site_key, name_of

_REFRESH_SECONDS = 30.0
_CHECK_SECONDS = 1.0
FORGOTTEN = "the site has lost its data directory"
"""The reason of a gap whose end is the last position that was known: behind it, nobody knows what there was."""

_LOST_AFTER_ACKNOWLEDGEMENT = "acknowledged before, and missing since"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`broadcast_threshold` is the share of all other sites beyond which a packet goes to every site (section
    2.3)."""

    broadcast_threshold: float = 1.0
    open_limit: int = 16
    most_sites: int = 1024


@dataclass(slots=True)
class _Neighbour:
    site: str
    cost: int
    numbers: NumberTable


class OverlayNode:
    """`boot` is a number that no earlier run of the site has reached, such as the time in microseconds. `positions`
    are those that the log has reached in other sites' logs. Every method returns instructions, to be carried out in
    their order; `position`, the end of the log, is kept up to date by the owner."""

    def __init__(
        self, own: str, boot: int, position: int, positions: Mapping[str, int], settings: NodeSettings
    ) -> None:
        self.own = own
        self.position = position
        self.states = LinkStates(own)
        self.book = AdvertisementBook(own, boot, settings.open_limit, settings.most_sites)
        self.outgoing = OutgoingStreams()
        self.incoming = IncomingStreams(positions)
        self._settings = settings
        self._boot = boot
        self._sequence = boot
        self._links: dict[int, _Neighbour] = {}
        self._refreshed_at = float("-inf")
        self._checked_at = float("-inf")
        # From which position on the earlier data directory of a site had not acknowledged, until it hears of that.
        self._owed: dict[str, int] = {}
        self._known_ends: dict[str, int] = {}
        # Sites that lost their data directories, and what they are now.
        self._replaced: dict[str, str] = {}
        self._out: list[Instruction] = []
        self._originate()

    # --- links ----------------------------------------------------------------------------------------

    def link_opened(self, link: int, peer: str, cost: int, now: float) -> list[Instruction]:
        self._links[link] = _Neighbour(peer, cost, NumberTable())
        for state in list(self.states.states.values()):
            self._send(link, state)
        self._send(link, AdvertisementDigest(self.book.versions()))
        self._links_changed(now)
        return self._take()

    def link_closed(self, link: int, now: float) -> list[Instruction]:
        if self._links.pop(link, None) is not None:
            self._links_changed(now)
        return self._take()

    def received(self, link: int, message: OverlayMessage, now: float) -> list[Instruction]:
        """Take a message of a neighbour. What is wrong with it is refused, and changes nothing."""
        if link not in self._links:
            return []
        match message:
            case Packet():
                self._on_packet(link, message, now)
            case LinkState():
                self._on_link_state(link, message, now)
            case Advertisement():
                self._on_advertisement(link, message, now)
            case AdvertisementDigest():
                self._on_digest(link, message)
            case AdvertisementRequest():
                whole = self.book.whole(message.site)
                if whole is not None:
                    self._send(link, whole)
            case SiteNumbers():
                if not self._links[link].numbers.learn(message):
                    self._refuse(self._links[link].site, "site numbers out of turn")
            case _:
                self._on_routed(link, message, now)
        return self._take()

    # --- predicates -----------------------------------------------------------------------------------

    def restore(self, site: str, predicate: EncodedPredicate, position: int, acknowledged: int) -> None:
        """Take note, before anything else, of a site that has a mailbox from an earlier run: its predicate is in
        effect from `position` on, and it has everything below `acknowledged`."""
        self.book.restore(site, predicate, position)
        self.outgoing.open(site, acknowledged, self._boot)

    def advertise(self, predicate: EncodedPredicate) -> list[Instruction]:
        """This site's own subscribers want what the predicate matches, from now on."""
        message = self.book.change(predicate)
        if message is not None:
            self._flood(message)
        return self._take()

    def registered(
        self, site: str, version: int, predicate: EncodedPredicate, position: int, acknowledged: int
    ) -> list[Instruction]:
        """A Register is carried out: the predicate is in effect from `position` on. The site has acknowledged
        everything below `acknowledged` of its mailbox, which is `position` for a new one."""
        if site not in self.book.sites:
            return []
        self.book.registered(site, version, predicate, position)
        if site not in self.outgoing:
            self.outgoing.open(site, acknowledged, self._boot)
            self.outgoing.reach(site, self.states.reaches(site))
            self._start_stream(site, acknowledged)
        self._register_next(site)
        return self._take()

    def registration_failed(self, site: str) -> list[Instruction]:
        """A Register could not be carried out now; the next `tick` asks again."""
        if site in self.book.sites:
            self.book.sites[site].registering = 0
        return []

    # --- mailboxes ------------------------------------------------------------------------------------

    def offered(self, site: str, generation: int, items: Iterable[Offered]) -> None:
        """Take what a site's mailbox has next. `flush` sends it: offers of one moment share packets."""
        self.outgoing.offer(site, generation, items)

    def flush(self, now: float) -> list[Instruction]:
        """Send what is offered, as far as it may be under way."""
        packets, gaps = self.outgoing.flush(now)
        for packet in packets:
            self._send_packet(packet)
        for site, gap in gaps:
            self._route(StreamStart(self.own, site, 0, gap.start, gap.end, gap.reason))
        return self._take()

    # --- log ------------------------------------------------------------------------------------------

    def appended(self, origin: str, end: int) -> list[Instruction]:
        """An Append is carried out: its events are on disk."""
        piece = self.incoming.appended(origin, end)
        if piece is not None:
            self._out.append(Append(origin, piece.end, piece.events))
        self._acknowledge(origin, self.incoming.durable(origin), wants_more=False)
        return self._take()

    def append_failed(self, origin: str) -> list[Instruction]:
        """An Append could not be carried out. The stream comes again, because nothing is acknowledged."""
        self.incoming.failed(origin)
        return []

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Instruction]:
        """Do what time asks for. Call it about ten times a second."""
        for site, position in self.outgoing.tick(now):
            self._out.append(Rewind(site, position - 1))
        if now - self._refreshed_at >= _REFRESH_SECONDS:
            self._refreshed_at = now
            self._originate()
            for link in self._links:
                self._send(link, AdvertisementDigest(self.book.versions()))
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            self._check_advertisements()
        return self._take()

    # --- routes ---------------------------------------------------------------------------------------

    def _links_changed(self, now: float) -> None:
        self._originate()
        self._graph_changed(now)

    def _originate(self) -> None:
        """Flood this site's own links."""
        self._sequence += 1
        costs: dict[str, int] = {}
        for neighbour in self._links.values():
            costs[neighbour.site] = min(neighbour.cost, costs.get(neighbour.site, neighbour.cost))
        state = LinkState(self.own, self._sequence, tuple(sorted(costs.items())), self.position)
        self.states.take(state)
        self._flood(state)

    def _on_link_state(self, link: int, state: LinkState, now: float) -> None:
        if not is_site_key(state.site) or len(state.links) > self._settings.most_sites:
            self._refuse(self._links[link].site, "a link state that no site can have")
        elif state.site == self.own:
            if state.sequence > self._sequence:  # from an earlier run, whose clock was ahead, or forged
                self._sequence = state.sequence
                self._originate()
        elif state.site not in self.states.states and len(self.states.states) >= self._settings.most_sites:
            self._refuse(self._links[link].site, "more sites than overlay.most_sites")
        else:
            changes = self.states.changes
            if self.states.take(state):
                self._flood(state, but=link)
                self._heard_position(state.site, state.position)
            if self.states.changes != changes:
                self._graph_changed(now)

    def _graph_changed(self, now: float) -> None:
        for site in list(self.book.sites):
            position = self.outgoing.reach(site, self.states.reaches(site))
            if position is not None:
                self._out.append(Rewind(site, position - 1))
        self._replace_forgotten()

    def _replace_forgotten(self) -> None:
        """Find sites that came back under their name with another data directory, and let the old ones go. Their link
        states stay, so that nobody takes them for news again."""
        # Only what can be reached counts: words of sites that are no more may come before those of their successors.
        newest: dict[str, str] = {}
        for site in self.states.reachable():
            before = newest.setdefault(name_of(site), site)
            if self.states.states[before].sequence < self.states.states[site].sequence:
                newest[name_of(site)] = site
        known = dict.fromkeys([*self.states.states, *self.book.sites, *self.incoming.positions()])
        self._replaced = {
            site: successor
            for site in known
            if (successor := newest.get(name_of(site), site)) != site
            and site != self.own
            and not self.states.reaches(site)
        }
        for site, successor in self._replaced.items():
            self._let_go(site, successor)

    def _let_go(self, site: str, successor: str) -> None:
        known = self.book.sites.get(site)
        expected = [position for _, position in known.applied[:1]] if known is not None else []
        start = max([self.incoming.durable(site), *expected])
        if start > 0 or known is not None:
            end = max(self._known_ends.pop(site, 0), start)
            self._out.append(AnnounceGap(site, start, end, FORGOTTEN))
        self.incoming.forget(site)
        if site in self.outgoing:
            self._owed[successor] = self.outgoing.acknowledged_position(site)
            self.outgoing.close(site)
        if self.book.sites.pop(site, None) is not None:
            self._out.append(Unregister(site))

    def _link_to(self, neighbour: str) -> int | None:
        """The cheapest link to a neighbour; of several, the oldest."""
        links = [(each.cost, number) for number, each in self._links.items() if each.site == neighbour]
        return min(links)[1] if links else None

    def _flood(self, message: OverlayMessage, but: int | None = None) -> None:
        """Send to every neighbour once, except to the one that a link leads to."""
        source = self._links[but].site if but is not None else None
        for neighbour in dict.fromkeys(each.site for each in self._links.values()):
            if neighbour != source and (link := self._link_to(neighbour)) is not None:
                self._send(link, message)

    # --- advertisements -------------------------------------------------------------------------------

    def _on_advertisement(self, link: int, message: Advertisement, now: float) -> None:
        peer = self._links[link].site
        if message.site == self.own:
            if message.version > self.book.version:
                self._flood(self.book.go_beyond(message.version))
            return
        if not self._is_news(message.site, message.version):
            return
        if not self.book.fits(message):
            self._send(link, AdvertisementRequest(message.site))
            return
        try:
            self.book.take(message, now)
        except InvalidFilter as exc:
            if message.base:
                self._send(link, AdvertisementRequest(message.site))
            else:
                self._refuse(peer, f"an advertisement that cannot be taken: {exc.message}")
            return
        self._flood(message, but=link)
        self._register_next(message.site)

    def _on_digest(self, link: int, message: AdvertisementDigest) -> None:
        for site, version in message.versions:
            if site == self.own:
                if version > self.book.version:
                    self._flood(self.book.go_beyond(version))
            elif self._is_news(site, version):
                self._send(link, AdvertisementRequest(site))

    def _is_news(self, site: str, version: int) -> bool:
        return is_site_key(site) and site not in self._replaced and self.book.is_news(site, version)

    def _check_advertisements(self) -> None:
        """Ask again where an answer is missing, and register what could not be registered before."""
        for site, known in self.book.sites.items():
            if known.heard != known.registered and not known.registering and not known.refusal:
                self._register_next(site)
        for site in self.states.reachable():
            if site not in self.book.sites or not self.book.is_answered(site):
                self._route(AdvertisementCheck(self.own, site, 0, self.book.version))

    def _on_check(self, link: int, site: str, version: int) -> None:
        if self._is_news(site, version):
            self._send(link, AdvertisementRequest(site))
        elif site in self.book.sites and not self.book.sites[site].registering:
            self._register_next(site)

    def _register_next(self, site: str) -> None:
        """Register a site's newest predicate, or tell the site how that stands."""
        known = self.book.sites[site]
        wanted = self.book.next_registration(site)
        if wanted is not None:
            self._out.append(Register(site, *wanted))
        elif known.refusal:
            self._refuse(site, known.refusal)
            self._route(AdvertisementApplied(self.own, site, 0, known.heard, 0, known.refusal))
        elif known.registered and not known.registering and site in self.outgoing:
            self._route(AdvertisementApplied(self.own, site, 0, known.registered, known.position, ""))

    # --- packets --------------------------------------------------------------------------------------

    def _send_packet(self, window: WindowPacket) -> None:
        others = sum(1 for _ in self.states.reachable())
        broadcast = len(window.streams) > self._settings.broadcast_threshold * others
        self._forward(
            self.own,
            window.window,
            0,
            window.streams,
            window.offsets,
            window.payloads,
            broadcast,
            came_from=None,
        )

    def _forward(
        self,
        origin: str,
        window: int,
        hops: int,
        streams: Mapping[str, StreamPart],
        offsets: tuple[int, ...],
        payloads: tuple[bytes, ...],
        broadcast: bool,
        came_from: str | None,
    ) -> None:
        """Send a packet on: to each next hop with the destinations behind it (B-DRP, figure 1)."""
        parts: dict[str, dict[str, StreamPart]] = {}
        if broadcast:
            parts = {neighbour: dict(streams) for neighbour in self.states.children(origin)}
        else:
            for site, part in streams.items():
                neighbour = self.states.next_hop_of(origin, site)
                if neighbour is None or neighbour == came_from:
                    self._refuse(origin, "no way to a destination")
                else:
                    parts.setdefault(neighbour, {})[site] = part
        for neighbour, behind in parts.items():
            link = self._link_to(neighbour)
            if link is None:
                self._refuse(origin, "no way to a destination")
                continue
            table = self._links[link].numbers
            news = table.number(behind)
            if news is not None:
                self._send(link, news)
            ordered = sorted(behind, key=table.number_of)
            self._send(
                link,
                Packet(
                    origin,
                    window,
                    hops + 1,
                    table.bits(ordered),
                    tuple(behind[site] for site in ordered),
                    offsets,
                    payloads,
                    broadcast,
                ),
            )

    def _on_packet(self, link: int, packet: Packet, now: float) -> None:
        peer = self._links[link].site
        try:
            sites = self._links[link].numbers.sites(packet.destinations)
        except UnknownNumber:
            self._refuse(peer, "a packet for a site number that was never told")
            return
        if len(sites) != len(packet.streams) or len(packet.offsets) != len(packet.payloads):
            self._refuse(peer, "a packet whose parts do not fit together")
            return
        if packet.origin == self.own:
            self._refuse(peer, "a packet of this site's own came back")
            return
        if packet.origin not in self.states.states:
            self._refuse(peer, "a packet of an unknown origin")
            return
        if packet.hops >= MOST_HOPS:
            self._refuse(packet.origin, "a packet in a loop")
            return
        streams = dict(zip(sites, packet.streams, strict=True))
        own = streams.pop(self.own, None)
        if own is not None:
            self._receive(packet, own, now)
        if streams or packet.broadcast:
            self._forward(
                packet.origin,
                packet.window,
                packet.hops,
                streams,
                packet.offsets,
                packet.payloads,
                packet.broadcast,
                came_from=peer,
            )

    def _receive(self, packet: Packet, part: StreamPart, now: float) -> None:
        self._heard_position(packet.origin, part.end)
        events = list(zip(packet.offsets, packet.payloads, strict=True))
        match self.incoming.receive(packet.origin, packet.window, part, events, now):
            case StreamPiece(end, piece):
                self._out.append(Append(packet.origin, end, piece))
            case AnswerNeeded(position, wants_more):
                self._acknowledge(packet.origin, position, wants_more)

    def _acknowledge(self, origin: str, position: int, wants_more: bool) -> None:
        self._route(StreamAcknowledgement(self.own, origin, 0, position, wants_more))

    # --- routed messages ------------------------------------------------------------------------------

    def _route(self, message: Routed) -> None:
        """Send a message one hop on. It is lost where there is no way: whoever waits for it asks again."""
        neighbour = self.states.next_hop(message.destination)
        link = None if neighbour is None else self._link_to(neighbour)
        if link is not None:
            self._send(link, message)

    def _on_routed(self, link: int, message: Routed, now: float) -> None:
        if message.source == self.own or message.source not in self.states.states:
            self._refuse(self._links[link].site, "a message of a forged or unknown source")
        elif message.destination == self.own:
            if isinstance(message, AdvertisementCheck):
                self._on_check(link, message.source, message.version)
            else:
                self._on_own(message, now)
        elif message.hops >= MOST_HOPS:
            self._refuse(message.source, "a message in a loop")
        else:
            self._route(msgspec.structs.replace(message, hops=message.hops + 1))

    def _on_own(
        self, message: StreamAcknowledgement | StreamStart | AdvertisementApplied, now: float
    ) -> None:
        source = message.source
        match message:
            case StreamAcknowledgement(position=position):
                self._on_acknowledgement(source, position, message.wants_more, now)
            case StreamStart(start=start, position=position, reason=reason):
                missing = self.incoming.skip(source, start, position)
                if missing is not None and reason:
                    self._out.append(AnnounceGap(source, *missing, reason))
                self._acknowledge(source, self.incoming.durable(source), wants_more=False)
            case AdvertisementApplied(version=version, position=position, refusal=refusal):
                self.book.site(source).own_refusal = refusal
                if not refusal:
                    self.book.applied(source, version, position)
                    self._heard_position(source, position)

    def _on_acknowledgement(self, site: str, position: int, wants_more: bool, now: float) -> None:
        if site not in self.outgoing:
            return
        if position > self.position:
            self._refuse(site, "an acknowledgement of what does not exist")
            return
        before = self.outgoing.acknowledged_position(site)
        if self.outgoing.acknowledge(site, position, now):
            self._out.append(MoveCursor(site, position - 1))
        if position >= before:
            self._owed.pop(site, None)
        if not wants_more:
            return
        if position < before:
            self._start_stream(site, position)
        again = self.outgoing.resend(site, now)
        if again is not None:
            self._out.append(Rewind(site, again - 1))

    def _start_stream(self, site: str, position: int) -> None:
        """Tell a site, which has the stream up to a position, where it begins."""
        begin = self.outgoing.acknowledged_position(site)
        reason = _LOST_AFTER_ACKNOWLEDGEMENT if 0 < position < begin else ""
        if site in self._owed:
            position, reason = self._owed[site], FORGOTTEN
        self._route(StreamStart(self.own, site, 0, position, begin, reason))

    # --- all of them ----------------------------------------------------------------------------------

    def _heard_position(self, site: str, position: int) -> None:
        self._known_ends[site] = max(position, self._known_ends.get(site, 0))

    def _send(self, link: int, message: OverlayMessage) -> None:
        self._out.append(Send(link, message))

    def _refuse(self, source: str, reason: str) -> None:
        self._out.append(Refuse(source, reason))

    def _take(self) -> list[Instruction]:
        out, self._out = self._out, []
        return out
