"""One site of an overlay that routes by clusters (Jafarpour and others, section 2). No input or output.

    publisher -> paris          ring phase: one stream for each cluster, to its carrier
                  |  |  |
                  |  |  +-----> paris, the carrier of its own cluster
                  |  +--------> lyon, a site of cluster 1      cluster phase: match, and send to who wants it
                  +-----------> oslo, a site of cluster 2 -----> bonn, rome

The predicate of a site is known to the sites of its clusters only, and an event is matched once in each cluster. The
log of the origin is the only store. It has a mailbox and a cursor for each cluster, which moves when every member has
what is for it. The carrier keeps nothing, so it may die at any moment: another one takes its place.

    links      opened, closed, received                       -->  SendMessage, SendNote, CloseLink
    catalogue  advertise; registered; advertisement_stored;   -->  Register, Unregister, StoreAdvertisement,
               claims_stored                                       StoreClaims
    mailboxes  offered, for every cluster                     -->  MoveCursor, Rewind
    log        appended                                       -->  Append, AnnounceGap

Each part of a site's work is a module: `cluster_membership` (which clusters, and whose predicates), `member_streams`
(what it gets), `cluster_origin` (what it sends), `origin_clustering` (in how many clusters), `carriage` (what it
carries for others).
"""

from collections.abc import Iterable, Mapping
from random import Random

import msgspec

from culver.matching import NOTHING, EncodedPredicate, SitePredicate
from culver.overlay.clusters.carriage import ClusterMatcher
from culver.overlay.clusters.carriage_table import CarriageTable
from culver.overlay.clusters.cluster_instructions import ClusterInstruction, ClusterOutbox, MemberClaim
from culver.overlay.clusters.cluster_membership import ClusterMembership, PredicateShelf
from culver.overlay.clusters.cluster_messages import (
    AdvertisementStored,
    AdvertisementWanted,
    CarriageGap,
    CarriageReport,
    CarrierRefusal,
    CarrierTerms,
    Claim,
    ClaimAnswer,
    ClusterBody,
    ClusterFrame,
    ClusterNote,
    GossipNote,
    MemberAdvertisement,
    MemberGap,
    MemberPosition,
    StreamNews,
)
from culver.overlay.clusters.cluster_origin import ClusterOrigin
from culver.overlay.clusters.load.load_messages import LoadKind
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.clusters.load_exchange import LoadExchange
from culver.overlay.clusters.member_streams import MemberClaims, MemberStreams
from culver.overlay.clusters.origin_clustering import ClusterSettings, OriginClustering
from culver.overlay.core.incoming_streams import IncomingStreams
from culver.overlay.core.link_flood import LinkFlood
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.neighbours import Neighbours
from culver.overlay.core.node_instructions import AnnounceGap, HearGossip
from culver.overlay.core.outgoing_streams import Offered, OutgoingStreams, WindowPacket
from culver.overlay.core.overlay_messages import MOST_HOPS, LinkState, Packet, SiteNumbers, StreamPart
from culver.overlay.core.packet_forwarding import PacketForwarding, PacketRefused
from culver.overlay.core.replaced_sites import FORGOTTEN, GoneSites
from culver.overlay.site_keys import name_of

_CHECK_SECONDS = 1.0


