"""The role `publications` of a running site: plain publications, and numbered ones, of which none is stored twice.

    publish       ------------------------------------------------>  committer
    publish_once  --which are stored?-->  memory  --those that are not-->  committer  --stored-->  memory

The memory learns of a number once it is on disk. Until then it is under way: a repeat that comes meanwhile waits for
the outcome of the first one. The numbers are in the log with the events, so a crash leaves both or none.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from culver.config import LogSettings
from culver.errors import Conflict, InvalidRequest, NotFound, StorageError, Unavailable
from culver.log import (
    CommitReceipt,
    Committer,
    PublicationLog,
    PublicationMemory,
    PublishersFile,
    StoredPart,
    read_intact,
)
from culver.model import Event, PublicationNumber
from culver.model.columns import PAYLOAD_INDEX
from culver.roles import MOST_SEQUENCE, NumberedPart, PublicationNumbers

_logger = logging.getLogger(__name__)

# The file is written so often at most, and when so many events have come since: a start reads those from the log.
_STORE_SECONDS = 10.0
_STORE_EVENTS = 1_000_000

_Run = tuple[int, int]
"""Consecutive sequences `[first, end)`."""


class SitePublications:
    """Lives on the event loop. The committer's owner enters and closes that."""

    def __init__(
        self,
        log: PublicationLog,
        committer: Committer,
        memory: PublicationMemory,
        file: PublishersFile,
        settings: LogSettings,
    ) -> None:
        self.publish = committer.publish
        self._log = log
        self._committer = committer
        self._memory = memory
        self._file = file
        self._most_abandoned = settings.max_pending_events
        self._under_way: dict[str, list[_Commit]] = {}
        # The events under way whose publishers have gone.
        self._abandoned = 0
        # How often the memory has changed, how often when the file was written, and when that was tried last. A start
        # whose write failed is a change.
        self._changes = int(file.position < log.next_offset)
        self._stored_changes = 0
        self._tried_us = 0
        self._disk_is_full = False

    def publish_once(
        self, events: Sequence[Event], numbers: PublicationNumbers
    ) -> "asyncio.Future[list[NumberedPart]]":
        # Tasks begin in the order in which they are made, and so do the commits of one publisher.
        return asyncio.ensure_future(self._publish_once(events, numbers))

    def needed_from(self) -> int:
        """The log must keep everything from here on, for a start after a crash. A full disk needs the space more,
        also for the file."""
        is_ahead = self._changes != self._stored_changes or self._under_way
        return self._file.position if is_ahead and not self._disk_is_full else self._log.next_offset

    async def keep_house(self, now_us: int) -> None:
        """Forget what the window has passed, and have the rest in the file before long."""
        self._memory.pass_time(now_us, self._log.next_offset)
        has_changed = self._changes != self._stored_changes
        is_far_behind = self._log.next_offset - self._file.position > _STORE_EVENTS
        if (has_changed or is_far_behind) and not 0 <= now_us - self._tried_us < _STORE_SECONDS * 1_000_000:
            self._tried_us = now_us
            await self.store()

    async def store(self) -> None:
        """Have the memory on disk. Where the disk refuses, a warning says so."""
        commits = [commit for each in self._under_way.values() for commit in each]
        position = min((commit.floor for commit in commits), default=self._log.next_offset)
        changes = self._changes
        try:
            await asyncio.to_thread(self._file.write, self._memory.content(position))
        except OSError as exc:
            self._disk_is_full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
            _logger.warning("the numbers of publications are in the log alone: %s", exc.strerror or exc)
        else:
            self._stored_changes, self._disk_is_full = changes, False

    # --- one publication --------------------------------------------------------------------------------

    async def _publish_once(self, events: Sequence[Event], numbers: PublicationNumbers) -> list[NumberedPart]:
        publisher, runs = numbers.publisher, _runs(numbers.sequences)
        parts = await self._find(publisher, runs, events)
        fresh = [(part.first, part.end) for part in parts if part.offset is None]
        if not fresh:
            return _places(parts, 0)
        if self._abandoned > self._most_abandoned:
            raise Unavailable("too many publications wait for the disk; try again shortly")
        wanted = _numbered(events, publisher, parts)
        commit = _Commit(fresh, self._log.next_offset, self._committer.publish(wanted))
        self._under_way.setdefault(publisher, []).append(commit)
        commit.answer.add_done_callback(partial(self._settle, publisher, commit))
        try:
            # The commit goes on where its publisher is gone: its numbers must not be published again meanwhile.
            receipt = await asyncio.shield(commit.answer)
        except asyncio.CancelledError:
            if not commit.answer.done():
                self._abandoned += len(wanted)
                commit.answer.add_done_callback(partial(self._give_back, len(wanted)))
            raise
        return _places(parts, receipt.first_offset)

    async def _find(self, publisher: str, runs: Sequence[_Run], events: Sequence[Event]) -> list[StoredPart]:
        """What of the runs is stored, once nothing of it is under way. Raises Conflict."""
        compared: set[StoredPart] = set()
        while True:
            commits = self._under_way.get(publisher, ())
            clashes = [commit.answer for commit in commits if _overlap(commit.runs, runs)]
            if clashes:
                await asyncio.wait(clashes)
                continue
            parts = [part for first, end in runs for part in self._memory.find(publisher, first, end)]
            # While they are compared, others may store more of them.
            if all(part.offset is None or part in compared for part in parts):
                return parts
            await asyncio.to_thread(self._compare, publisher, parts, events)
            compared = set(parts)

    def _settle(self, publisher: str, commit: "_Commit", answer: "asyncio.Future[CommitReceipt]") -> None:
        commits = self._under_way[publisher]
        commits.remove(commit)
        if not commits:
            del self._under_way[publisher]
        if answer.cancelled() or answer.exception() is not None:
            return
        offset = answer.result().first_offset
        for first, end in commit.runs:
            self._memory.remember(publisher, first, end, offset)
            offset += end - first
        self._changes += 1

    def _give_back(self, events: int, _: object) -> None:
        self._abandoned -= events

    def _compare(self, publisher: str, parts: Iterable[StoredPart], events: Sequence[Event]) -> None:
        """Compare repeats with what is stored, as far as the log still has it. Blocks; raises Conflict."""
        at = 0
        for first, end, offset in parts:
            if offset is not None:
                begin = max(offset, self._log.first_offset)
                with contextlib.suppress(NotFound, StorageError):
                    for start, batch in read_intact(self._log, begin, offset + end - first):
                        payloads = batch.column(PAYLOAD_INDEX)
                        for row in range(batch.num_rows):
                            place = start - offset + row
                            if payloads[row].as_py() != events[at + place].payload:
                                raise _another_event(publisher, first + place, start + row) from None
            at += end - first


