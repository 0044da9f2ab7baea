"""A site of the overlay on virtual time: the node of production, with a disk, mailboxes and links around it.

The disk outlives the process: the log, the registrations and cursors of other sites, the local subscriptions. What
the process has not synced is gone when it is killed.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, cast

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay import site_key
from culver.overlay.core.node_instructions import (
    AnnounceGap,
    Append,
    CloseLink,
    Instruction,
    LeaveOverlay,
    MoveCursor,
    Refuse,
    Register,
    Rewind,
    SendMessage,
    StoreFloors,
    Unregister,
)
from culver.overlay.core.overlay_messages import OverlayMessage, Packet, encode_message
from culver.overlay.core.overlay_node import NodeSettings, OverlayNode
from culver.simulation.simulated_network import ConnectionEnd, ConnectionListener, SimulatedNetwork
from culver.simulation.site_disk import LoggedEvent, SiteDisk, SiteMailbox
from culver.simulation.virtual_clock import VirtualClock, VirtualTimer

_TICK_SECONDS = 0.1
_FLUSH_SECONDS = 0.001
_RECONNECT_SECONDS = 0.5
_RENEW_SECONDS = 0.2


class OverlayWatcher:
    """Hears what happens at the sites; an oracle overrides what it needs."""

    def appended(self, site: "SimulatedSite", event: LoggedEvent) -> None: ...

    def published(self, site: "SimulatedSite", offset: int) -> None: ...

    def gap(self, site: "SimulatedSite", gap: AnnounceGap) -> None: ...

    def refused(self, site: "SimulatedSite", refusal: Refuse) -> None: ...

    def sent(self, site: "SimulatedSite", peer: str, message: OverlayMessage) -> None: ...

    def advertised(self, site: "SimulatedSite", predicate: EncodedPredicate) -> None: ...

    def crashing(self, site: "SimulatedSite") -> None: ...

    def restored(self, site: "SimulatedSite", lost: SiteDisk) -> None: ...

    def renewed(self, site: "SimulatedSite", old_key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SiteFaults:
    """The shares of packets that a link drops, sends twice, or sends late, and how the disk behaves."""

    drop: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    late_seconds: float = 0.3
    disk_seconds: float = 0.003
    disk_refuses: float = 0.0


class EventPool(NamedTuple):
    """The events of a run, and what matches them: an encoded predicate, and the local subscription of a number.
    `encode` makes the advertisement of some subscriptions."""

    payloads: Sequence[bytes]
    encoded_matches: Callable[[EncodedPredicate, int], bool]
    encode: Callable[[frozenset[int]], EncodedPredicate]


NodeMaker = Callable[[str, int, int, Mapping[str, int], NodeSettings], OverlayNode]


class SimulatedSite:
    """`peers` are the nodes that it dials, each with the cost of the link. `make_node` may make a node that routes in
    another way."""

    def __init__(
        self,
        name: str,
        peers: dict[str, int],
        network: SimulatedNetwork,
        clock: VirtualClock,
        random: Random,
        pool: EventPool,
        watcher: OverlayWatcher,
        faults: SiteFaults,
        settings: NodeSettings = NodeSettings(),  # noqa: B008  (frozen)
        *,
        measures_bytes: bool = False,
        make_node: NodeMaker = OverlayNode,
    ) -> None:
        self.name = name
        self.peers = peers
        self.faults = faults
        self._network = network
        self._clock = clock
        self._random = random
        self._pool = pool
        self._watcher = watcher
        self._settings = settings
        self._measures_bytes = measures_bytes
        self._make_node = make_node
        self._boots = 0
        self.disk = SiteDisk(random.randbytes(8))
        self.key = site_key(name, self.disk.identity)
        self.node: OverlayNode | None = None
        self._links: dict[int, ConnectionEnd] = {}
        self._ends: dict[ConnectionEnd, int] = {}
        self._numbers = 0
        self._read: dict[str, int] = {}
        # The mailboxes that may have more than was read: a dict for its order.
        self._unread: dict[str, None] = {}
        self._timers: list[VirtualTimer] = []
        self._flush: VirtualTimer | None = None
        self._narrowing: VirtualTimer | None = None
        self.advertised: frozenset[int] = frozenset()
        self.versions: dict[int, int] = {}
        """The version of the advertisement that first had each subscription, in this run."""

    @property
    def is_running(self) -> bool:
        return self.node is not None

    # --- the process ----------------------------------------------------------------------------------

    def start(self) -> None:
        assert self.node is None
        self._boots += 1
        disk = self.disk
        boot = int(self._clock.now * 1_000_000) + self._boots
        self.node = self._make_node(self.key, boot, len(disk.log), disk.positions(), self._settings)
        for site, mailbox in disk.mailboxes.items():
            self.node.restore(site, mailbox.predicate, mailbox.since, mailbox.acknowledged, mailbox.begun)
        self.node.restore_meetings(disk.promised, disk.floors, disk.given_anew)
        self._read = {
            site: _after(mailbox.offsets, mailbox.acknowledged - 1)
            for site, mailbox in disk.mailboxes.items()
        }
        self._unread = dict.fromkeys(self._read)
        self.advertised = frozenset()
        self.versions = {}
        self._network.listen(self.name, lambda peer: _Listener(self, 0))
        self._advertise(frozenset(disk.subscriptions))
        for peer in self.peers:
            self._dial(peer)
        self._tick(self.node)

    def crash(self, *, silently: bool = False) -> None:
        """Kill the process. What is not on disk is gone."""
        assert self.node is not None
        self._watcher.crashing(self)
        self.node = None
        self._network.crash(self.name, silently=silently)
        self._links.clear()
        self._ends.clear()
        for timer in (self._flush, self._narrowing):
            if timer is not None:
                timer.cancel()
        self._flush = self._narrowing = None
        self.disk.lose_unsynced()

    def forget(self) -> None:
        """Lose the data directory; the process must not run."""
        assert self.node is None
        subscriptions = self.disk.subscriptions
        self.disk = SiteDisk(self._random.randbytes(8))
        self.key = site_key(self.name, self.disk.identity)
        self.disk.subscriptions = subscriptions

    def restore(self, copied: SiteDisk) -> None:
        """Go back to an earlier copy of the disk; the process must not run."""
        assert self.node is None
        assert copied.identity == self.disk.identity
        lost, self.disk = self.disk, copied.copy()
        self._watcher.restored(self, lost)

    def _renew(self, given_anew: int) -> None:
        """Begin anew under a new key a moment later."""
        old_key = self.key
        self.crash()
        self.disk.renew(self._random.randbytes(8), given_anew)
        self.key = site_key(self.name, self.disk.identity)
        self._watcher.renewed(self, old_key)
        self._clock.after(_RENEW_SECONDS, lambda: None if self.is_running else self.start())

    def publish(self, number: int) -> None:
        """Append an event of a local publisher."""
        self._append([LoggedEvent(number)], lambda ok: None)

    def subscribe(self, number: int) -> None:
        """A local subscription is on disk, and advertised at once."""
        self.disk.subscriptions.add(number)
        self._advertise(self.advertised | {number})

    def unsubscribe(self, number: int) -> None:
        """A local subscription ends; the advertisement becomes narrower a while later."""
        self.disk.subscriptions.discard(number)
        if self._narrowing is None:
            self._narrowing = self._clock.after(0.5, self._narrow)

    def _narrow(self) -> None:
        self._narrowing = None
        self._advertise(frozenset(self.disk.subscriptions))

    def _advertise(self, subscriptions: frozenset[int]) -> None:
        node = self.node
        assert node is not None
        self.advertised = subscriptions
        predicate = self._pool.encode(subscriptions) if subscriptions else NOTHING
        self._watcher.advertised(self, predicate)
        self._run(node.advertise(predicate))
        for number in subscriptions:
            self.versions.setdefault(number, node.book.version)
        for number in self.versions.keys() - subscriptions:
            del self.versions[number]

    def _tick(self, node: OverlayNode) -> None:
        if self.node is node:
            self._run(node.tick(self._clock.now))
            self._pump()
            self.disk.skipped.update(node.incoming.positions())
            self.disk.promised, self.disk.floors = node.promised_ends(), node.floors()
            self._clock.after(_TICK_SECONDS, lambda: self._tick(node))

    # --- links ----------------------------------------------------------------------------------------

    def _dial(self, peer: str) -> None:
        if self.node is not None:
            self._network.connect(self.name, peer, _Listener(self, self.peers[peer], dials=True))

    def dial_later(self, peer: str) -> None:
        node = self.node
        pause = _RECONNECT_SECONDS * self._random.uniform(0.5, 1.5)
        self._clock.after(pause, lambda: self._dial(peer) if self.node is node else None)

    def greeted(self, end: ConnectionEnd, key: str, cost: int) -> None:
        """The other end has said who it is."""
        assert self.node is not None
        self._numbers += 1
        self._links[self._numbers], self._ends[end] = end, self._numbers
        self._run(self.node.link_opened(self._numbers, key, cost, self._clock.now))

    def received(self, end: ConnectionEnd, message: OverlayMessage) -> None:
        if self.node is not None and end in self._ends:
            self._run(self.node.received(self._ends[end], message, self._clock.now))
            self._pump()

    def closed(self, end: ConnectionEnd) -> None:
        link = self._ends.pop(end, None)
        if self.node is not None and link is not None:
            del self._links[link]
            self._run(self.node.link_closed(link, self._clock.now))

    def _transmit(self, link: int, message: OverlayMessage) -> None:
        end = self._links.get(link)
        if end is None or not end.is_open:
            return
        self._watcher.sent(self, end.peer_node, message)
        size = len(encode_message(message)) + 8 if self._measures_bytes else 64
        if not isinstance(message, Packet):
            end.send(message, size)
            return
        fate, faults = self._random.random(), self.faults
        if fate < faults.drop:
            return
        if fate < faults.drop + faults.twice:
            end.send(message, size)
        elif fate < faults.drop + faults.twice + faults.late:
            delay = self._random.uniform(0, faults.late_seconds)
            self._clock.after(delay, lambda: end.send(message, size) if end.is_open else None)
            return
        end.send(message, size)

    # --- instructions ---------------------------------------------------------------------------------

    def _run(self, instructions: Sequence[Instruction]) -> None:
        for each in instructions:
            match each:
                case SendMessage(link, message):
                    self._transmit(link, message)
                case Append():
                    self._import(each)
                case MoveCursor(site, offset):
                    self._move_cursor(site, offset + 1)
                    self._flush_soon()
                case Rewind(site, after):
                    if site in self.disk.mailboxes:
                        self._read[site] = _after(self.disk.mailboxes[site].offsets, after)
                        self._unread[site] = None
                case Register():
                    self._register(each)
                case Unregister(site):
                    self.disk.mailboxes.pop(site, None)
                    self._read.pop(site, None)
                case AnnounceGap():
                    self.disk.skipped[each.origin] = max(each.end, self.disk.skipped.get(each.origin, 0))
                    self._watcher.gap(self, each)
                case StoreFloors():
                    self.disk.floors = {} if self.node is None else self.node.floors()
                case LeaveOverlay(given_anew):
                    self._renew(given_anew)
                case Refuse():
                    self._watcher.refused(self, each)
                case CloseLink(link):
                    end = self._links.get(link)
                    if end is not None:
                        end.close()
                        self.closed(end)

    def _register(self, wanted: Register) -> None:
        node = self.node

        def done() -> None:
            if self.node is not node or node is None:
                return
            position = self.disk.synced
            mailbox = self.disk.mailboxes.get(wanted.site)
            if mailbox is None:
                mailbox = SiteMailbox(wanted.predicate, position, position, position)
                self.disk.mailboxes[wanted.site] = mailbox
                self._read[wanted.site] = 0
            mailbox.predicate, mailbox.since = wanted.predicate, position
            self._run(
                node.registered(wanted.site, wanted.version, wanted.predicate, position, mailbox.acknowledged)
            )

        self._clock.after(self._random.uniform(0.002, 0.03), done)

    def _move_cursor(self, site: str, position: int) -> None:
        mailbox, node = self.disk.mailboxes.get(site), self.node

        def synced() -> None:
            if self.node is node and mailbox is not None:
                mailbox.acknowledged = max(mailbox.acknowledged, position)

        self._clock.after(self._disk_delay(), synced)

    def _import(self, append: Append) -> None:
        node = self.node
        assert node is not None
        events = [LoggedEvent(int(payload[:8]), append.origin, offset) for offset, payload in append.events]

        def done(ok: bool) -> None:
            if not ok:
                self._run(node.append_failed(append.origin))
                return
            self._run(node.appended(append.origin, append.end))

        self._append(events, done)

    def _append(self, events: Sequence[LoggedEvent], done: Callable[[bool], None]) -> None:
        """Append to the log; `done` hears once that is on disk, or that it is refused."""
        node, disk = self.node, self.disk
        if self._random.random() < self.faults.disk_refuses:
            self._clock.after(self._disk_delay(), lambda: done(False) if self.node is node else None)
            return
        disk.log += events
        end = len(disk.log)

        def synced() -> None:
            if self.node is not node or node is None:
                return
            for offset in range(disk.synced, end):
                self._matched(offset)
            disk.synced = max(disk.synced, end)
            node.position = disk.synced
            done(True)
            self._pump()

        self._clock.after(self._disk_delay(), synced)

    def _matched(self, offset: int) -> None:
        event = self.disk.log[offset]
        if event.origin is not None:
            self._watcher.appended(self, event)
            return
        self._watcher.published(self, offset)
        for site, mailbox in self.disk.mailboxes.items():
            if offset >= mailbox.since and self._pool.encoded_matches(mailbox.predicate, event.number):
                mailbox.offsets.append(offset)
                self._unread[site] = None

    def _pump(self) -> None:
        """Offer what the mailboxes have, as far as it is wanted."""
        node = self.node
        if node is None:
            return
        for site in list(self._unread):
            mailbox, read = self.disk.mailboxes.get(site), self._read.get(site, 0)
            if mailbox is None or read == len(mailbox.offsets):
                del self._unread[site]
                continue
            if site not in node.outgoing:
                continue
            wanted = node.outgoing.wanted_bytes(site)
            items: list[tuple[int, bytes]] = []
            while read < len(mailbox.offsets) and wanted > 0:
                offset = mailbox.offsets[read]
                payload = self._pool.payloads[self.disk.log[offset].number]
                items.append((offset, payload))
                wanted -= len(payload)
                read += 1
            if items:
                self._read[site] = read
                node.offered(site, node.outgoing.generation(site), items)
                self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush is None:
            self._flush = self._clock.after(_FLUSH_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._flush = None
        if self.node is not None:
            self._run(self.node.flush(self._clock.now))

    def _disk_delay(self) -> float:
        return self.faults.disk_seconds


class _Listener(ConnectionListener):
    """One end of a link: says who it is, and hears who the other one is."""

    def __init__(self, site: SimulatedSite, cost: int, *, dials: bool = False) -> None:
        self._site = site
        self._cost = cost
        self._dials = dials
        self._greeted = False

    def opened(self, end: ConnectionEnd) -> None:
        end.send(("hello", self._site.key, self._cost))

    def received(self, end: ConnectionEnd, message: object) -> None:
        if self._greeted:
            self._site.received(end, cast(OverlayMessage, message))
            return
        assert isinstance(message, tuple)
        self._greeted = True
        if self._site.is_running:
            self._site.greeted(end, message[1], self._cost or message[2])

    def closed(self, end: ConnectionEnd) -> None:
        self._site.closed(end)
        if self._dials:
            self._site.dial_later(end.peer_node)


def _after(offsets: Sequence[int], after: int) -> int:
    return bisect_right(offsets, after)
