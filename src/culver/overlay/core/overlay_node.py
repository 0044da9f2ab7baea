"""One site of the overlay: what it knows of the others, and what it does about it. No input or output.

    links      opened, closed, received                 -->  SendMessage, CloseLink
    catalogue  local predicates change; registered      -->  Register, Unregister
    mailboxes  offered, for every other site            -->  MoveCursor, Rewind
    log        appended                                 -->  Append, AnnounceGap

A remote site is a durable subscriber. Its advertised predicate is a registration in the ordinary index, its mailbox
holds what it has not acknowledged, and this log is the only store: sites in between forward packets and keep nothing.
An event that came from elsewhere is never sent on but in transit, so there are no loops to break.

Link states and advertisements are flooded (see `overlay_messages`). Whoever waits for an answer asks again every
second, and every half minute neighbours compare what they have. So no message needs to arrive, and nothing is lost
for longer than that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from culver.matching import EncodedPredicate
from culver.overlay.core.advertisement_book import AdvertisementBook
from culver.overlay.core.advertisement_exchange import AdvertisementExchange
from culver.overlay.core.incoming_streams import IncomingStreams
from culver.overlay.core.link_flood import LinkFlood
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import (
    AnnounceGap,
    Append,
    HearGossip,
    Instruction,
    MoveCursor,
    NodeOutbox,
    Rewind,
    SendMessage,
    Unregister,
)
from culver.overlay.core.outgoing_streams import Offered, OutgoingStreams
from culver.overlay.core.overlay_messages import (
    MOST_HOPS,
    Advertisement,
    AdvertisementApplied,
    AdvertisementCheck,
    AdvertisementDigest,
    AdvertisementRequest,
    GossipEnvelope,
    LinkState,
    OverlayMessage,
    Packet,
    Routed,
    SiteNumbers,
    StreamAcknowledgement,
    StreamAnswer,
    StreamBeginning,
    StreamQuestion,
)
from culver.overlay.core.packet_forwarding import PacketForwarding, PacketRefused
from culver.overlay.core.replaced_sites import FORGOTTEN, GoneSites
from culver.overlay.core.stream_arrivals import StreamArrivals
from culver.overlay.core.stream_meetings import StreamMeetings

_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Beyond `broadcast_threshold`, a share of all other sites, a packet goes to every site (section 2.3)."""

    broadcast_threshold: float = 1.0
    open_limit: int = 16
    most_sites: int = 1024


