"""A site's place in the overlay: the shell around a node, which the strategy of its way to route makes.

    links      --opened, received, closed-->  +------+  --SendMessage, CloseLink-------> links
    predicates --advertise----------------->  | node |  --Register, Unregister--> catalogue
    mailboxes  --offered, flush------------>  |      |  --MoveCursor, Rewind----> mailboxes
    log        --appended------------------>  +------+  --Append, AnnounceGap---> log, received file

What only one way to route needs is in `routing`. Everything runs on the event loop. Instructions are carried out at
once and in their order; those that need the disk begin at once, and answer later. A gap, or an event that was
skipped, is on disk before any acknowledgement that follows it leaves.

A node that finds itself on an older copy of the data directory leaves the overlay. The site drops the mailboxes of
the others then, takes a new key, and joins again: to the others it is a site that lost its data directory.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from culver.config import Settings
from culver.control import Catalogue
from culver.delivery import Hub
from culver.errors import Conflict, CulverError, NotFound
from culver.log import Committer, PublicationLog
from culver.matching import NOTHING, SitePredicate
from culver.messages import ForgottenSite, OverlayStatus
from culver.model import Event
from culver.overlay import (
    AnnounceGap,
    Append,
    CloseLink,
    HearGossip,
    LeaveOverlay,
    Link,
    LinkManager,
    LinkSettings,
    MoveCursor,
    Packet,
    Refuse,
    Register,
    Rewind,
    RoutingFrame,
    RoutingInstruction,
    RoutingNode,
    SendMessage,
    SendNote,
    StoreFloors,
    Unregister,
    name_of,
    site_key,
)
from culver.pipeline import Notifications
from culver.plugins import routing_named
from culver.process_setup import clock_us
from culver.registry import Block, Registration
from culver.site.event_flow import EventFlow
from culver.site.wide_area.effective_positions import EffectivePositions
from culver.site.wide_area.false_positives import FalsePositives
from culver.site.wide_area.imported_events import ImportedEvents
from culver.site.wide_area.local_predicates import LocalPredicates
from culver.site.wide_area.message_traffic import MessageTraffic
from culver.site.wide_area.overlay_report import report
from culver.site.wide_area.received_file import ReceivedFile
from culver.site.wide_area.remote_mailboxes import RemoteMailboxes
from culver.site.wide_area.routing.routing_strategy import RoutingStrategy
from culver.site.wide_area.site_membership import SiteMembership, neighbours_of

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_WORK_SECONDS = 1.0
_STORE_SECONDS = 3.0
_RETRY_SECONDS = 1.0
_MOST_REFUSALS = 1_000
_IDENTITY_BYTES = 16


class OverlayRunner:
    """Implements the role `overlay`, the observer of links, and the watcher of the event flow while it runs."""

    def __init__(
        self,
        settings: Settings,
        links: LinkSettings,
        log: PublicationLog,
        committer: Committer,
        catalogue: Catalogue,
        hub: Hub,
        identity: bytes,
    ) -> None:
        self.settings = settings.overlay
        self.key = site_key(settings.overlay.name, identity)
        directory = settings.data_dir / "overlay"
        self.file = ReceivedFile(directory / "received.json")
        self.strategy: RoutingStrategy = routing_named(self.settings.routing)(
            self.settings, directory, self._carry_out
        )
        self.troubles: list[str] = []
        """Tells the operator, in sentences, when this run has taken a new key."""
        self.imported = ImportedEvents(log, committer, settings.events, self._appended, self._append_failed)
        self.false_positives = FalsePositives()
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.traffic = MessageTraffic(self.key, self.strategy.read, self._refuse)
        self.node: RoutingNode
        self.membership: SiteMembership
        self.mailboxes_of_sites: RemoteMailboxes
        self.links: LinkManager | None = None
        self.advertised_at = 0.0
        self._link_settings = links
        self._identity = identity
        self._log = log
        self._catalogue = catalogue
        self._hub = hub
        self._local = LocalPredicates(self.strategy.new_summary(), catalogue.new_predicate, self._advertise)
        self._effective = EffectivePositions(self.strategy, self._local.version_of)
        self._predicate: SitePredicate = NOTHING
        self._leaving: asyncio.Future[LeaveOverlay]
        self._storing = asyncio.Lock()
        # Acknowledgements that wait for so many writes of the received file.
        self._awaited_writes = 0
        self._held: list[tuple[int, RoutingFrame]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self, flow: EventFlow) -> AsyncIterator[None]:
        """Recover, advertise, and only then link with others: they would take an empty advertisement at its word."""
        await self._recover()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._local.close)
            flow.watcher = self
            stack.callback(setattr, flow, "watcher", None)
            await self._local.start(self._catalogue.registrations)
            joined = asyncio.get_running_loop().create_future()
            membership = asyncio.create_task(self._take_part(joined))
            stack.push_async_callback(asyncio.wait, [membership])
            stack.callback(membership.cancel)
            await joined
            yield

    async def _recover(self) -> None:
        """Begin with what is on disk, and with no link yet."""
        self.file = ReceivedFile(self.file.path)
        positions = await asyncio.to_thread(self.file.recover, self._log, clock_us())
        self.key = site_key(self.settings.name, self.file.identity or self._identity)
        position = self._log.next_offset
        self.node = await self.strategy.begin(self.key, self.file.boot, position, positions)
        self._effective.node = self.node
        self.node.restore_meetings(self.file.promised, self.file.floors, self.file.given_anew)
        self.membership = SiteMembership(
            self.key,
            self.file.boot,
            self.settings,
            self._link_settings.peers,
            dict(self.file.addresses),
            lambda site, body: self._carry_out(self.node.gossip(site, body)),
            self._refuse,
            Random(),
        )
        self._leaving = asyncio.get_running_loop().create_future()
        self._awaited_writes, self._held = 0, []
        self.mailboxes_of_sites = RemoteMailboxes(
            self._hub, self._catalogue, self.node, self.strategy.has_mailbox, self._carry_out, self.now
        )
        await self.mailboxes_of_sites.restore()
        self._carry_out(self.strategy.advertise(self._predicate))

    async def _take_part(self, joined: "asyncio.Future[None]") -> None:
        """Be linked with others until this is cancelled, under a new key whenever the node leaves the overlay."""
        try:
            while True:
                async with AsyncExitStack() as stack:
                    stack.push_async_callback(self._stop)
                    manager = LinkManager(self._link_settings, self.key, self.file.boot, self, Random())
                    self.links = await stack.enter_async_context(manager)
                    stack.push_async_callback(self._say_farewell)
                    for work in (self._tick, self._tell_work, self._store_now_and_then):
                        self._start(work())
                    if not joined.done():
                        joined.set_result(None)
                    leaving = await asyncio.shield(self._leaving)
                await self._renew(leaving.given_anew)
                await self._recover()
        except Exception as exc:
            if joined.done():
                logger.exception("the site is in no overlay until its next start")
            else:
                joined.set_exception(exc)

    async def _say_farewell(self) -> None:
        self.membership.leave(self.now())
        await asyncio.sleep(0)  # links write in the next turn of the loop

    async def _renew(self, given_anew: int) -> None:
        """Drop the mailboxes of the other sites, and take a new key: in this order, so that a site that is killed
        meanwhile finds out again."""
        while True:
            try:
                await self.mailboxes_of_sites.remove_all()
                await asyncio.to_thread(self.file.renew, secrets.token_bytes(_IDENTITY_BYTES), given_anew)
                return
            except (CulverError, OSError) as exc:
                logger.error("the site cannot take a new key yet: %s", exc)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.imported.close()
        await self.mailboxes_of_sites.close()
        await self.strategy.close()
        try:
            await self._store()
        except OSError as exc:
            logger.warning("the log is searched at the next start: %s", exc)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- the role -------------------------------------------------------------------------------------

    def status(self) -> OverlayStatus | None:
        return report(self)

    async def positions(self, registrations: Sequence[Registration]) -> list[dict[str, int | None]]:
        return [self._effective.of(each, self.other_sites()) for each in registrations]

    async def wait(self, registrations: Sequence[Registration], timeout_seconds: float) -> bool:
        return await self._effective.wait(registrations, timeout_seconds)

    async def forget(self, name: str) -> ForgottenSite:
        keys = self._keys_of(name)
        if not keys:
            raise NotFound(f"this site knows no other site called {name}", field="name")
        if any(self.node.states.reaches(key) for key in keys):
            raise Conflict(
                f"{name} can be reached: stop it first, and then forget it at every other site", field="name"
            )
        streams = {stream for key in keys if (stream := self.strategy.stream_of(key)) is not None}
        events = sum(map(self.mailboxes_of_sites.pending, streams))
        for key in keys:
            self._carry_out(self.node.forget(key))
        await self.strategy.settled()
        for stream in streams:
            await self.mailboxes_of_sites.settled(stream)
        logger.warning("%s is forgotten; dropped events that waited for it: %d", name, events)
        self._effective.changed()
        return ForgottenSite(name=name, keys=keys, events=events)

    @property
    def description(self) -> str | None:
        """The site's place in the overlay, as a line for its operator."""
        where = f"listens for other sites on {self.address}" if self.address else "dials other sites"
        return f"Site {self.settings.name} {where}"

    @property
    def address(self) -> str:
        """The address that other sites connect to; empty where they cannot."""
        listen = self._link_settings.listen
        if not listen or self.links is None:
            return listen
        return f"{listen.rpartition(':')[0]}:{self.links.port}"

    @property
    def mailboxes(self) -> int:
        """The number of the hub's mailboxes that belong to other sites."""
        return len(self.mailboxes_of_sites)

    def needed_from(self, position: int) -> int:
        """The lowest position that the log must keep, where everybody else needs it from `position` on."""
        return min(self.file.position, position)

    def other_sites(self) -> list[str]:
        """The keys of all sites that this one knows of, by name; of several with one name, the one that is there."""
        node = self.node
        chosen: dict[str, str] = {}
        for key in sorted(self._known(), key=lambda each: (node.states.reaches(each), each)):
            chosen[name_of(key)] = key
        return [chosen[name] for name in sorted(chosen)]

    def _known(self) -> set[str]:
        known = self.strategy.known_sites() - {self.node.own}
        return {key for key in known if not self.node.is_forgotten(key)}

    def _keys_of(self, name: str) -> list[str]:
        return sorted(key for key in self._known() if name_of(key) == name)

    # --- what happens at the site ---------------------------------------------------------------------

    def committed(self, first_offset: int, events: Sequence[Event]) -> None:
        self.node.position = max(first_offset + len(events), self.node.position)
        self.false_positives.committed(first_offset, events)

    def registered(self, registrations: Iterable[Registration | Block]) -> None:
        self._local.register(registrations)

    def accepted(self, notifications: Notifications) -> None:
        self.false_positives.accepted(notifications)

    def _advertise(self, predicate: SitePredicate) -> int:
        self._predicate = predicate
        before = self.node.book.version
        self._carry_out(self.strategy.advertise(predicate))
        if self.node.book.version != before:
            self.advertised_at = self.now()
        self._effective.changed()
        return self.node.book.version

    def _appended(self, origin: str, end: int, has_skipped: bool) -> None:
        if has_skipped:
            self._hold_acknowledgements()
        self._carry_out(self.node.appended(origin, end))

    def _append_failed(self, origin: str) -> None:
        self._carry_out(self.node.append_failed(origin))

    # --- links ----------------------------------------------------------------------------------------

    def opened(self, link: Link) -> None:
        self.traffic.opened(link)
        logger.info("linked with %s at %s", link.peer.key, link.peer.address)
        now = self.now()
        self._carry_out(self.node.link_opened(link.number, link.peer.key, link.peer.cost, now))
        self.membership.linked(neighbours_of(self.traffic.links.values()), now)

    def received(self, link: Link, body: bytes) -> None:
        if self._leaving.done():
            return  # what the node takes now would be stored, and its instructions would not be carried out
        message = self.traffic.read(link, body)
        if message is not None:
            self._carry_out(self.node.received(link.number, message, self.now()))
            if not isinstance(message, Packet):
                self._effective.changed()
            if self.strategy.makes_room(message):
                self.mailboxes_of_sites.make_room()

    def closed(self, link: Link, reason: str) -> None:
        self.traffic.closed(link)
        logger.info("the link with %s at %s is closed: %s", link.peer.key, link.peer.address, reason)
        now = self.now()
        self._carry_out(self.node.link_closed(link.number, now))
        if link.peer.key not in neighbours_of(self.traffic.links.values()):
            self.membership.unlinked(link.peer.key, now)
        self._effective.changed()

    def refused(self, address: str, reason: str) -> None:
        logger.warning("no link with %s: %s", address, reason)
        self.refusals["links", reason if len(self.refusals) < _MOST_REFUSALS else "other"] += 1

    # --- instructions ---------------------------------------------------------------------------------

    def _carry_out(self, instructions: Sequence[RoutingInstruction]) -> None:
        if self._leaving.done():
            return
        for each in instructions:
            match each:
                case SendMessage(link, message) | SendNote(link, message):
                    self._send(link, message)
                case Append():
                    self.imported.append(each)
                case MoveCursor(site, offset):
                    self.mailboxes_of_sites.move_cursor(site, offset)
                case Rewind(site, after):
                    self.mailboxes_of_sites.rewind(site, after)
                case Register():
                    self.mailboxes_of_sites.register(each)
                case Unregister(site):
                    self.mailboxes_of_sites.unregister(site)
                case AnnounceGap():
                    self._announce(each)
                case StoreFloors():
                    self._hold_acknowledgements()
                case LeaveOverlay():
                    self._leave(each)
                case HearGossip(source, body):
                    self.membership.received(source, body, self.now())
                case Refuse(source, reason, severe):
                    self._refuse(source, reason, severe=severe)
                case CloseLink(number, reason):
                    self.traffic.close(number, reason)
                case _:
                    self.strategy.carry_out(each)

    def _send(self, link: int, message: RoutingFrame) -> None:
        if self._awaited_writes and self.strategy.is_acknowledgement(message):
            self._held.append((link, message))
        else:
            self.traffic.send(link, message)

    def _leave(self, instruction: LeaveOverlay) -> None:
        text = (
            f"this site runs on an older copy of its data directory: {instruction.reason}. It takes a new key "
            "and drops what waited here for other sites; they announce gaps"
        )
        logger.error("%s", text)
        self.troubles.append(text)
        self._leaving.set_result(instruction)

    def _announce(self, gap: AnnounceGap) -> None:
        # Of a site that lost its data directory, nobody may know how far its log was.
        end = f"to {gap.end - 1}" if gap.end > gap.start else "on"
        logger.warning(
            "events of %s from offset %d %s may be missing: %s", gap.origin, gap.start, end, gap.reason
        )
        self.file.add_gap(gap.origin, gap.start, gap.end, gap.reason)
        self._hold_acknowledgements()

    def _hold_acknowledgements(self) -> None:
        """Send no acknowledgement before the received file has what the log does not show."""
        self._awaited_writes += 1
        self._start(self._store_and_acknowledge())

    async def _store_and_acknowledge(self) -> None:
        while True:
            try:
                await self._store()
                break
            except OSError as exc:
                logger.error("%s cannot be written, and other sites wait: %s", self.file.path, exc)
                await asyncio.sleep(_RETRY_SECONDS)
        self._awaited_writes -= 1
        if not self._awaited_writes:
            held, self._held = self._held, []
            for link, message in held:
                self._send(link, message)

    def _refuse(self, source: str, reason: str, *, severe: bool = False) -> None:
        pair = (source, reason)
        if pair not in self.refusals:
            if len(self.refusals) >= _MOST_REFUSALS:
                pair = ("others", "other")
            logger.log(logging.ERROR if severe else logging.WARNING, "%s: %s", source, reason)
        self.refusals[pair] += 1

    # --- time -----------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                now = self.now()
                self._carry_out(self.node.tick(now))
                if self.links is not None:
                    self.membership.tick(self.links, self.node.position, now)
            except Exception:
                logger.exception("the overlay's tick failed and is tried again")

    async def _tell_work(self) -> None:
        """Tell how long the loop's thread has worked, on whatever it was: what is left of each second is the room for
        more messages."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(_WORK_SECONDS)
            now = time.thread_time()
            self.strategy.worked(now - before)
            before = now

    async def _store_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_STORE_SECONDS)
            try:
                await self._store()
            except OSError as exc:
                logger.error("the positions in other sites' logs cannot be stored: %s", exc)

    async def _store(self) -> None:
        """Store how far the log is in the logs of the others. Raises OSError."""
        async with self._storing:
            node = self.node
            self.file.promised, self.file.floors = node.promised_ends(), node.floors()
            self.file.addresses = dict(self.membership.addresses)
            await self.file.store(self.imported.floor(), node.incoming.positions())

    # --- all of them ----------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
