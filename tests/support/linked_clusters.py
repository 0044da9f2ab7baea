"""Cluster nodes that are linked in memory (see `linked_cores`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from culver.matching import NOTHING, SitePredicate
from culver.overlay.clusters.cluster_instructions import (
    MemberClaim,
    SendNote,
    StoreAdvertisement,
    StoreClaims,
)
from culver.overlay.clusters.cluster_messages import (
    ClusterBody,
    ClusterFrame,
    ClusterNote,
    decode_frame,
    encode_frame,
)
from culver.overlay.clusters.cluster_node import ClusterNode
from culver.overlay.clusters.load.broker_load import LoadSettings
from culver.overlay.clusters.origin_clustering import ClusterSettings
from support.linked_cores import LinkedCores, LinkedSite
from support.linked_nodes import EVERYTHING, predicate


class BitMatcher:
    """An event `7 ...` matches `predicate(7)`, and all that want everything."""

    def __init__(self) -> None:
        self.predicates: dict[str, SitePredicate] = {}

    def change(self, site: str, predicate: SitePredicate | None) -> None:
        if predicate is None:
            self.predicates.pop(site, None)
        else:
            self.predicates[site] = predicate

    def match(self, payloads: Sequence[bytes]) -> list[frozenset[str]]:
        wanted = [predicate(int(payload.split()[0])) for payload in payloads]
        return [
            frozenset(site for site, each in self.predicates.items() if each in (one, EVERYTHING))
            for one in wanted
        ]


@dataclass
class ClusterSite(LinkedSite[ClusterNode]):
    claims: tuple[MemberClaim, ...] = ()
    clusters: int = 0
    advertisements: dict[str, tuple[int, SitePredicate]] = field(default_factory=dict)

    def said(self, kind: type[ClusterBody]) -> list[ClusterBody]:
        notes = [each.note.body for each in self.of(SendNote)]
        return [body for body in notes if isinstance(body, kind)]


class LinkedClusters(LinkedCores[ClusterSite]):
    def __init__(self, clusters: int = 0, load: LoadSettings | None = None) -> None:
        super().__init__()
        self.settings = ClusterSettings(clusters, load=load or LoadSettings())
        self.own_settings: dict[str, ClusterSettings] = {}
        """Those of single sites, in place of the `settings`."""

    def settings_of(self, key: str) -> ClusterSettings:
        return self.own_settings.get(key, self.settings)

    def add(self, *keys: str, boot: int = 1) -> None:
        for key in keys:
            self.sites[key] = ClusterSite(ClusterNode(key, boot, 0, {}, self.settings_of(key), BitMatcher()))
            self.do(key, self[key].node.advertise(NOTHING))

    def mesh(self, *keys: str) -> None:
        """Add sites that are all linked with one another, and let them find their clusters."""
        self.add(*keys)
        for place, one in enumerate(keys):
            for other in keys[:place]:
                self.link(one, other)
        self.pass_time(4.0)

    def stop(self, key: str) -> ClusterSite:
        """Kill a site; returns what it leaves."""
        for link in list(self[key].links):
            self.unlink(link)
        return self.sites.pop(key)

    def start(
        self, key: str, left: ClusterSite, boot: int, promised_ends: dict[str, int] | None = None
    ) -> None:
        """Begin a new run with what an earlier one has left on disk; with `promised_ends` in place of the last."""
        node = ClusterNode(key, boot, len(left.log), left.positions(), self.settings_of(key), BitMatcher())
        for name, mailbox in left.mailboxes.items():
            node.restore(name, mailbox.predicate, mailbox.since, mailbox.acknowledged)
            mailbox.read = 0
        node.restore_claims(left.claims, left.clusters)
        for site, (version, wanted) in left.advertisements.items():
            node.restore_advertisement(site, version, wanted)
        node.restore_meetings(left.node.promised_ends() if promised_ends is None else promised_ends, {})
        self.sites[key] = ClusterSite(
            node,
            left.log,
            left.mailboxes,
            claims=left.claims,
            clusters=left.clusters,
            advertisements=left.advertisements,
        )

    def say(self, source: str, destination: str, body: ClusterBody) -> None:
        """Have a site get a note, whether the source has sent it or not."""
        link = next(iter(self[destination].links))
        note = ClusterNote(source, destination, 0, body)
        self.do(destination, self[destination].node.received(link, note, self.now))

    def arrive(self, key: str, link: int, body: bytes) -> None:
        self.do(key, self[key].node.received(link, decode_frame(body), self.now))

    def encode(self, message: ClusterFrame) -> bytes:
        return encode_frame(message)

    def carry_out(self, key: str, instruction: object) -> None:
        site = self[key]
        match instruction:
            case SendNote(link, note):
                self.send(key, link, note, encode_frame(note))
            case StoreClaims(number, claims, clusters):
                site.claims, site.clusters = claims, clusters
                self.do(key, site.node.claims_stored(number))
            case StoreAdvertisement(other, version, wanted) if wanted is not None:
                site.advertisements[other] = version, wanted
                self.do(key, site.node.advertisement_stored(other, version))
            case StoreAdvertisement(other):
                site.advertisements.pop(other, None)
            case _:
                super().carry_out(key, instruction)
