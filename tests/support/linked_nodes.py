"""Overlay nodes wired together in memory: frames arrive in order when `settle` is called, and disks are immediate."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay import (
    AnnounceGap,
    Append,
    CloseLink,
    Instruction,
    LeaveOverlay,
    NodeSettings,
    OverlayMessage,
    OverlayNode,
    Packet,
    Refuse,
    Register,
    Rewind,
    SendMessage,
    Unregister,
    decode_message,
    encode_message,
    site_key,
)

Kind = TypeVar("Kind", bound=Instruction)

EVERYTHING = EncodedPredicate(NOTHING.encoding, NOTHING.bits, NOTHING.hashes, (), (bytes(8),))
PARIS, LYON, BONN, OSLO = (site_key(name, bytes(8)) for name in ("paris", "lyon", "bonn", "oslo"))


def predicate(bit: int) -> EncodedPredicate:
    """One of 64 predicates that differ."""
    vector = (1 << bit).to_bytes(8, "little")
    return EncodedPredicate(NOTHING.encoding, NOTHING.bits, NOTHING.hashes, (), (vector,))


@dataclass
class Mailbox:
    predicate: EncodedPredicate
    since: int
    offsets: list[int] = field(default_factory=list)
    read: int = 0


@dataclass
class Site:
    """A node, its log of (payload, origin, offset there), and what it was asked to do."""

    node: OverlayNode
    log: list[tuple[bytes, str | None, int]] = field(default_factory=list)
    mailboxes: dict[str, Mailbox] = field(default_factory=dict)
    done: list[Instruction] = field(default_factory=list)
    links: dict[int, tuple[str, int]] = field(default_factory=dict)
    registers: bool = True
    appends: bool = True

    def imported(self, origin: str) -> list[bytes]:
        return [payload for payload, source, _ in self.log if source == origin]

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.done if isinstance(each, kind)]

    def sent(self, *kinds: type[OverlayMessage]) -> list[OverlayMessage]:
        return [
            each.message
            for each in self.done
            if isinstance(each, SendMessage) and isinstance(each.message, kinds)
        ]

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.done if isinstance(each, Refuse)]


class LinkedNodes:
    """`loses` decides whether a frame is lost on its way."""

    def __init__(self, settings: NodeSettings | None = None) -> None:
        self.settings = settings or NodeSettings()
        self.now = 0.0
        self.sites: dict[str, Site] = {}
        self.frames: deque[tuple[str, int, bytes]] = deque()
        self.loses: Callable[[OverlayMessage], bool] = lambda message: False
        self._links = 0

    def __getitem__(self, key: str) -> Site:
        return self.sites[key]

    def add(self, *keys: str, boot: int = 1, settings: NodeSettings | None = None) -> None:
        for key in keys:
            self.sites[key] = Site(OverlayNode(key, boot, 0, {}, settings or self.settings))

    def restart(self, key: str, boot: int) -> None:
        """Begin a new run with the log and the mailboxes of the old one; everything else is forgotten."""
        old = self.sites[key]
        for link in list(old.links):
            self.unlink(link)
        positions: dict[str, int] = {}
        for _, origin, offset in old.log:
            if origin is not None:
                positions[origin] = offset + 1
        node = OverlayNode(key, boot, len(old.log), positions, self.settings)
        for site, mailbox in old.mailboxes.items():
            acknowledged = old.node.outgoing.acknowledged_position(site)
            node.restore(site, mailbox.predicate, mailbox.since, acknowledged)
            mailbox.read = sum(offset < acknowledged for offset in mailbox.offsets)
        self.sites[key] = Site(node, old.log, old.mailboxes)

    def renew(self, key: str, new_key: str, boot: int) -> None:
        """Begin a new run under a new key, as a site does that was asked to leave."""
        (leave,) = self[key].of(LeaveOverlay)
        self[key].mailboxes.clear()
        self.restart(key, boot)
        old = self.sites.pop(key)
        positions = old.node.incoming.positions()
        node = OverlayNode(new_key, boot, len(old.log), positions, self.settings)
        node.restore_meetings({}, {}, leave.given_anew)
        self.sites[new_key] = Site(node, old.log)

    def link(self, one: str, other: str, cost: int = 1) -> int:
        self._links += 1
        for here, there in ((one, other), (other, one)):
            self[here].links[self._links] = there, self._links
        for here, there in ((one, other), (other, one)):
            self.do(here, self[here].node.link_opened(self._links, there, cost, self.now))
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
        """Append events of local publishers; they match all predicates but NOTHING."""
        site = self[key]
        for payload in payloads:
            for mailbox in site.mailboxes.values():
                if mailbox.predicate != NOTHING:
                    mailbox.offsets.append(len(site.log))
            site.log.append((payload, None, 0))
        site.node.position = len(site.log)
        self.settle()

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
            self.receive(key, link, decode_message(body))
        raise AssertionError("there is no end to it")

    def offer(self, key: str) -> None:
        site, node = self[key], self[key].node
        for other, mailbox in site.mailboxes.items():
            if other in node.outgoing and node.outgoing.wanted_bytes(other):
                items = [(offset, site.log[offset][0]) for offset in mailbox.offsets[mailbox.read :]]
                mailbox.read = len(mailbox.offsets)
                node.offered(other, node.outgoing.generation(other), items)
        self.do(key, node.flush(self.now))

    def receive(self, key: str, link: int, message: OverlayMessage) -> None:
        self.do(key, self[key].node.received(link, message, self.now))

    def do(self, key: str, instructions: list[Instruction]) -> None:
        site = self[key]
        site.done += instructions
        for each in instructions:
            match each:
                case SendMessage(link, message) if link in site.links and not self.loses(message):
                    peer, number = site.links[link]
                    self.frames.append((peer, number, encode_message(message)))
                case Register() if site.registers:
                    self.register(key, each)
                case Unregister(other):
                    site.mailboxes.pop(other, None)
                case Rewind(other, after) if other in site.mailboxes:
                    mailbox = site.mailboxes[other]
                    mailbox.read = sum(offset <= after for offset in mailbox.offsets)
                case Append(origin, end, events) if site.appends:
                    site.log += [(payload, origin, offset) for offset, payload in events]
                    site.node.position = len(site.log)
                    self.do(key, site.node.appended(origin, end))
                case CloseLink(link):
                    self.unlink(link)
                case LeaveOverlay():
                    for link in list(site.links):
                        self.unlink(link)

    def register(self, key: str, wanted: Register) -> None:
        site = self[key]
        position = len(site.log)
        mailbox = site.mailboxes.setdefault(wanted.site, Mailbox(wanted.predicate, position))
        mailbox.predicate, mailbox.since = wanted.predicate, position
        self.do(key, site.node.registered(wanted.site, wanted.version, wanted.predicate, position, position))


def is_packet(message: OverlayMessage) -> bool:
    return isinstance(message, Packet)


def gaps(site: Site) -> list[AnnounceGap]:
    return site.of(AnnounceGap)