class OverlayNode:
    """`boot` is a number above 0 that no earlier run of the site has reached, such as the time in microseconds.
    `positions` are those that the log has reached in other sites' logs. Every method returns instructions, to be
    carried out in their order. The owner keeps `position`, the end of the log, up to date. `states_type` is for
    simulations of other routing."""

    states_type: ClassVar[type[LinkStates]] = LinkStates

    def __init__(
        self, own: str, boot: int, position: int, positions: Mapping[str, int], settings: NodeSettings
    ) -> None:
        self.own = own
        self.position = position
        self.states = self.states_type(own)
        self.book = AdvertisementBook(own, boot, settings.open_limit, settings.most_sites)
        self.outgoing = OutgoingStreams()
        self.incoming = IncomingStreams(positions)
        self._boot = boot
        self._neighbours = Neighbours()
        self._out = NodeOutbox(self.states, self._neighbours, SendMessage)
        self._flood = LinkFlood(self.states, self._neighbours, self._out, boot, settings.most_sites)
        self._forwarding = PacketForwarding(self.states, self._neighbours, settings.broadcast_threshold)
        self._checked_at = float("-inf")
        self._known_ends: dict[str, int] = {}
        self._gone = GoneSites(own)
        self._meetings = StreamMeetings(
            position, self.states, self.outgoing, self._out, self.book.in_effect_since, self._gone.owed
        )
        self._exchange = AdvertisementExchange(
            self.book, self.states, self._out, self.is_gone, self._meetings.__contains__
        )
        self._arrivals = StreamArrivals(boot, self.incoming, self.book, self._out)
        self._flood.originate(position)

    # --- links ----------------------------------------------------------------------------------------

    def link_opened(self, link: int, peer: str, cost: int, now: float) -> list[Instruction]:
        self._neighbours.open(link, peer, cost)
        self._tell_everything(link, now)
        self._links_changed()
        return self._out.take()

    def link_closed(self, link: int, now: float) -> list[Instruction]:
        peer = self._neighbours.close(link)
        if peer is not None:
            other = self._neighbours.link_to(peer)
            if other is not None:  # what was under way on the closed link may be lost
                self._tell_everything(other, now)
            self._links_changed()
        return self._out.take()

    def received(self, link: int, message: OverlayMessage, now: float) -> list[Instruction]:
        """Take a message of a neighbour. What is wrong with it is refused, and changes nothing."""
        if link not in self._neighbours:
            return []
        match message:
            case Packet():
                self._on_packet(link, message, now)
            case LinkState():
                self._on_link_state(link, message, now)
            case Advertisement():
                self._exchange.on_advertisement(link, self._neighbours[link].site, message, now)
            case AdvertisementDigest():
                self._exchange.on_digest(link, message)
            case AdvertisementRequest():
                self._exchange.on_request(link, message.site)
            case SiteNumbers():
                self._out.extend(self._forwarding.learn(link, message))
            case _:
                self._on_routed(link, message, now)
        return self._out.take()

    def gossip(self, site: str, body: bytes) -> list[Instruction]:
        """Send a message of the membership to a site. It may be lost."""
        self._out.route(GossipEnvelope(self.own, site, 0, body))
        return self._out.take()

    # --- predicates -----------------------------------------------------------------------------------

    def restore(
        self,
        site: str,
        predicate: EncodedPredicate,
        position: int,
        acknowledged: int,
        begun: int | None = None,
    ) -> None:
        """Take note, before anything else, of a site that has a mailbox from an earlier run: its predicate is in
        effect from `position` on, and it has everything below `acknowledged`. The stream began at `begun`."""
        self.book.restore(site, predicate, position)
        self.outgoing.open(site, acknowledged, self._boot, begun)

    def restore_meetings(
        self, promised_ends: Mapping[str, int], floors: Mapping[str, int], given_anew: int | None = None
    ) -> None:
        """Take note, before anything else, of the `promised_ends` and the `floors` of an earlier run. `given_anew` is
        that of the LeaveOverlay after which the site took its key."""
        self._arrivals.promised_ends.update(promised_ends)
        self._meetings.floors.update(floors)
        self._flood.given_anew = given_anew
        self._flood.originate(self.position)

    def floors(self) -> dict[str, int]:
        """The most of this log that sites can know of, by name, if this run has not met them yet."""
        return self._meetings.unmet(self.book.sites)

    def promised_ends(self) -> dict[str, int]:
        """The positions in other sites' logs of which this site was promised something. A site whose log is shorter
        when it starts again runs on an older copy of its data directory."""
        return dict(self._arrivals.promised_ends)

    def advertise(self, predicate: EncodedPredicate) -> list[Instruction]:
        """This site's own subscribers want what the predicate matches, from now on."""
        message = self.book.change(predicate)
        if message is not None:
            self._out.flood(message)
        return self._out.take()

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
            self._meetings.meet(site, self.position)
        self._exchange.register_next(site)
        return self._out.take()

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
            self._out.extend(self._forwarding.send(packet))
        for site, gap in gaps:
            self._meetings.tell_gap(site, gap)
        return self._out.take()

    # --- log ------------------------------------------------------------------------------------------

    def appended(self, origin: str, end: int) -> list[Instruction]:
        """An Append is carried out: its events are on disk."""
        piece = self.incoming.appended(origin, end)
        if piece is not None:
            self._out.append(Append(origin, piece.end, piece.events))
        self._arrivals.acknowledge(origin, self.incoming.durable(origin), wants_more=False)
        return self._out.take()

    def append_failed(self, origin: str) -> list[Instruction]:
        """An Append could not be carried out. The stream comes again, because nothing is acknowledged."""
        self.incoming.failed(origin)
        return []

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Instruction]:
        """Do what time asks for. Call it about ten times a second."""
        for site, position in self.outgoing.tick(now):
            self._out.append(Rewind(site, position - 1))
        if self._flood.refresh(self.position, now):
            for site in self._known_ends.keys() - self.states.states.keys() - self.book.sites.keys():
                del self._known_ends[site]
            for link in self._neighbours.links():
                self._out.send(link, AdvertisementDigest(self.book.versions()))
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            self._flood.go_beyond(self.position)
            self._exchange.go_beyond()
            self._exchange.check()
            for site in self.book.sites:
                if site not in self._meetings:
                    self._meetings.meet(site, self.position)
            self._out.extend(self._gone.new_troubles(self.states, now))
        # What waited for an acknowledgement may go now, though nothing more is offered.
        return self.flush(now)

    # --- routes ---------------------------------------------------------------------------------------

    def _tell_everything(self, link: int, now: float) -> None:
        self._flood.tell(link, now)
        self._out.send(link, AdvertisementDigest(self.book.versions()))

    def _links_changed(self) -> None:
        self._flood.originate(self.position)
        self._graph_changed()

    def _on_link_state(self, link: int, state: LinkState, now: float) -> None:
        changes = self.states.changes
        if not self._flood.take(link, state, now):
            return
        self._heard_position(state.site, state.position)
        if self._meetings.heard_run(state.site, state.run):
            self._reach(state.site)
            self._meetings.meet(state.site, self.position)
        if self.states.changes != changes:
            self._graph_changed()

    def _graph_changed(self) -> None:
        self._gone.forgotten.look(self.states)
        for site in list(self.book.sites):
            self._reach(site)
            if site not in self._meetings.current:
                self._meetings.meet(site, self.position)
        known = dict.fromkeys([*self.states.states, *self.book.sites, *self.incoming.positions()])
        for site in self._gone.replaced.look(self.states, known):
            self._let_go(site)

    def _reach(self, site: str) -> None:
        """Have a stream go on or stop: a site must be reachable, and the two must have met."""
        position = self.outgoing.reach(site, self.states.reaches(site) and site in self._meetings)
        if position is not None:
            self._out.append(Rewind(site, position - 1))

    def _let_go(self, site: str) -> None:
        """End the streams from and to a site that is replaced. Its link state stays, so that nobody takes it for news
        again."""
        given_anew = self.states.states[self._gone.replaced.successor(site)].given_anew
        start = self.incoming.durable(site)
        if site in self.incoming or site in self.book.sites:
            # An earlier run of this site may have been promised something from there on.
            end = max(self._known_ends.pop(site, 0), start)
            first = start if given_anew is None else min(start, given_anew)
            self._out.append(AnnounceGap(site, first, end, FORGOTTEN))
        self._arrivals.forget(site)
        # A successor with an older copy of the log may miss what was acknowledged before.
        is_older = given_anew is not None and site in self.outgoing
        begun = self.outgoing.begun_position(site) if is_older else None
        acknowledged = self._end_stream(site)
        self._gone.replaced.owe(site, acknowledged if begun is None else begun)

    def _end_stream(self, site: str) -> int | None:
        """Remove the mailbox of a site; returns what it had acknowledged, None where it had no stream."""
        acknowledged = self.outgoing.acknowledged_position(site) if site in self.outgoing else None
        self.outgoing.close(site)
        self._meetings.current.pop(site, None)
        if self.book.sites.pop(site, None) is not None:
            self._out.append(Unregister(site))
        return acknowledged

    # --- sites that are gone --------------------------------------------------------------------------

    def forget(self, site: str) -> list[Instruction]:
        """Drop the mailbox of a site that cannot be reached, and what it has advertised. How far this log is in that
        of the site stays known: if it comes back, it may send something again."""
        self._gone.forgotten.forget(site, self._end_stream(site))
        return self._out.take()

    def is_forgotten(self, site: str) -> bool:
        return site in self._gone.forgotten

    def is_gone(self, site: str) -> bool:
        """Whether a site is replaced by another, or forgotten."""
        return site in self._gone

    def troubles(self) -> list[str]:
        """Everything that an operator must see to, as sentences."""
        return self._gone.troubles()

    # --- packets --------------------------------------------------------------------------------------

    def _on_packet(self, link: int, packet: Packet, now: float) -> None:
        try:
            streams = self._forwarding.destinations(link, packet)
        except PacketRefused as exc:
            self._out.refuse(exc.source, exc.reason)
            return
        if packet.carrier:
            self._out.refuse(self._neighbours[link].site, "a packet for a cluster")
            return
        if self.is_gone(packet.origin):
            return  # it was under way when the site came back as another
        own = streams.pop(self.own, None)
        if own is not None:
            self._heard_position(packet.origin, own.end)
            self._arrivals.on_packet(packet, own, now)
        if streams or packet.broadcast:
            self._out.extend(self._forwarding.forward(link, packet, streams))

    # --- routed messages ------------------------------------------------------------------------------

    def _on_routed(self, link: int, message: Routed, now: float) -> None:
        if message.source == self.own or message.source not in self.states.states:
            self._out.refuse(self._neighbours[link].site, "a message of a forged or unknown source")
        elif self.is_gone(message.source):
            pass  # it was under way when the site came back as another
        elif message.destination == self.own:
            self._on_own(link, message, now)
        elif message.hops >= MOST_HOPS:
            self._out.refuse(message.source, "a message in a loop")
        else:
            self._out.route(msgspec.structs.replace(message, hops=message.hops + 1))

    def _on_own(self, link: int, message: Routed, now: float) -> None:
        source = message.source
        match message:
            case StreamAcknowledgement():
                self._on_acknowledgement(message, now)
            case StreamAnswer():
                self._meetings.on_answer(message)
            case StreamQuestion():
                self._arrivals.on_question(message)
            case StreamBeginning():
                self._arrivals.on_beginning(message)
            case GossipEnvelope(body=body):
                self._out.append(HearGossip(source, body))
            case AdvertisementCheck(version=version):
                self._exchange.on_check(link, source, version)
            case AdvertisementApplied(version=version, position=position, refusal=refusal):
                self._exchange.heard_own(version)
                if refusal:
                    self.book.refused(source, version, refusal)
                else:
                    self.book.applied(source, version, position)
                    self._heard_position(source, position)
                    self._arrivals.promised(source, position)

    def _on_acknowledgement(self, message: StreamAcknowledgement, now: float) -> None:
        site, position = message.source, message.position
        meeting = self._meetings.of(site, message.meeting)
        if site not in self.outgoing or (meeting is None and (message.meeting or site not in self._meetings)):
            return  # it may be older than this run
        if position > self.position:
            self._out.refuse(site, "an acknowledgement of what does not exist")
            return
        self._acknowledged(site, position, message.wants_more, now)
        if meeting and not meeting.is_over and position >= self.outgoing.acknowledged_position(site):
            meeting.is_over = True
            self._reach(site)
            self._exchange.register_next(site)

    def _acknowledged(self, site: str, position: int, wants_more: bool, now: float) -> None:
        before = self.outgoing.acknowledged_position(site)
        if self.outgoing.acknowledge(site, position, now):
            self._out.append(MoveCursor(site, position - 1))
        if position >= before:
            self._gone.told(site)
        if not wants_more:
            return
        if position < before:
            self._meetings.tell_beginning(site)
        again = self.outgoing.resend(site, now)
        if again is not None:
            self._out.append(Rewind(site, again - 1))

    # --- all of them ----------------------------------------------------------------------------------

    def _heard_position(self, site: str, position: int) -> None:
        self._known_ends[site] = max(position, self._known_ends.get(site, 0))