class _Commit:
    """Sequences on their way to the log, where they will be at `floor` or behind it."""

    __slots__ = ("answer", "floor", "runs")

    def __init__(self, runs: Sequence[_Run], floor: int, answer: "asyncio.Future[CommitReceipt]") -> None:
        self.runs = runs
        self.floor = floor
        self.answer = answer


def _runs(sequences: Sequence[int]) -> list[_Run]:
    """The consecutive sequences. Raises InvalidRequest unless they ascend within bounds."""
    if not sequences:
        return []
    first, last = sequences[0], sequences[-1]
    if first < 0 or last > MOST_SEQUENCE:
        raise InvalidRequest(f"sequences are from 0 to {MOST_SEQUENCE}", field="sequence")
    if isinstance(sequences, range) and sequences.step == 1:
        return [(first, last + 1)]
    runs: list[_Run] = []
    end = -1
    for sequence in sequences:
        if sequence < end:
            raise InvalidRequest("the sequences of a publication ascend", field="sequence")
        if sequence == end:
            runs[-1] = (runs[-1][0], sequence + 1)
        else:
            runs.append((sequence, sequence + 1))
        end = sequence + 1
    return runs


def _overlap(some: Sequence[_Run], others: Sequence[_Run]) -> bool:
    return any(
        first < other_end and other_first < end for first, end in some for other_first, other_end in others
    )


def _numbered(events: Sequence[Event], publisher: str, parts: Iterable[StoredPart]) -> list[Event]:
    """The events that are not stored yet, with their numbers."""
    wanted: list[Event] = []
    at = 0
    for first, end, offset in parts:
        if offset is None:
            for event, sequence in zip(events[at : at + end - first], range(first, end), strict=True):
                number = PublicationNumber(publisher, sequence)
                wanted.append(Event(event.context, event.data, event.payload, number=number))
        at += end - first
    return wanted


def _places(parts: Iterable[StoredPart], first_offset: int) -> list[NumberedPart]:
    """Where all events are: those that were not stored before, from `first_offset` on."""
    places: list[NumberedPart] = []
    for first, end, offset in parts:
        if offset is None:
            places.append(NumberedPart(first_offset, first_offset + end - first, False))
            first_offset += end - first
        else:
            places.append(NumberedPart(offset, offset + end - first, True))
    return places


def _another_event(publisher: str, sequence: int, offset: int) -> Conflict:
    return Conflict(
        f"publisher {publisher!r} has published another event under sequence {sequence}, which is at offset "
        f"{offset}: a repeat has the same events as the first attempt",
        field="sequence",
        sequence=sequence,
        offset=offset,
    )
