"""A site as an origin: takes claims, has mailboxes for clusters, and sends what is in them to the carriers.

Claim                  Register the mailbox of its cluster, if there is none
registered             StoreClaims, with the end of the log: no cursor passes it from now on
claims_stored          ClaimAnswer to the member, CarrierTerms to the carrier
offered, flush         Packets to the carriers
CarriageReport         MoveCursor
nobody wants anything  Unregister
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from culver.overlay.clusters.cluster_claims import ClaimLedger
from culver.overlay.clusters.cluster_instructions import (
    EVERY_EVENT,
    ClusterOutbox,
    cluster_key,
    cluster_of_key,
)
from culver.overlay.clusters.cluster_messages import MOST_CLUSTER, CarriageGap, CarriageReport, Claim
from culver.overlay.clusters.cluster_streams import CarrierCandidates, ClusterStreams
from culver.overlay.clusters.load.load_messages import LoadKind
from culver.overlay.clusters.load.stream_balance import StreamBalance
from culver.overlay.clusters.origin_clustering import OriginClustering
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.node_instructions import Register, Unregister
from culver.overlay.core.outgoing_streams import Offered, OutgoingStreams, WindowPacket
from culver.overlay.core.overlay_messages import StreamPart


class ClusterOrigin:
    """`run` is above the numbers of all earlier runs. The owner gives the end of the log to each call that needs it,
    and calls `follow_up` when it has done everything else."""

    def __init__(
        self,
        states: LinkStates,
        out: ClusterOutbox,
        run: int,
        most_sites: int,
        candidates: CarrierCandidates,
        balance: StreamBalance,
        clustering: OriginClustering,
    ) -> None:
        self._own = states.own
        self._states = states
        self._out = out
        self._run = run
        self._most_sites = most_sites
        self._balance = balance
        self.clustering = clustering
        self.outgoing = OutgoingStreams()
        self.ledger = ClaimLedger()
        self.streams = ClusterStreams(states, self.outgoing, self.ledger, out, run, candidates, balance)
        self._registering: set[int] = set()
        # Mailboxes from another way of routing.
        self._strange: list[str] = []
        self._is_due = False

    def restore(self, key: str, acknowledged: int, begun: int | None) -> None:
        """Take note of a mailbox from an earlier run."""
        cluster = cluster_of_key(key)
        if cluster is None:
            self._strange.append(key)
            return
        self.outgoing.open(key, acknowledged, self._run, begun)
        self.streams.open(cluster, acknowledged)

    def start(self, now: float) -> None:
        """Go on with what was restored."""
        for key in self._strange:
            self._out.append(Unregister(key))
        for cluster in sorted(self.streams.streams):
            self.streams.renew_terms(cluster, now)
        self._is_due = True

    # --- claims ---------------------------------------------------------------------------------------

    def on_claim(self, member: str, claim: Claim, owed: tuple[int, str] | None) -> None:
        """Take a claim. `owed` says from where on a new member may miss something, and why."""
        if claim.cluster >= MOST_CLUSTER:
            self._out.refuse(member, "a claim to a cluster that no overlay has")
        elif not self.ledger.holds(member) and len(self.ledger.claims) >= self._most_sites:
            self._out.refuse(member, "more claims than overlay.most_sites")
        elif self.ledger.want(member, claim, None if self.ledger.holds(member) else owed):
            self._out.say(member, self.ledger.answer(member))
        else:
            self._is_due = True

    def drop(self, member: str) -> None:
        """A member is replaced or forgotten."""
        self.ledger.drop(member)
        self._is_due = True

    def owed_position(self, member: str) -> int | None:
        """The position up to which a member surely has what is for it; None where it has claimed nothing."""
        claim = self.ledger.claims.get(member)
        if claim is None:
            return None
        clusters = [claim.cluster] if claim.leaving is None else [claim.cluster, claim.leaving]
        keys = [cluster_key(cluster) for cluster in clusters if cluster in self.streams.streams]
        return min((self.outgoing.acknowledged_position(key) for key in keys), default=claim.position)

    def registered(self, key: str, acknowledged: int) -> None:
        cluster = cluster_of_key(key)
        if cluster is not None:
            self._registering.discard(cluster)
            self.outgoing.open(key, acknowledged, self._run)
            self.streams.open(cluster, acknowledged)
            self._is_due = True

    def registration_failed(self, key: str) -> None:
        cluster = cluster_of_key(key)
        if cluster is not None:
            self._registering.discard(cluster)

    def claims_stored(self, number: int, now: float) -> tuple[str, ...]:
        """Claims are in effect. Returns the members that are told so."""
        change = self.ledger.stored(number)
        if change is None:
            return ()
        self._is_due = True
        for cluster in sorted(change.clusters):
            self.streams.renew_terms(cluster, now)
        answered = tuple(member for member in change.answered if member in self.ledger.claims)
        for member in answered:
            self._out.say(member, self.ledger.answer(member))
        return answered

    def on_report(self, carrier: str, report: CarriageReport, position: int, now: float) -> None:
        refusal = self.streams.on_report(carrier, report, position, now)
        if refusal is not None:
            self._out.refuse(carrier, refusal)
        if report.finished:
            self._is_due = True

    def check(self) -> None:
        """Have `follow_up` ask again for what could not be done. Call it about once a second."""
        self._is_due = True

    def follow_up(self, position: int) -> None:
        """Make and remove mailboxes as claims need them, and store claims that have their mailboxes."""
        if not self._is_due:
            return
        self._is_due = False
        needed = self.ledger.needed_clusters()
        for cluster in sorted(needed - self.streams.streams.keys() - self._registering):
            self._registering.add(cluster)
            self._out.append(Register(cluster_key(cluster), 1, EVERY_EVENT))
        for cluster in sorted(self.streams.streams.keys() - needed):
            self.streams.close(cluster)
            self._out.append(Unregister(cluster_key(cluster)))
        store = self.ledger.next_store(position, self.streams.streams)
        if store is not None:
            for cluster in sorted(store[1]):
                self.streams.expect_terms(cluster, position)
            self._out.append(replace(store[0], clusters=self.clustering.count))

    def revise_clusters(self, sites: int, now: float) -> bool:
        """Look whether the events of this site should have another number of clusters. Returns whether they have."""
        changes, taken = self.ledger.changes, self.streams.taken()
        return self.clustering.look(self._states.states, sites, changes, taken, now)

    # --- events ---------------------------------------------------------------------------------------

    def offered(self, key: str, generation: int, items: Iterable[Offered]) -> None:
        """Take what a cluster's mailbox has next, and count what is new."""
        items = list(items)
        self.clustering.offered(each[0] for each in items if isinstance(each, tuple))
        self.outgoing.offer(key, generation, items)

    def flush(self, now: float) -> list[tuple[WindowPacket, StreamPart | None]]:
        """The packets to send, each with the part of this site itself, if it is a carrier."""
        packets, gaps = self.outgoing.flush(now)
        for key, gap in gaps:
            cluster, carrier = self._carrier(key)
            if carrier is not None:
                self._out.say(carrier, CarriageGap(cluster, gap.start, gap.end, gap.reason))
        sent = [each for packet in packets for each in self._for_carriers(packet)]
        for packet, _ in sent:
            self._balance.sent(LoadKind.RING, len(packet.streams) * len(packet.offsets), now)
        return sent

    def _for_carriers(self, packet: WindowPacket) -> list[tuple[WindowPacket, StreamPart | None]]:
        """Turn a packet for clusters into one for their carriers. A site that carries two of them gets two."""
        rounds: list[dict[str, StreamPart]] = []
        for key, part in packet.streams.items():
            cluster, carrier = self._carrier(key)
            if carrier is None:
                continue
            parts = next((each for each in rounds if carrier not in each), None)
            if parts is None:
                rounds.append(parts := {})
            parts[carrier] = msgspec.structs.replace(part, carries=cluster + 1)
        return [
            (WindowPacket(packet.window, parts, packet.offsets, packet.payloads), own)
            for parts, own in ((parts, parts.pop(self._own, None)) for parts in rounds)
        ]

    def _carrier(self, key: str) -> tuple[int, str | None]:
        cluster = cluster_of_key(key)
        assert cluster is not None  # only clusters have streams
        return cluster, self.streams.streams[cluster].carrier
