"""The hub takes notifications from the pipeline and serves the sessions of a site's subscriptions: all of them, or
those of one gateway's share.

It is the shell around `Mailboxes` and `LiveBuffer`, which decide. Files, cursors, threads and the event loop are here
and in the modules that it names.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.config import DeliverySettings
from culver.delivery import delivery_kernels
from culver.delivery.channel_targets import ChannelTargets
from culver.delivery.deliveries import Delivery, DeliveryGap, Waiting
from culver.delivery.live_buffer import LiveBuffer
from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailbox_keeper import MailboxKeeper
from culver.delivery.mailboxes.mailboxes import Mailboxes, SetCursor
from culver.delivery.merged.merged_session import MergedSession
from culver.delivery.merged.selection import Selection
from culver.delivery.payload_reader import PayloadReader
from culver.delivery.ranges.file_keeper import FileKeeper, Followers
from culver.delivery.ranges.followed_files import FileRange, FollowedFiles
from culver.delivery.ranges.notification_directory import NotificationFiles
from culver.delivery.session_table import SessionTable, ended
from culver.delivery.shares import Share
from culver.delivery.subscriber_sessions import (
    DurableSession,
    LiveSession,
    SubscriberSession,
    items_of,
)
from culver.errors import Conflict, InvalidRequest, StorageError, Unavailable
from culver.jit import Integers
from culver.log import DamagedEvents, ReadableLog
from culver.pipeline import Notifications, notification_file_name
from culver.registry import Block, Registration
from culver.sealed import SealFile, seal_path

logger = logging.getLogger(__name__)

_MOST_UNSTORED_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FinishedRegistrations:
    """Registrations that have ended and have nothing left to deliver, by number; blocks by their first number."""

    numbers: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


class Hub:
    """Implements the pipeline's NotificationSink. Everything runs on the event loop's thread.

    The engine must go on at `frontier`. Until somebody calls `register` with all registrations, at start-up, nobody's
    needs are known, and the hub lets go of nothing.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        files: FileKeeper | FollowedFiles,
        cursors: CursorStore,
        log: ReadableLog,
        settings: DeliverySettings,
        share: Share,
    ) -> None:
        self.mailboxes = mailboxes
        self._files = files
        self._cursors = cursors
        self._settings = settings
        self._share = share
        self._keeper = MailboxKeeper(mailboxes, cursors, log)
        self._sessions = SessionTable()
        self._log = log
        self.payloads = PayloadReader(log)
        self.channel_targets = ChannelTargets()
        self.damaged: list[str] = []
        """Notification files whose ranges must be matched again, also with filters that have been replaced since."""
        self._closed = False
        self._registered = False
        self._housekeeping = asyncio.Lock()
        # Until the registry is told to forget them.
        self._finished: list[int] = []
        self._finished_blocks: list[int] = []
        self._ended_live: dict[int, int] = {}  # number -> until

    @classmethod
    def open(
        cls,
        directory: Path,
        log: ReadableLog,
        settings: DeliverySettings,
        clock_us: Callable[[], int],
        share: Share,
        followers: Followers,
        on_full: Callable[[], None] = lambda: None,
    ) -> "Hub":
        """Recover from the files below `directory`, which this hub keeps. `on_full` is as the cursor store has it.
        Raises StorageCorrupt, StorageError."""
        delivery_kernels.load_kernels()
        try:
            files = NotificationFiles(directory / "notifications")
            path = directory / "cursors.db"
            if not path.exists() and not files.empty:
                logger.warning("%s is missing: every mailbox is delivered again from its oldest event", path)
                seal_path(path).unlink(missing_ok=True)
            cursors, stored = CursorStore.open(path, share.owns, on_full)
            try:
                recovered = files.recover(stored.base, log.first_offset)
            except BaseException:
                cursors.close()
                raise
        except OSError as exc:
            raise StorageError(f"cannot open the mailboxes in {directory}: {exc.strerror}") from exc
        mailboxes = Mailboxes(settings, stored.mailboxes, stored.sets)
        mailboxes.restore(recovered.ranges, recovered.frontier)
        keeper = FileKeeper(mailboxes, files, cursors, recovered.waiting, followers, clock_us())
        hub = cls(mailboxes, keeper, cursors, log, settings, share)
        hub.damaged = recovered.damaged
        return hub

    @classmethod
    def follow(
        cls,
        directory: Path,
        log: ReadableLog,
        settings: DeliverySettings,
        share: Share,
        ranges: Iterable[FileRange],
        frontier: int,
        on_full: Callable[[], None] = lambda: None,
    ) -> tuple["Hub", FollowedFiles]:
        """A hub for a share of the subscriptions, over files that another process keeps. The caller tells it of each
        change to them. Raises StorageCorrupt, StorageError, FileNotFoundError."""
        delivery_kernels.load_kernels()
        cursors, stored = CursorStore.open(directory / "cursors.db", share.owns, on_full, check=False)
        mailboxes = Mailboxes(settings, stored.mailboxes, stored.sets)
        files = FollowedFiles(directory / "notifications", mailboxes)
        try:
            files.restore(ranges, frontier)
        except BaseException:
            cursors.close()
            raise
        return cls(mailboxes, files, cursors, log, settings, share), files

    @property
    def seal(self) -> SealFile:
        """The seal of the cursors."""
        return self._cursors.seal

    @property
    def frontier(self) -> int:
        """All offsets below are accepted."""
        return self.mailboxes.frontier

    @property
    def stored_frontier(self) -> int:
        """All offsets below are accepted for good: no crash or power cut takes the frontier below it."""
        return self.mailboxes.stored_frontier()

    @property
    def lost(self) -> Sequence[DamagedEvents]:
        """The events that were damaged before anybody could match them, and that the log is not trimmed beyond."""
        return [each for each in self.mailboxes.lost.damage if each.end > self._log.first_offset]

    @property
    def subscriptions(self) -> int:
        return self.mailboxes.columns.count() + self._sessions.live_subscriptions

    @property
    def sessions(self) -> int:
        return self._sessions.sessions

    def knows(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these registrations, ascending, anybody here may receive something for."""
        return self.mailboxes.knows(numbers) | self._sessions.knows_live(numbers)

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        """Take note of its share of registrations that began, changed or ended: all at start, then each change."""
        self._registered = True
        changes = list(registrations)
        durable: list[Registration] = []
        for registration in changes:
            if isinstance(registration, Block):
                self._register_block(registration)
            elif not self._share.owns(registration.id):
                continue
            elif registration.durable:
                durable.append(registration)
            elif registration.until is not None:
                self._ended_live[registration.number] = registration.until
                self._sessions.end_live(registration)
            elif self._sessions.buffer(registration.number) is None:
                self._start_live(registration)
        for subscription, number in self.mailboxes.register(durable):
            self._keeper.forget(subscription, number)
            self._sessions.end_durable(subscription, range(number + 1))
        for registration in durable:
            if registration.until is None:
                self._sessions.replace(registration)
        self.channel_targets.register(durable)
        self._sessions.fanout.registered(changes)

    def accept(self, notifications: Notifications, *, stored: bool = True) -> None:
        """Take note of the next range of the log and wake the sessions it concerns.

        Passes over a part that is known already. Raises ValueError where the range leaves a hole, and StorageError
        where too much is in memory because the disk refuses."""
        if not stored and self.mailboxes.ranges.unstored_bytes > _MOST_UNSTORED_BYTES:
            raise StorageError(
                "notification files are not written quickly enough, or not at all; matching waits"
            )
        item = self.mailboxes.accept(notifications, stored=stored)
        if item is None:
            self._files.surplus(notification_file_name(notifications.start, notifications.end))
            return
        self._sessions.accept(item, self.mailboxes)

    async def open_session(
        self, registration: Registration, after: int | None = None
    ) -> DurableSession | LiveSession:
        """Connect to a subscription; `after` as the gateway's Site has it. Raises NotFound, Unavailable, and
        Conflict for a live subscription that has a session."""
        if self._closed:
            raise Unavailable("the site is stopping")
        if registration.durable:
            slot = self._slot(registration.id)
            durable = DurableSession(self, registration, slot, -1 if after is None else after)
            self._sessions.add_durable(durable, self.mailboxes.numbers_of(slot))
            return durable
        buffer = self.take_buffer(registration)
        if after is not None:
            buffer.start_after(after)
        session = LiveSession(self, registration, buffer)
        self._sessions.add_live(session)
        return session

    def open_merged(self) -> MergedSession:
        """Connect a subscriber of many subscriptions, who names them later. Raises Unavailable."""
        if self._closed:
            raise Unavailable("the site is stopping")
        fanout = self._sessions.fanout
        session = MergedSession(self, self._settings.live_buffer, fanout.changed)
        fanout.add(session)
        return session

    def take_buffer(self, registration: Registration) -> LiveBuffer:
        """The buffer of a live subscription, for the one who connects to it. Raises NotFound, and Conflict where
        somebody is connected."""
        buffer = self._sessions.buffer(registration.number)
        if buffer is None:
            raise ended(registration.id)
        if self._sessions.is_connected(registration.number):
            raise Conflict(f"live subscription {registration.id!r} is connected already")
        return buffer

    def pending(self, subscription: str) -> int:
        """How many deliveries wait, unacknowledged, in a durable subscription's mailbox."""
        slot = self.mailboxes.slot_of(subscription)
        return self.mailboxes.pending(slot) if slot != NONE else 0

    def cursor(self, subscription: str) -> int:
        """The offset up to which a durable subscription has acknowledged everything; -1 if nothing."""
        slot = self.mailboxes.slot_of(subscription)
        return self.mailboxes.cursor(slot) if slot != NONE else -1

    def waiting(self, registration: Registration, start: int, limit: int) -> Waiting:
        """What waits in the mailbox of a durable subscription from `start` on: up to `limit` deliveries, and the gaps
        before the last of them. Changes nothing. Raises NotFound."""
        mailboxes, slot = self.mailboxes, self._slot(registration.id)
        offsets = mailboxes.offsets(slot, start - 1, limit)
        end = offsets[-1] + 1 if len(offsets) == limit else max(start, mailboxes.frontier)
        gaps = mailboxes.gaps(slot, start - 1)
        if mailboxes.lost.damage:
            items = items_of(registration, mailboxes.lost, start, offsets, [b""] * len(offsets))
            offsets = [item.offset for item in items if isinstance(item, Delivery)]
            gaps += [item for item in items if isinstance(item, DeliveryGap)]
        return Waiting(offsets, gaps, end, mailboxes.frontier, mailboxes.cursor(slot))

    def needed_from(self) -> int:
        """The lowest offset that must stay in the log; the frontier if nobody waits for anything."""
        if not self._registered or self._keeper.unwritten:
            return 0
        return min([self.mailboxes.needed_from(), *self._sessions.waiting_live()])

    async def acknowledge(self, subscription: str, offset: int) -> None:
        """Note, on disk, that the subscriber is done with everything up to and including `offset`. Raises
        InvalidRequest for an offset that no event has yet, NotFound, StorageError."""
        mailboxes = self.mailboxes
        slot = self._slot(subscription)
        if offset <= mailboxes.cursor(slot):
            return
        self._check_reached(offset, "delivery_id")
        # Memory follows the disk, so that nothing is let go of because of a cursor that could get lost.
        number = mailboxes.numbers_of(slot)[-1]
        await asyncio.wrap_future(self._cursors.acknowledge(subscription, number, offset))
        # The subscription may be gone meanwhile, or even added again: then the offset lies before its mailbox.
        slot = mailboxes.slot_of(subscription)
        if slot != NONE:
            mailboxes.acknowledge(slot, offset)

    async def acknowledge_selection(self, selection: Selection, offset: int) -> int:
        """The same for all selected subscriptions, in one transaction. Returns how many there are. Raises
        InvalidRequest, StorageError."""
        return await self.acknowledge_members(selection, self.mailboxes.members(selection), offset)

    async def acknowledge_members(self, selection: Selection, numbers: Integers, offset: int) -> int:
        """The same, where `numbers` are all registrations of the selected subscriptions.

        A registration is known here before the first event that it concerns is matched (see `pipeline.head`). So a
        subscriber of the group who was handed an event was handed what every member got before it."""
        self._check_reached(offset, "offset")
        mailboxes, columns = self.mailboxes, self.mailboxes.columns
        name, slots = selection.set_name, np.unique(mailboxes.slots_of(numbers))
        slots = slots[slots != NONE]
        count = len(slots)
        if not count:
            return 0
        if name is not None:
            written = self._cursors.acknowledge_set(SetCursor(name, self._share, offset))
        else:
            moved = columns.cursor[slots] < offset
            if offset < mailboxes.frontier:
                # A mailbox in which nothing waits there is as empty after a restart.
                moved &= (columns.oldest[slots] <= offset) | np.isin(slots, mailboxes.slots_with_gaps())
            written = self._cursors.acknowledge_all(
                [
                    (mailboxes.subscription(slot), int(columns.newest_number[slot]), offset)
                    for slot in slots[moved].tolist()
                ]
            )
        await asyncio.wrap_future(written)
        # Those that are gone meanwhile have no slot any more.
        slots = np.unique(mailboxes.slots_of(numbers))
        mailboxes.acknowledge_all(slots[slots != NONE], offset)
        return count

    def detach_merged(self, session: MergedSession) -> None:
        """Take note that a session has been closed. A second call changes nothing."""
        for lane in session.lanes:
            if not lane.registration.durable:
                self._sessions.close_live(lane.registration.number)
        self._sessions.fanout.remove(session)

    def detach(self, session: SubscriberSession) -> None:
        """Take note that a session has been closed. A second call changes nothing."""
        self._sessions.remove(session)

    async def housekeep(self, now_us: int) -> FinishedRegistrations:
        """Enforce the mailboxes' limits and tidy up the files. Call it about once a second.

        Returns each registration once, when the registry may forget it. Logs an error where the disk refuses, and
        leaves the work for the next time."""
        async with self._housekeeping:
            if self._closed or not self._registered:
                return FinishedRegistrations()
            try:
                self._sessions.wake(await self._keeper.enforce_limits(now_us))
                await self._files.tidy_files(now_us)
                self._finished_blocks += self.mailboxes.consumed_blocks()
                self._finished += self.mailboxes.consumed()
                self._finished += [n for n, until in self._ended_live.items() if until <= self.frontier]
                for number in self._finished:
                    self._ended_live.pop(number, None)
                # A mailbox must be gone from the disk before the registry forgets that it ended.
                await self._keeper.flush()
            except (StorageError, OSError) as exc:
                logger.error("housekeeping is put off: %s", exc)
                return FinishedRegistrations()
            finished, self._finished = sorted(self._finished), []
            blocks, self._finished_blocks = sorted(self._finished_blocks), []
            return FinishedRegistrations(finished, blocks)

    async def close(self) -> None:
        """End all sessions, store what has no file, and close what they needed."""
        if self._closed:
            return
        self._closed = True
        self._sessions.end_all(Unavailable("the site is stopping"))
        async with self._housekeeping:
            try:
                await self._files.store_files()
            except (StorageError, OSError) as exc:
                logger.warning("some events will be matched again at the next start: %s", exc)
            await self.payloads.close()
            await asyncio.to_thread(self._cursors.close)

    def _check_reached(self, offset: int, field: str) -> None:
        if offset >= self._log.next_offset:
            raise InvalidRequest(
                f"offset {offset} has not been delivered yet; acknowledge the id of a received delivery",
                field=field,
            )

    def _slot(self, subscription: str) -> int:
        slot = self.mailboxes.slot_of(subscription)
        if slot == NONE:
            raise ended(subscription)
        return slot

    def _register_block(self, block: Block) -> None:
        self.mailboxes.register_block(self._share.part_of(block))
        if block.until is None:
            return
        self._keeper.forget_block(block)
        if self.mailboxes.forget_set(block.name):
            self._cursors.forget_set(block.name)
        numbers = range(block.number, block.number + block.count)
        for subscription in self._sessions.connected_subscriptions():
            # A member that had left the block, and has another number by now, keeps its mailbox and its sessions.
            if self.mailboxes.slot_of(subscription) == NONE:
                self._sessions.end_durable(subscription, numbers)

    def _start_live(self, registration: Registration) -> None:
        number = registration.number
        buffer = LiveBuffer(
            registration.id, self._settings.live_buffer, registration.since, self.mailboxes.lost
        )
        # The pipeline may have matched events for the registration before it got here.
        for n, rows in self.mailboxes.ranges.segments([number], registration.since):
            buffer.push(rows.astype(np.int64) + n.start)
        self._sessions.start_live(number, buffer)
