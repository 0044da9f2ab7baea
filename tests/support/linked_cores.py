"""Cores of an overlay wired together in memory: frames arrive in order when `settle` is called, and disks are
immediate."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay import AnnounceGap, Append, CloseLink, Refuse, Register, Rewind, SendMessage, Unregister
from culver.overlay.core.incoming_streams import IncomingStreams
from culver.overlay.core.node_instructions import MoveCursor
from culver.overlay.core.outgoing_streams import Offered, OutgoingStreams

Kind = TypeVar("Kind")


@dataclass
class Mailbox:
    predicate: EncodedPredicate
    since: int
    acknowledged: int
    offsets: list[int] = field(default_factory=list)
    read: int = 0
    gaps: list[Offered] = field(default_factory=list)


class Core(Protocol):
    """What the nodes of both ways to route have in common."""

    position: int

    @property
    def outgoing(self) -> OutgoingStreams: ...

    @property
    def incoming(self) -> IncomingStreams: ...

    def link_opened(self, link: int, peer: str, cost: int, now: float) -> list[Any]: ...

    def link_closed(self, link: int, now: float) -> list[Any]: ...

    def advertise(self, predicate: EncodedPredicate) -> list[Any]: ...

    def registered(
        self, site: str, version: int, predicate: EncodedPredicate, position: int, acknowledged: int
    ) -> list[Any]: ...

    def offered(self, site: str, generation: int, items: Iterable[Offered]) -> None: ...

    def flush(self, now: float) -> list[Any]: ...

    def tick(self, now: float) -> list[Any]: ...

    def appended(self, origin: str, end: int) -> list[Any]: ...


CoreNode = TypeVar("CoreNode", bound=Core)


@dataclass
class LinkedSite(Generic[CoreNode]):
    """A node, its log of (payload, origin, offset there), and what it was asked to do."""

    node: CoreNode
    log: list[tuple[bytes, str | None, int]] = field(default_factory=list)
    mailboxes: dict[str, Mailbox] = field(default_factory=dict)
    done: list[Any] = field(default_factory=list)
    links: dict[int, str] = field(default_factory=dict)
    registers: bool = True
    appends: bool = True

    def imported(self, origin: str) -> list[bytes]:
        return [payload for payload, source, _ in self.log if source == origin]

    def positions(self) -> dict[str, int]:
        """How far the log is in those of others."""
        return {origin: offset + 1 for _, origin, offset in self.log if origin is not None}

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.done if isinstance(each, kind)]

    @property
    def reasons(self) -> list[str]:
        return [each.reason for each in self.of(Refuse)]

    @property
    def gaps(self) -> list[AnnounceGap]:
        return self.of(AnnounceGap)


Linked = TypeVar("Linked", bound=LinkedSite[Any])


class LinkedCores(ABC, Generic[Linked]):
    """A subclass makes the sites, and carries out further instructions. `loses` decides whether a frame is lost on
    its way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sites: dict[str, Linked] = {}
        self.frames: deque[tuple[str, int, bytes]] = deque()
        self.loses: Callable[[Any], bool] = lambda message: False
        self._links = 0

    def __getitem__(self, key: str) -> Linked:
        return self.sites[key]

    def link(self, one: str, other: str, cost: int = 1) -> int:
        self._links += 1
        for here, there in ((one, other), (other, one)):
            self[here].links[self._links] = there
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
        """Append events of local publishers; they match all mailboxes but those of NOTHING."""
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
            if key in self.sites:
                self.arrive(key, link, body)
        raise AssertionError("there is no end to it")

    @abstractmethod
    def arrive(self, key: str, link: int, body: bytes) -> None:
        """Have a node take a frame."""

    def offer(self, key: str) -> None:
        site, node = self[key], self[key].node
        for name, mailbox in site.mailboxes.items():
            if name in node.outgoing and node.outgoing.wanted_bytes(name):
                items = [(offset, site.log[offset][0]) for offset in mailbox.offsets[mailbox.read :]]
                mailbox.read = len(mailbox.offsets)
                node.offered(name, node.outgoing.generation(name), [*mailbox.gaps, *items])
                mailbox.gaps = []
        self.do(key, node.flush(self.now))

    def do(self, key: str, instructions: Sequence[Any]) -> None:
        site = self[key]
        site.done += instructions
        for each in instructions:
            self.carry_out(key, each)

    def send(self, key: str, link: int, message: Any, body: bytes) -> None:
        if link in self[key].links and not self.loses(message):
            self.frames.append((self[key].links[link], link, body))

    def carry_out(self, key: str, instruction: object) -> None:
        site = self[key]
        match instruction:
            case SendMessage(link, message):
                self.send(key, link, message, self.encode(message))
            case Register() if site.registers:
                self.register(key, instruction)
            case Unregister(name):
                site.mailboxes.pop(name, None)
            case MoveCursor(name, offset) if name in site.mailboxes:
                site.mailboxes[name].acknowledged = offset + 1
            case Rewind(name, after) if name in site.mailboxes:
                mailbox = site.mailboxes[name]
                mailbox.read = sum(offset <= after for offset in mailbox.offsets)
            case Append(origin, end, events) if site.appends:
                site.log += [(payload, origin, offset) for offset, payload in events]
                site.node.position = len(site.log)
                self.do(key, site.node.appended(origin, end))
            case CloseLink(link):
                self.unlink(link)

    @abstractmethod
    def encode(self, message: Any) -> bytes: ...

    def register(self, key: str, wanted: Register) -> None:
        site = self[key]
        position = len(site.log)
        mailbox = site.mailboxes.setdefault(wanted.site, Mailbox(wanted.predicate, position, position))
        mailbox.predicate, mailbox.since = wanted.predicate, position
        node, acknowledged = site.node, mailbox.acknowledged
        self.do(key, node.registered(wanted.site, wanted.version, wanted.predicate, position, acknowledged))