class ClusterNode:
    """`boot` is a number above 0 that no earlier run of the site has reached, such as the time in microseconds.
    `positions` are those that the log has reached in other sites' logs. Every method returns instructions, to be
    carried out in their order. The owner keeps `position`, the end of the log, up to date."""

    def __init__(
        self,
        own: str,
        boot: int,
        position: int,
        positions: Mapping[str, int],
        settings: ClusterSettings,
        matcher: ClusterMatcher,
    ) -> None:
        self.own = own
        self.position = position
        self.states = LinkStates(own)
        self.book = MemberClaims(boot)
        self._now = 0.0
        self._neighbours = Neighbours()
        self.balance = StreamBalance(own, Random(f"{own}/{boot}"), 0.0, settings.load)
        self._loads = LoadExchange(self.balance, self.states, lambda: self._now)
        self._out = ClusterOutbox(self.states, self._neighbours, self._loads.attached)
        most = settings.most_sites
        self.clustering = OriginClustering(own, settings, position)
        self._flood = LinkFlood(
            self.states, self._neighbours, self._out, boot, most, lambda: self.clustering.told
        )
        self._forwarding = PacketForwarding(self.states, self._neighbours, broadcast_threshold=1.0)
        self.shelf = PredicateShelf(own, matcher, self._out)
        self.membership = ClusterMembership(self.states, self.book, self._out, self.balance)
        self.balance.may_carry = self.membership.may_carry
        self._members = MemberStreams(positions, self.book, self._out)
        self.origin = ClusterOrigin(
            self.states, self._out, boot, most, self.membership.candidates, self.balance, self.clustering
        )
        self.table = CarriageTable(
            self.states, matcher, self.shelf, self._out, boot, most, self._send_on, self.balance
        )
        self._gone = GoneSites(own)
        self._known_ends: dict[str, int] = {}
        self._claims_are_due = False
        self._reached: set[str] = set()
        self._checked_at = float("-inf")
        self._is_started = False
        self.shelf.put_own(boot, NOTHING)
        self._flood.originate(position)

    @property
    def incoming(self) -> IncomingStreams:
        return self._members.incoming

    @property
    def outgoing(self) -> OutgoingStreams:
        return self.origin.outgoing

    # --- what an earlier run has left -----------------------------------------------------------------

    def restore(
        self,
        site: str,
        predicate: EncodedPredicate,
        position: int,
        acknowledged: int,
        begun: int | None = None,
    ) -> None:
        """Take note, before anything else, of a mailbox from an earlier run. `site` is the key of its cluster."""
        self.origin.restore(site, acknowledged, begun)

    def restore_claims(self, claims: Iterable[MemberClaim], clusters: int = 0) -> None:
        """Take note, before anything else, of the last StoreClaims."""
        self.origin.ledger.restore(claims)
        self.clustering.restore(clusters)

    def restore_advertisement(self, site: str, version: int, predicate: SitePredicate) -> None:
        """Take note, before anything else, of what a StoreAdvertisement has stored."""
        self.shelf.restore(site, version, predicate)

    def restore_meetings(
        self, promised_ends: Mapping[str, int], floors: Mapping[str, int], given_anew: int | None = None
    ) -> None:
        """Take note, before anything else, of the `promised_ends` of an earlier run."""
        self._members.promised_ends.update(promised_ends)

    def promised_ends(self) -> dict[str, int]:
        """The positions in other sites' logs of which this site was promised something."""
        return dict(self._members.promised_ends)

    def floors(self) -> dict[str, int]:
        return {}  # sites on older copies of their data directories are not found out

    # --- links ----------------------------------------------------------------------------------------

    def link_opened(self, link: int, peer: str, cost: int, now: float) -> list[ClusterInstruction]:
        self._now = now
        self._neighbours.open(link, peer, cost)
        self._flood.tell(link, now)
        self._links_changed()
        return self._done()

    def link_closed(self, link: int, now: float) -> list[ClusterInstruction]:
        self._now = now
        peer = self._neighbours.close(link)
        if peer is not None:
            other = self._neighbours.link_to(peer)
            if other is not None:  # what was under way on the closed link may be lost
                self._flood.tell(other, now)
            self._links_changed()
        return self._done()

    def received(self, link: int, message: ClusterFrame, now: float) -> list[ClusterInstruction]:
        """Take a message of a neighbour. What is wrong with it is refused, and changes nothing."""
        self._now = now
        if link not in self._neighbours:
            return []
        peer = self._neighbours[link].site
        match message:
            case Packet():
                self._on_packet(link, message)
            case ClusterNote():
                self._on_note(peer, message)
            case LinkState():
                self._on_link_state(link, message)
            case SiteNumbers():
                self._out.extend(self._forwarding.learn(link, message))
            case _:
                self._out.refuse(peer, "a message of another way of routing")
        return self._done()

    def gossip(self, site: str, body: bytes) -> list[ClusterInstruction]:
        """Send a message of the membership to a site. It may be lost."""
        self._out.say(site, GossipNote(body))
        return self._done()

    def _links_changed(self) -> None:
        self._flood.originate(self.position)
        self._graph_changed()

    def _on_link_state(self, link: int, state: LinkState) -> None:
        changes, before = self.states.changes, self.states.states.get(state.site)
        if not self._flood.take(link, state, self._now):
            return
        self._heard_position(state.site, state.position)
        if self.states.changes != changes or before is None or before.run != state.run:
            self._graph_changed()

    def _graph_changed(self) -> None:
        self._gone.forgotten.look(self.states)
        reached = set(self.states.reachable())
        for origin in reached - self._reached:
            # It may have forgotten this site meanwhile.
            self.book.ask_again(origin)
        self._reached = reached
        self._claims_are_due = True
        known = dict.fromkeys([*self.states.states, *self.origin.ledger.claims, *self._members.origins()])
        for site in self._gone.replaced.look(self.states, known):
            self._let_go(site)
        self.origin.streams.look(self._now)
        self.table.look(self._now)

    # --- this site as a member ------------------------------------------------------------------------

    def advertise(self, predicate: SitePredicate) -> list[ClusterInstruction]:
        """This site's own subscribers want what the predicate matches, from now on. Nothing is claimed before."""
        if self.book.change(predicate):
            self._advertised()
        return self._done()

    def in_effect_from(self, origin: str, version: int) -> int | None:
        """The position of an origin's log from which a version of the own advertisement is in effect."""
        return self.book.in_effect_from(origin, version)

    def _advertised(self) -> None:
        self.shelf.put_own(self.book.version, self.book.predicate)
        self.membership.changed(self._now)
        self._claims_are_due = True

    def _on_answer(self, origin: str, answer: ClaimAnswer) -> None:
        self._heard_position(origin, answer.position)
        self.membership.answered(origin, answer.number)
        if answer.version > self.book.version:
            self.book.go_beyond(answer.version)
            self._advertised()
        else:
            self._members.on_answer(origin, answer)

    def advertisement_stored(self, site: str, version: int) -> list[ClusterInstruction]:
        """A StoreAdvertisement is carried out."""
        self.shelf.stored(site, version)
        return self._done()

    def appended(self, origin: str, end: int) -> list[ClusterInstruction]:
        """An Append is carried out: its events are on disk."""
        self._members.appended(origin, end)
        return self._done()

    def append_failed(self, origin: str) -> list[ClusterInstruction]:
        """An Append could not be carried out. The stream comes again, because nothing is acknowledged."""
        self._members.append_failed(origin)
        return self._done()

    # --- this site as an origin -----------------------------------------------------------------------

    def registered(
        self, site: str, version: int, predicate: EncodedPredicate, position: int, acknowledged: int
    ) -> list[ClusterInstruction]:
        """A Register is carried out: the mailbox of a cluster takes events from `position` on."""
        self.origin.registered(site, acknowledged)
        return self._done()

    def registration_failed(self, site: str) -> list[ClusterInstruction]:
        """A Register could not be carried out now; it comes again."""
        self.origin.registration_failed(site)
        return []

    def claims_stored(self, number: int) -> list[ClusterInstruction]:
        """A StoreClaims is carried out: its claims are in effect."""
        for member in self.origin.claims_stored(number, self._now):
            self._gone.told(member)
        return self._done()

    def claims_failed(self, number: int) -> list[ClusterInstruction]:
        """A StoreClaims could not be carried out; the next `tick` asks again."""
        self.origin.ledger.failed(number)
        return []

    def offered(self, site: str, generation: int, items: Iterable[Offered]) -> None:
        """Take what a cluster's mailbox has next. `flush` sends it: offers of one moment share packets."""
        self.origin.offered(site, generation, items)

    def flush(self, now: float) -> list[ClusterInstruction]:
        """Send what is offered, as far as it may be under way."""
        self._now = now
        for packet, own in self.origin.flush(now):
            if packet.streams:
                self._out.extend(self._forwarding.send(packet))
            if own is not None:
                self.table.on_part(self.own, packet.window, own, packet.offsets, packet.payloads, now)
        return self._done()

    # --- this site as a carrier -----------------------------------------------------------------------

    def _send_on(self, origin: str, packet: WindowPacket) -> None:
        """Send events of an origin on to members of a cluster."""
        parts = dict(packet.streams)
        own = parts.pop(self.own, None)
        if parts:
            sent = WindowPacket(packet.window, parts, packet.offsets, packet.payloads)
            self._out.extend(self._forwarding.send(sent, origin))
        if own is not None:
            self._members.on_part(
                origin, self.own, packet.window, own, packet.offsets, packet.payloads, self._now
            )

    def worked(self, busy_seconds: float) -> None:
        """The site was busy for so long since the last call, about a second ago. Load is balanced (section 3.3) once
        that was told with messages."""
        self.balance.worked(busy_seconds)

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[ClusterInstruction]:
        """Do what time asks for. Call it about ten times a second."""
        self._now = now
        if not self._is_started:
            self._is_started = True
            self.origin.start(now)
        self._flood.refresh(self.position, now)
        self.origin.streams.tick(now)
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            self._flood.go_beyond(self.position)
            known = {*self.states.states, *self.origin.ledger.claims}
            known = {site for site in known if not self.is_gone(site)} | {self.own}
            if self.origin.revise_clusters(len(known), now):
                self._flood.originate(self.position)
            if self.membership.look(frozenset(known), now):
                self.origin.streams.look(now)
            self.membership.share(now)
            self.origin.check()
            self.table.look(now)
            self._loads.tick(self.membership.mates, self.origin.streams.carriers(), self._out)
            self.table.hand_over()
            self._claims_are_due = True
            self.shelf.prune({*self.membership.mates, *self.table.members()}, now)
            self._out.extend(self._gone.new_troubles(self.states, now))
        # What waited for an acknowledgement may go now, though nothing more is offered.
        return self.flush(now)

    def _done(self) -> list[ClusterInstruction]:
        """Do what follows from a call, and hand over all instructions. If there is no end to what this site says to
        itself, the rest waits for the next call."""
        for _ in range(64):
            self.table.report(self._now)
            if self._is_started:
                if self._claims_are_due:
                    self._claims_are_due = False
                    self.membership.claim(sorted(self._reached), self._now)
                self.origin.follow_up(self.position)
            if not self._out.local:
                break
            bodies, self._out.local = self._out.local, []
            for body in bodies:
                self._on_body(self.own, body)
        return self._out.take()

    # --- sites that are gone --------------------------------------------------------------------------

    def forget(self, site: str) -> list[ClusterInstruction]:
        """Drop the claims of a site that cannot be reached. What is known of its log stays."""
        self._gone.forgotten.forget(site, self.origin.owed_position(site))
        self._drop_member(site)
        return self._done()

    def is_forgotten(self, site: str) -> bool:
        return site in self._gone.forgotten

    def is_gone(self, site: str) -> bool:
        """Whether a site is replaced by another, or forgotten."""
        return site in self._gone

    def troubles(self) -> list[str]:
        """Everything that an operator must see to, as sentences."""
        return self._gone.troubles()

    def _let_go(self, site: str) -> None:
        """End the streams from and to a site that is replaced. Its link state stays: it must not be news again."""
        was_promised = site in self._known_ends and name_of(site) != name_of(self.own)
        if site in self._members.origins() or was_promised:  # perhaps to an earlier run, and not on disk
            start = self.incoming.durable(site)
            end = max(self._known_ends.pop(site, 0), start)
            self._out.append(AnnounceGap(site, start, end, FORGOTTEN))
        self._members.forget(site)
        self.table.forget(site)
        if site in self.origin.ledger.claims:
            self._gone.replaced.owe(site, self.origin.owed_position(site))
        self._drop_member(site)

    def _drop_member(self, site: str) -> None:
        self.origin.drop(site)
        self.shelf.drop(site)
        self.membership.forget(site)

    # --- packets and notes ----------------------------------------------------------------------------

    def _on_packet(self, link: int, packet: Packet) -> None:
        try:
            streams = self._forwarding.destinations(link, packet)
        except PacketRefused as exc:
            self._out.refuse(exc.source, exc.reason)
            return
        if self.is_gone(packet.origin) or self.is_gone(packet.root):
            return  # it was under way when the site came back as another
        own = streams.pop(self.own, None)
        if own is not None:
            self._on_own_part(packet, own)
        if streams or packet.broadcast:
            self.balance.received_messages(LoadKind.CLIENT, len(packet.offsets), self._now)
            self._out.extend(self._forwarding.forward(link, packet, streams))

    def _on_own_part(self, packet: Packet, part: StreamPart) -> None:
        if packet.origin == self.own or (part.carries and packet.carrier):
            self._out.refuse(packet.root, "a packet that is not for this site")
        elif part.previous >= part.end or (packet.offsets and packet.offsets[0] < part.previous):
            self._out.refuse(packet.root, "a packet whose parts do not fit together")
        elif part.carries:
            self.table.on_part(packet.origin, packet.window, part, packet.offsets, packet.payloads, self._now)
        else:
            self._heard_position(packet.origin, part.end)
            self.balance.received_messages(LoadKind.CLUSTER, len(packet.offsets), self._now)
            self._members.on_part(
                packet.origin, packet.root, packet.window, part, packet.offsets, packet.payloads, self._now
            )

    def _on_note(self, peer: str, note: ClusterNote) -> None:
        if note.source == self.own or note.source not in self.states.states:
            self._out.refuse(peer, "a message of a forged or unknown source")
            return
        if self.is_gone(note.source):
            return  # it was under way when the site came back as another
        self._loads.noted(note)
        if note.destination == self.own:
            self._on_body(note.source, note.body)
        elif note.hops >= MOST_HOPS:
            self._out.refuse(note.source, "a message in a loop")
        else:
            self._out.route(msgspec.structs.replace(note, hops=note.hops + 1))

    def _on_body(self, source: str, body: ClusterBody) -> None:
        match body:
            case Claim():
                self.origin.on_claim(source, body, self._gone.owed(source))
            case ClaimAnswer():
                self._on_answer(source, body)
            case MemberAdvertisement(site=site):
                if site != self.own and (site in self.membership.mates or site in self.table.members()):
                    self.shelf.take(source, body)
                    self.table.look(self._now)
            case AdvertisementStored(version=version):
                self.membership.stored(source, version)
                self._claims_are_due = True
            case AdvertisementWanted(site=site):
                copy = self.shelf.copy_for(site)
                if copy is not None:
                    self._out.say(source, copy)
            case CarrierTerms():
                self.table.on_terms(source, body, self.membership.cluster_at(source), self._now)
            case CarrierRefusal():
                self.origin.streams.refused(source, body, self._now)
            case CarriageReport():
                self.origin.on_report(source, body, self.position, self._now)
            case CarriageGap():
                self.table.on_gap(source, body, self._now)
            case StreamNews():
                self._members.on_news(source, body)
            case MemberPosition():
                self.table.heard(source, body.origin, body.position, body.wants_more)
            case MemberGap():
                self._members.on_gap(source, body)
            case GossipNote(body=gossip):
                self._out.append(HearGossip(source, gossip))
            case _:
                self._loads.answer(source, body, self._out)

    def _heard_position(self, site: str, position: int) -> None:
        self._known_ends[site] = max(position, self._known_ends.get(site, 0))
