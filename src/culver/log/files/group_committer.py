"""Group commit: many publishers share one `fdatasync`.

Publications that arrive while a commit runs wait together and become the next commit. An idle committer starts at
once. Where events come so densely that some wait whenever a commit ends, small commits keep a distance, because a
commit, and all that follows it, costs nearly the same for one event as for ten. The distance is 1.5 times the average
processor time that the loop uses from one commit to the next, so that a third of its time is left.

The disk thread writes and syncs a small group; the file log itself does so for a large one or a new segment.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, NamedTuple, Self

from culver.config import LogSettings
from culver.errors import CulverError, StorageError, Unavailable
from culver.log.files.disk_thread import DiskThread, WriteFailure
from culver.log.files.log_segment import RecordBody
from culver.log.publication_log import CommitObserver, CommitReceipt
from culver.model import Event
from culver.model.columns import pack

if TYPE_CHECKING:
    from culver.log.files.file_log import FileLog

_logger = logging.getLogger("culver.log")

_GROUP_EVENTS = 20_000
_GROUP_BYTES = 16 * 1024 * 1024
# Groups up to these sizes are encoded on the loop: a thread would take longer, because it and the loop would keep
# waiting for each other to release the GIL: it took 3.7 ms for 128 events, and the loop 1.8 ms. For the same reason
# the disk thread, which needs no GIL, writes them.
_SMALL_EVENTS = 256
_SMALL_BYTES = 256 * 1024
# Commits of more events than this keep no distance.
_PACED_EVENTS = 64
# The bounds of the distance from one small commit to the next, and its ratio to the loop's work in between.
_SHORTEST_PACE_SECONDS, _LONGEST_PACE_SECONDS = 0.001, 0.004
_PACE_PER_WORK = 1.5
# The work is averaged over about so many commits, so that what the loop does now and then hardly counts.
_WORK_COMMITS = 16


class GroupCommitter:
    """Implements Committer for a FileLog.

    Small groups are encoded on the loop and written by a DiskThread. Larger ones are encoded and appended in a thread
    of its own, which also takes a small group that needs a new segment. A publication is never split, and one larger
    than the bounds on what may wait is let in alone.
    """

    def __init__(
        self, log: "FileLog", settings: LogSettings, observer: CommitObserver, clock_us: Callable[[], int]
    ) -> None:
        self._log = log
        self._settings = settings
        self._observer = observer
        self._clock_us = clock_us
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._disk = DiskThread()
        self._closing = False
        # The commits for the other thread, one at a time; None ends it.
        self._commits: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._committing = False
        # When the last commit began (not on the loop's clock, which may count whole milliseconds), the loop's
        # processor time at that moment, the average of that time from one commit to the next, and the distance that
        # a small commit keeps from the last one.
        self._begun = 0.0
        self._worked = 0.0
        self._work_seconds = 0.0
        self._pace_seconds = 0.0
        self._pause: asyncio.TimerHandle | None = None
        # The events and bytes admitted and not answered yet, the requests of these that are in no commit yet, and
        # the requests that wait to be admitted.
        self._held_events = 0
        self._held_bytes = 0
        self._queue: deque[_Request] = deque()
        self._waiting: deque[_Request] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = asyncio.Event()

    @property
    def pending_events(self) -> int:
        return self._held_events + sum(len(request.events) for request in self._waiting)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._disk.start()
        self._thread = threading.Thread(target=self._run, name="culver-log", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closing = True
        if self._pause is not None:
            self._pause.cancel()
            self._go_on()
        try:
            await self._idle.wait()
        finally:
            self._commits.put(None)
            if self._thread is not None:
                await self._ended.wait()
                self._thread.join()
            self._disk.close()

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        if self._loop is None or self._closing:
            raise Unavailable("the site is starting or stopping and takes no events; try again shortly")
        answer: asyncio.Future[CommitReceipt] = self._loop.create_future()
        if not events:
            answer.set_result(CommitReceipt(self._log.next_offset, self._log.next_offset))
            return answer
        request = _Request(events, answer)
        answer.add_done_callback(partial(self._answered, request))
        self._idle.clear()
        self._waiting.append(request)
        self._admit()
        return answer

    # --- on the loop ----------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Admit waiting requests, in order, up to the bounds, and go on committing."""
        while self._waiting and self._has_capacity(self._waiting[0]):
            request = self._waiting.popleft()
            self._held_events += len(request.events)
            self._held_bytes += request.size
            self._queue.append(request)
        if self._queue and not self._committing and (self._pause is None or self._end_pause()):
            self._commit_next()
        elif not self._waiting and self._held_events == 0:
            self._idle.set()

    def _commit_next(self) -> None:
        """Hand the requests that wait now, up to the size of a group, to one of the threads."""
        group: list[_Request] = []
        events = size = 0
        while self._queue:
            request = self._queue[0]
            events += len(request.events)
            size += request.size
            if group and (events > _GROUP_EVENTS or size > _GROUP_BYTES):
                break
            group.append(self._queue.popleft())
        small = events <= _SMALL_EVENTS and size <= _SMALL_BYTES
        self._committing = True
        assert self._loop is not None
        self._begun = perf_counter()
        before, self._worked = self._worked, thread_time()
        work = min(self._worked - before, _LONGEST_PACE_SECONDS)
        self._work_seconds += (work - self._work_seconds) / _WORK_COMMITS
        pace = _PACE_PER_WORK * self._work_seconds
        self._pace_seconds = min(max(pace, _SHORTEST_PACE_SECONDS), _LONGEST_PACE_SECONDS)
        commit = _Commit(group, self._encode(group) if small else None)
        first, bodies = self._log.next_offset, commit.encoded[0] if commit.encoded is not None else []
        staged = self._log.stage(bodies)
        if staged is not None:
            self._disk.write(staged, partial(self._written, commit))
        else:
            self._commits.put(commit)
        self._observer.committing(first, [body.batch for body in bodies])

    def _written(self, commit: "_Commit", failure: WriteFailure | None) -> None:
        assert commit.encoded is not None
        try:
            first = self._log.settle(failure)
        except StorageError as exc:
            self._finish(commit, 0, dict.fromkeys(commit.group, exc))
        else:
            self._finish(commit, first, commit.encoded[1])

    def _has_capacity(self, request: "_Request") -> bool:
        if self._held_events == 0:
            return True
        return (
            self._held_events + len(request.events) <= self._settings.max_pending_events
            and self._held_bytes + request.size <= self._settings.max_pending_bytes
        )

    def _answered(self, request: "_Request", answer: "asyncio.Future[CommitReceipt]") -> None:
        """Withdraw a request whose caller has cancelled it."""
        if not answer.cancelled():
            return
        if request in self._waiting:
            self._waiting.remove(request)
        elif request in self._queue:
            self._queue.remove(request)
            self._release(request)
        else:
            return  # its commit has begun and will release it
        self._admit()

    def _release(self, request: "_Request") -> None:
        self._held_events -= len(request.events)
        self._held_bytes -= request.size

    def _finish(self, commit: "_Commit", first: int, refused: "_Refused") -> None:
        """Answer the requests of a commit, and go on with the next one. The requests that are not refused are in the
        log, in order, from offset `first` on."""
        events: list[Event] = []
        for request in commit.group:
            self._release(request)
            error = refused.get(request)
            if error is None:
                start = first + len(events)
                events += request.events
                if not request.answer.cancelled():
                    request.answer.set_result(CommitReceipt(start, first + len(events)))
            elif not request.answer.cancelled():
                request.answer.set_exception(_own_copy(error))
        self._committing = False
        self._pace()
        if events:
            try:
                self._observer.committed(first, events)
            except Exception:
                _logger.exception("a listener failed to take note of the commit at offset %d", first)
        self._admit()

    def _pace(self) -> None:
        """Put off the next commit, where events wait already and there are few of them."""
        assert self._loop is not None
        waits = self._begun + self._pace_seconds - perf_counter()
        events = sum([len(request.events) for request in self._queue])
        if waits > 0 and 0 < events <= _PACED_EVENTS and not self._closing:
            self._pause = self._loop.call_later(waits, self._go_on)

    def _end_pause(self) -> bool:
        """End the pause if its time is up, even before its timer fires, which may be a millisecond late."""
        if self._pause is None or perf_counter() < self._begun + self._pace_seconds:
            return False
        self._pause.cancel()
        self._pause = None
        return True

    def _go_on(self) -> None:
        self._pause = None
        self._admit()

    # --- in the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while (commit := self._commits.get()) is not None:
            self._tell(self._finish, commit, *self._append(commit))
        self._tell(self._ended.set)

    def _append(self, commit: "_Commit") -> tuple[int, "_Refused"]:
        try:
            bodies, refused = self._encode(commit.group) if commit.encoded is None else commit.encoded
            return self._log.append_group(bodies) if bodies else 0, refused
        except Exception as exc:
            return 0, dict.fromkeys(commit.group, exc)

    def _encode(self, group: list["_Request"]) -> "_Encoded":
        """Encode the group; returns its record bodies, and apart from them the requests that cannot be encoded."""
        received_us = self._clock_us()
        try:
            events = [event for request in group for event in request.events]
            return self._log.prepare(pack(events, received_us)), {}
        except Exception as exc:
            if len(group) == 1:
                return [], {group[0]: exc}
        bodies: list[RecordBody] = []
        refused: _Refused = {}
        for request in group:
            try:
                bodies += self._log.prepare(pack(request.events, received_us))
            except Exception as exc:
                refused[request] = exc
        return bodies, refused

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        # The loop may be closed already, where it was torn down around its owner; nobody waits then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


class _Request:
    __slots__ = ("answer", "events", "size")

    def __init__(self, events: Sequence[Event], answer: "asyncio.Future[CommitReceipt]") -> None:
        self.events = events
        self.answer = answer
        self.size = sum(len(event.payload) for event in events)


_Refused = dict[_Request, Exception]
_Encoded = tuple[list[RecordBody], _Refused]


class _Commit(NamedTuple):
    """Requests that go into the log together, and their record bodies, where they are encoded already."""

    group: list[_Request]
    encoded: _Encoded | None


def _own_copy(error: Exception) -> Exception:
    """Make an exception for one caller, because each adds its own traceback."""
    copy: Exception
    if isinstance(error, CulverError):
        copy = type(error)(error.message, field=error.field, **error.details)
    else:
        copy = StorageError(f"the events could not be stored: {error}")
    copy.__cause__ = error
    return copy
