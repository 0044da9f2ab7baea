"""The hub: takes notifications from the pipeline and serves the sessions of a site's subscriptions, all of them or
those of one gateway's share.

It is the shell around `Mailboxes` and `LiveBuffer`: files, cursors, threads and the event loop are here and in the
modules it names, decisions are there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.config import DeliverySettings
from culver.delivery import delivery_kernels
from culver.delivery.delivery_kernels import meet
from culver.delivery.live_buffer import LiveBuffer
from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailbox_keeper import MailboxKeeper
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.payload_reader import PayloadReader
from culver.delivery.ranges.file_keeper import FileKeeper, Followers, NoFollowers
from culver.delivery.ranges.followed_files import FileRange, FollowedFiles
from culver.delivery.ranges.notification_directory import NotificationFiles
from culver.delivery.ranges.retained_ranges import RetainedRange
from culver.delivery.shares import WHOLE, Share
from culver.delivery.subscriber_sessions import DurableSession, LiveSession
from culver.errors import Conflict, InvalidRequest, NotFound, StorageError, Unavailable
from culver.jit import read_only
from culver.log import ReadableLog
from culver.pipeline import Notifications, notification_file_name
from culver.registry import Block, Registration

logger = logging.getLogger(__name__)

_MOST_UNSTORED_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FinishedRegistrations:
    """What has ended and has nothing left to deliver: numbers of registrations, and first numbers of blocks."""

    numbers: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


class Hub:
    """Implements the pipeline's NotificationSink. Everything runs on the event loop's thread.

    The engine must go on at `frontier`. Until `register` has been called, at start-up and with all
    registrations there are, nobody's needs are known, and nothing is let go of.
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
        self._mailboxes = mailboxes
        self._files = files
        self._cursors = cursors
        self._settings = settings
        self._share = share
        self._housekeeper = MailboxKeeper(mailboxes, cursors, log)
        self._log = log
        self._payloads = PayloadReader(log)
        self._closed = False
        self._registered = False
        self._finished: list[int] = []  # registrations to be forgotten by the registry
        self._finished_blocks: list[int] = []  # and blocks
        self._housekeeping = asyncio.Lock()
        self._buffers: dict[int, LiveBuffer] = {}  # by number, from registration on
        self._live: dict[int, LiveSession] = {}
        self._ended_live: dict[int, int] = {}  # number -> until
        self._durable: dict[str, set[DurableSession]] = {}
        self._durable_numbers: dict[int, set[DurableSession]] = {}  # the same sets, by number
        self._connected: NDArray[np.int64] | None = None  # sorted; None where it must be made anew

    @classmethod
    def open(
        cls,
        directory: Path,
        log: ReadableLog,
        settings: DeliverySettings,
        clock_us: Callable[[], int],
        share: Share = WHOLE,
        followers: Followers | None = None,
    ) -> "Hub":
        """Recover from the files below `directory`, which this hub looks after. Raises StorageCorrupt,
        StorageError."""
        delivery_kernels.load()
        try:
            files = NotificationFiles(directory / "notifications")
            path = directory / "cursors.db"
            if not path.exists() and not files.empty:
                logger.warning("%s is missing: every mailbox is delivered again from its oldest event", path)
            cursors, stored, base = CursorStore.open(path, share.owns)
            try:
                recovered = files.recover(base, log.first_offset)
            except BaseException:
                cursors.close()
                raise
        except OSError as exc:
            raise StorageError(f"cannot open the mailboxes in {directory}: {exc.strerror}") from exc
        mailboxes = Mailboxes(settings, stored)
        mailboxes.restore(recovered.ranges, recovered.frontier)
        keeper = FileKeeper(
            mailboxes, files, cursors, recovered.waiting, followers or NoFollowers(), clock_us()
        )
        return cls(mailboxes, keeper, cursors, log, settings, share)

    @classmethod
    def follow(
        cls,
        directory: Path,
        log: ReadableLog,
        settings: DeliverySettings,
        share: Share,
        ranges: Iterable[FileRange],
        frontier: int,
    ) -> tuple["Hub", FollowedFiles]:
        """A hub for a share of the subscriptions, over files that another process looks after; the caller passes
        on what happens to them. Raises StorageCorrupt, StorageError, FileNotFoundError."""
        delivery_kernels.load()
        cursors, stored, _ = CursorStore.open(directory / "cursors.db", share.owns)
        mailboxes = Mailboxes(settings, stored)
        files = FollowedFiles(directory / "notifications", mailboxes)
        try:
            files.restore(ranges, frontier)
        except BaseException:
            cursors.close()
            raise
        return cls(mailboxes, files, cursors, log, settings, share), files

    @property
    def frontier(self) -> int:
        """All offsets below are accepted."""
        return self._mailboxes.frontier

    @property
    def stored_frontier(self) -> int:
        """All offsets below are accepted for good: a crash or power cut does not take the frontier below it."""
        return self._mailboxes.stored_frontier()

    @property
    def index_version(self) -> int:
        """Of the newest accepted notifications, 0 if there are none."""
        return self._mailboxes.index_version

    @property
    def mailboxes(self) -> Mailboxes:
        return self._mailboxes

    @property
    def payloads(self) -> PayloadReader:
        return self._payloads

    @property
    def subscriptions(self) -> int:
        """Of its share."""
        return self._mailboxes.count() + len(self._buffers)

    @property
    def sessions(self) -> int:
        """That are connected."""
        return len(self._live) + sum(map(len, self._durable.values()))

    def knows(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these registrations, ascending, anybody here may receive something for."""
        known = self._mailboxes.knows(numbers)
        return known | np.isin(numbers, list(self._buffers)) if self._buffers else known

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        """Registrations that began, changed or ended: all of them at start-up, then each change. Those of other
        shares are passed over."""
        self._registered = True
        durable: list[Registration] = []
        for registration in registrations:
            if isinstance(registration, Block):
                self._register_block(registration)
            elif not self._share.owns(registration.id):
                continue
            elif registration.durable:
                durable.append(registration)
            elif registration.until is not None:
                self._end_live(registration)
            elif registration.number not in self._buffers:
                self._start_live(registration)
        for subscription, number in self._mailboxes.register(durable):
            self._housekeeper.forget(subscription, number)
            for session in tuple(self._durable.get(subscription, ())):
                if session.registration.number <= number:
                    session.end(NotFound(f"subscription {subscription!r} has ended"))
                    self.detach(session)
        for registration in durable:
            sessions = self._durable.get(registration.id)
            if sessions and registration.until is None:
                self._durable_numbers[registration.number] = sessions
                self._connected = None
                for session in sessions:
                    session.replace(registration)

    def accept(self, notifications: Notifications, *, stored: bool = True) -> None:
        """Take note of the next range of the log and wake the sessions it concerns.

        A part that is known already is passed over. Raises ValueError where the range leaves a hole, and
        StorageError where too much is in memory because the disk refuses."""
        if not stored and self._mailboxes.ranges.unstored_bytes > _MOST_UNSTORED_BYTES:
            raise StorageError(
                "notification files are not written quickly enough, or not at all; matching waits"
            )
        item = self._mailboxes.accept(notifications, stored=stored)
        if item is None:
            self._files.surplus(notification_file_name(notifications.start, notifications.end))
            return
        for number, place in self._concerned(notifications.numbers):
            buffer = self._buffers.get(number)
            if buffer is not None:
                buffer.push(_offsets(item, place))
                if number in self._live:
                    self._live[number].wake()
            for session in self._durable_numbers.get(number, ()):
                session.wake()

    async def open_session(
        self, registration: Registration, after: int | None = None
    ) -> DurableSession | LiveSession:
        """Connect to a subscription; `after` as the gateway's Site has it. Raises NotFound, Unavailable, and
        Conflict for a live subscription that has a session."""
        if self._closed:
            raise Unavailable("the site is stopping")
        if registration.durable:
            return self._open_durable(registration, after)
        buffer = self._buffers.get(registration.number)
        if buffer is None:
            raise NotFound(f"subscription {registration.id!r} has ended")
        if registration.number in self._live:
            raise Conflict(f"live subscription {registration.id!r} is connected already")
        if after is not None:
            buffer.start_after(after, registration.since)
        session = LiveSession(self, registration, buffer)
        self._live[registration.number] = session
        return session

    def pending(self, subscription: str) -> int:
        """How many deliveries wait, unacknowledged, in a durable subscription's mailbox."""
        slot = self._mailboxes.slot_of(subscription)
        return self._mailboxes.pending(slot) if slot != NONE else 0

    def needed_from(self) -> int:
        """The lowest offset that must stay in the log; the frontier if nobody waits for anything."""
        if not self._registered or self._housekeeper.unwritten:
            return 0
        return min([self._mailboxes.needed_from(), *self._waiting_live()])

    async def acknowledge(self, subscription: str, offset: int) -> None:
        """Everything up to and including `offset` is done with; durable on return. Raises InvalidRequest for
        an offset that no event has yet, NotFound, StorageError."""
        mailboxes = self._mailboxes
        slot = mailboxes.slot_of(subscription)
        if slot == NONE:
            raise NotFound(f"subscription {subscription!r} has ended")
        if offset <= mailboxes.cursor(slot):
            return
        if offset >= self._log.next_offset:
            raise InvalidRequest(
                f"offset {offset} has not been delivered yet; acknowledge the id of a received delivery",
                field="delivery_id",
            )
        # Memory follows the disk: nothing is let go of on the strength of a cursor that could get lost.
        number = mailboxes.numbers_of(slot)[-1]
        await asyncio.wrap_future(self._cursors.acknowledge(subscription, number, offset))
        # Removed meanwhile, or even added again: then the offset lies before everything in the mailbox.
        slot = mailboxes.slot_of(subscription)
        if slot != NONE:
            mailboxes.acknowledge(slot, offset)

    def detach(self, session: DurableSession | LiveSession) -> None:
        """A session has been closed. Calling it again changes nothing."""
        registration = session.registration
        if isinstance(session, LiveSession):
            if self._live.get(registration.number) is session:
                del self._live[registration.number]
                self._buffers.pop(registration.number, None)
                self._connected = None
            return
        sessions = self._durable.get(registration.id)
        if sessions is None or session not in sessions:
            return
        sessions.discard(session)
        if not sessions:
            del self._durable[registration.id]
            numbers = [number for number, same in self._durable_numbers.items() if same is sessions]
            for number in numbers:
                del self._durable_numbers[number]
            self._connected = None

    async def housekeep(self, now_us: int) -> FinishedRegistrations:
        """Enforce the mailboxes' limits and tidy up the files; call it about once a second.

        Returns the registrations that have ended and have nothing left to deliver, each once: the
        registry may forget them. A disk that refuses is reported in the log, and the work is left for the
        next time."""
        async with self._housekeeping:
            if self._closed or not self._registered:
                return FinishedRegistrations()
            try:
                for subscription in await self._housekeeper.enforce_limits(now_us):
                    for session in self._durable.get(subscription, ()):
                        session.wake()
                await self._files.tidy_files(now_us)
                self._finished_blocks += self._mailboxes.consumed_blocks()
                self._finished += self._mailboxes.consumed()
                self._finished += [n for n, until in self._ended_live.items() if until <= self.frontier]
                for number in self._finished:
                    self._ended_live.pop(number, None)
                # A mailbox must be gone from the disk before the registry forgets that it ended.
                await self._housekeeper.flush()
            except (StorageError, OSError) as exc:
                logger.error("housekeeping is put off: %s", exc)
                return FinishedRegistrations()
            finished, self._finished = sorted(self._finished), []
            blocks, self._finished_blocks = sorted(self._finished_blocks), []
            return FinishedRegistrations(finished, blocks)

    async def close(self) -> None:
        """End all sessions, then put away what they need."""
        if self._closed:
            return
        self._closed = True
        for session in [*self._live.values(), *(s for sessions in self._durable.values() for s in sessions)]:
            session.end(Unavailable("the site is stopping"))
        async with self._housekeeping:
            try:
                await self._files.store_files()
            except (StorageError, OSError) as exc:
                logger.warning("some events will be matched again at the next start: %s", exc)
            await self._payloads.close()
            await asyncio.to_thread(self._cursors.close)

    def _open_durable(self, registration: Registration, after: int | None) -> DurableSession:
        slot = self._mailboxes.slot_of(registration.id)
        if slot == NONE:
            raise NotFound(f"subscription {registration.id!r} has ended")
        session = DurableSession(self, registration, slot, -1 if after is None else after)
        sessions = self._durable.setdefault(registration.id, set())
        sessions.add(session)
        for number in self._mailboxes.numbers_of(slot):
            self._durable_numbers[number] = sessions
        self._connected = None
        return session

    def _register_block(self, block: Block) -> None:
        self._mailboxes.register_block(self._share.part_of(block))
        if block.until is None:
            return
        self._housekeeper.forget_block(block)
        numbers = range(block.number, block.number + block.count)
        for subscription, sessions in tuple(self._durable.items()):
            # One of a member that has left its block, under another number by now, or with an end of its own, stays.
            if self._mailboxes.slot_of(subscription) == NONE:
                for session in tuple(sessions):
                    if session.registration.number in numbers:
                        session.end(NotFound(f"subscription {subscription!r} has ended"))
                        self.detach(session)

    def _start_live(self, registration: Registration) -> None:
        number = registration.number
        buffer = LiveBuffer(registration.id, self._settings.live_buffer)
        # The pipeline may have been quicker than whoever registers.
        for n, rows in self._mailboxes.ranges.segments([number], registration.since):
            buffer.push(rows.astype(np.int64) + n.start)
        self._buffers[number] = buffer
        self._connected = None

    def _end_live(self, registration: Registration) -> None:
        number = registration.number
        self._ended_live[number] = registration.until or 0
        if self._buffers.pop(number, None) is not None:
            self._connected = None
        session = self._live.pop(number, None)
        if session is not None:
            session.end(NotFound(f"subscription {registration.id!r} has ended"))

    def _waiting_live(self) -> Iterator[int]:
        for number, buffer in self._buffers.items():
            session = self._live.get(number)
            needed = session.needed_from if session is not None else buffer.first
            if needed is not None:
                yield needed

    def _concerned(self, numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Those numbers of a file that somebody is connected for, and where they stand there."""
        connected = self._connected
        if connected is None:
            every = np.array(sorted({*self._buffers, *self._durable_numbers}), np.int64)
            self._connected = connected = read_only(every)
        places = np.empty(min(len(numbers), len(connected)), np.int64)
        found = places[: meet(read_only(numbers), connected, places)]
        return list(zip(numbers[found].tolist(), found.tolist(), strict=True))


def _offsets(item: RetainedRange, place: int) -> NDArray[np.int64]:
    """Of the registration that stands there, as far as the range answers for them."""
    n = item.notifications
    offsets = n.rows[n.bounds[place] : n.bounds[place + 1]].astype(np.int64) + n.start
    return offsets[offsets.searchsorted(item.start) :] if item.start > n.start else offsets
