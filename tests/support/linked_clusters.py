"""Cluster nodes wired together in memory: frames arrive in order when `settle` is called, and disks are immediate."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay.clusters.cluster_instructions import (
    ClusterInstruction,
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
from culver.overlay.clusters.cluster_node import ClusterNode, ClusterSettings
from culver.overlay.core.node_instructions import (
    AnnounceGap,
    Append,
    MoveCursor,
    Refuse,
    Register,
    Rewind,
    SendMessage,
    Unregister,
)
from culver.overlay.core.outgoing_streams import MailboxGap
from support.linked_nodes import EVERYTHING, predicate


class BitMatcher:
    """An event `7 ...` matches `predicate(7)`, and all that want everything."""

    def __init__(self) -> None:
        self.predicates: dict[str, EncodedPredicate] = {}

    def change(self, site: str, predicate: EncodedPredicate | None) -> None:
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
class ClusterMailbox:
    acknowledged: int
    offsets: list[int] = field(default_factory=list)
    read: int = 0
    gaps: list[MailboxGap] = field(default_factory=list)


@dataclass
class ClusterSite:
    """A node, its log of (payload, origin, offset there), and what it was asked to do."""

    node: ClusterNode
    log: list[tuple[bytes, str | None, int]] = field(default_factory=list)
    mailboxes: dict[str, ClusterMailbox] = field(default_factory=dict)
    claims: tuple[MemberClaim, ...] = ()
    advertisements: dict[str, tuple[int, EncodedPredicate]] = field(default_factory=dict)
    done: list[ClusterInstruction] = field(default_factory=list)
    links: dict[int, str] = field(default_factory=dict)

    def imported(self, origin: str) -> list[bytes]:
        return [payload for payload, source, _ in self.log if source == origin]

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.done if isinstance(each, Refuse)]

    @property
    def gaps(self) -> list[AnnounceGap]:
        return [each for each in self.done if isinstance(each, AnnounceGap)]

    def said(self, kind: type[ClusterBody]) -> list[ClusterBody]:
        notes = [each.note.body for each in self.done if isinstance(each, SendNote)]
        return [body for body in notes if isinstance(body, kind)]


class LinkedClusters:
    """`loses` decides whether a frame is lost on its way."""

    def __init__(self, clusters: int = 0) -> None:
        self.settings = ClusterSettings(clusters)
        self.now = 0.0
        self.sites: dict[str, ClusterSite] = {}
        self.frames: deque[tuple[str, int, bytes]] = deque()
        self.loses: Callable[[ClusterFrame], bool] = lambda frame: False
        self._links = 0

    def __getitem__(self, key: str) -> ClusterSite:
        return self.sites[key]

    def add(self, *keys: str, boot: int = 1) -> None:
        for key in keys:
            self.sites[key] = ClusterSite(ClusterNode(key, boot, 0, {}, self.settings, BitMatcher()))
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

    def start(self, key: str, left: ClusterSite, boot: int) -> None:
        """Begin a new run with what an earlier one has left on disk."""
        positions: dict[str, int] = {}
        for _, origin, offset in left.log:
            if origin is not None:
                positions[origin] = offset + 1
        node = ClusterNode(key, boot, len(left.log), positions, self.settings, BitMatcher())
        for name, mailbox in left.mailboxes.items():
            node.restore(name, EVERYTHING, 0, mailbox.acknowledged)
            mailbox.read = 0
        node.restore_claims(left.claims)
        for site, (version, wanted) in left.advertisements.items():
            node.restore_advertisement(site, version, wanted)
        node.restore_meetings(left.node.promised_ends(), {})
        self.sites[key] = ClusterSite(node, left.log, left.mailboxes, left.claims, left.advertisements)

    def link(self, one: str, other: str) -> int:
        self._links += 1
        for here, there in ((one, other), (other, one)):
            self[here].links[self._links] = there
        for here, there in ((one, other), (other, one)):
            self.do(here, self[here].node.link_opened(self._links, there, 1, self.now))
        return self._links

    def unlink(self, link: int) -> None:
        self.frames = deque(each for each in self.frames if each[1] != link)
        for key, site in self.sites.items():
            if site.links.pop(link, None) is not None:
                self.do(key, site.node.link_closed(link, self.now))

    def advertise(self, key: str, wanted: EncodedPredicate) -> None:
        self.do(key, self[key].node.advertise(wanted))
        self.settle()

    def publish(self, key: str, *payloads: bytes) -> None:
        site = self[key]
        for payload in payloads:
            for mailbox in site.mailboxes.values():
                mailbox.offsets.append(len(site.log))
            site.log.append((payload, None, 0))
        site.node.position = len(site.log)
        self.settle()

    def say(self, source: str, destination: str, body: ClusterBody) -> None:
        """Have a site get a note, whether the source has sent it or not."""
        link = next(iter(self[destination].links))
        note = ClusterNote(source, destination, 0, body)
        self.do(destination, self[destination].node.received(link, note, self.now))

    def pass_time(self, seconds: float) -> None:
        """Tick ten times a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            for key, site in list(self.sites.items()):
                self.do(key, site.node.tick(self.now))
            self.settle()

    def settle(self) -> None:
        """Deliver frames, and offer what is in the mailboxes, until nothing happens any more."""
        for _ in range(100_000):
            for key in list(self.sites):
                self.offer(key)
            if not self.frames:
                return
            key, link, body = self.frames.popleft()
            if key in self.sites:
                self.do(key, self[key].node.received(link, decode_frame(body), self.now))
        raise AssertionError("there is no end to it")

    def offer(self, key: str) -> None:
        site, node = self[key], self[key].node
        for name, mailbox in site.mailboxes.items():
            if name in node.outgoing and node.outgoing.wanted_bytes(name):
                items: list[tuple[int, bytes] | MailboxGap] = [
                    (offset, site.log[offset][0]) for offset in mailbox.offsets[mailbox.read :]
                ]
                mailbox.read = len(mailbox.offsets)
                node.offered(name, node.outgoing.generation(name), [*mailbox.gaps, *items])
                mailbox.gaps = []
        self.do(key, node.flush(self.now))

    def do(self, key: str, instructions: list[ClusterInstruction]) -> None:
        site = self[key]
        site.done += instructions
        for each in instructions:
            match each:
                case SendMessage(link, message) if link in site.links and not self.loses(message):
                    self.frames.append((site.links[link], link, encode_frame(message)))
                case SendNote(link, note) if link in site.links and not self.loses(note):
                    self.frames.append((site.links[link], link, encode_frame(note)))
                case Register(name, version, wanted):
                    position = len(site.log)
                    mailbox = site.mailboxes.setdefault(name, ClusterMailbox(position))
                    registered = site.node.registered(name, version, wanted, position, mailbox.acknowledged)
                    self.do(key, registered)
                case Unregister(name):
                    site.mailboxes.pop(name, None)
                case MoveCursor(name, offset):
                    site.mailboxes[name].acknowledged = offset + 1
                case Rewind(name, after) if name in site.mailboxes:
                    mailbox = site.mailboxes[name]
                    mailbox.read = sum(offset <= after for offset in mailbox.offsets)
                case StoreClaims(number, claims):
                    site.claims = claims
                    self.do(key, site.node.claims_stored(number))
                case StoreAdvertisement(other, version, wanted) if wanted is not None:
                    site.advertisements[other] = version, wanted
                    self.do(key, site.node.advertisement_stored(other, version))
                case StoreAdvertisement(other):
                    site.advertisements.pop(other, None)
                case Append(origin, end, events):
                    site.log += [(payload, origin, offset) for offset, payload in events]
                    site.node.position = len(site.log)
                    self.do(key, site.node.appended(origin, end))
