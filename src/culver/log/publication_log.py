"""The protocols of a publication log: events in one sequence, numbered from 0, durable before they are acknowledged.

    PublicationLog   the site's own log: publishes, reads and trims; one per site
    Committer        its publishing end on the event loop
    LogReader        a reader in any other process, opened by the log's address
    ReadableLog      reads by offset where the end of the log is known
    FollowedLog      is a ReadableLog on a LogReader, for a process that hears how far the log goes

A log has an address, a URI whose scheme says what kind of log it is (`file:///var/lib/culver/log`). Other processes
get the address and open a reader with it: `culver.plugins.open_reader`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, Self

import pyarrow as pa

from culver.config import LogSettings
from culver.errors import StorageCorrupt
from culver.model import Event


class CommitObserver(Protocol):
    """The site implements it. The committer calls it on the event loop, in the order of commits."""

    def committing(self, first_offset: int, batches: Sequence[pa.RecordBatch]) -> None:
        """A commit has begun: its events get these offsets and batches if it succeeds. A log that cannot tell yet,
        or that commits many events, passes no batches."""

    def committed(self, first_offset: int, events: Sequence[Event]) -> None:
        """The events are durable, the first of them at `first_offset`."""


class CommitReceipt(NamedTuple):
    """The place of acknowledged events in the log, `[first_offset, next_offset)`, in the order sent."""

    first_offset: int
    next_offset: int


class DamagedEvents(NamedTuple):
    """Events that cannot be read, with offsets in `[start, end)`: the file is damaged at the byte `position`."""

    path: str
    position: int
    start: int
    end: int


class EventSource(Protocol):
    """Reads events by offset. Safe to call from several threads."""

    @property
    def damage(self) -> Sequence[DamagedEvents]:
        """The damage that this process has come across and that is not trimmed yet, ascending."""

    @property
    def first_offset(self) -> int:
        """The oldest offset that can still be read."""

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The events of `[start, end)` as (offset of the first row, batch), in order, cut to the range.

        Raises NotFound where `start` is trimmed, StorageCorrupt where events are damaged or missing. Its `details`
        hold the members of DamagedEvents, without `end` where nothing intact follows, so that nobody can tell where
        the damage ends. Events can be read again from `end` on."""


class LogReader(EventSource, Protocol):
    """Reads a log that another process appends to. It does not know which events are durable: callers ask only for
    offsets below a `next_offset` that the writer has told. It lives as long as its process and needs no closing."""

    def offset_at(self, received_us: int, end: int) -> int:
        """The first offset below `end` whose event was received at or after that time, or `end`."""


class ReadableLog(EventSource, Protocol):
    """Reads a log whose end is known; `read` ends early there."""

    @property
    def next_offset(self) -> int:
        """The offset that the next event gets. Everything below is durable."""

    def offset_at(self, received_us: int) -> int:
        """The first offset whose event was received at or after that time; `next_offset` if none was."""


class FollowedLog:
    """Implements ReadableLog on a reader of a log that another process appends to and announces the end of.
    `next_offset` is the last one announced, and never goes back."""

    def __init__(self, reader: LogReader, next_offset: int) -> None:
        self._reader = reader
        self.next_offset = next_offset

    @property
    def first_offset(self) -> int:
        return self._reader.first_offset

    @property
    def damage(self) -> Sequence[DamagedEvents]:
        return self._reader.damage

    def extend(self, next_offset: int) -> None:
        """The writer has announced that everything below is durable."""
        self.next_offset = max(self.next_offset, next_offset)

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._reader.read(start, min(end, self.next_offset))

    def offset_at(self, received_us: int) -> int:
        return self._reader.offset_at(received_us, self.next_offset)


def read_intact(log: EventSource, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """As `EventSource.read`, but passes over damage. Raises StorageCorrupt where nothing intact follows it."""
    while True:
        try:
            yield from log.read(start, end)
            return
        except StorageCorrupt as exc:
            if "end" not in exc.details:
                raise
            start = exc.details["end"]


class Committer(Protocol):
    """Publishes from one event loop into a log, which it does not own. Entered before use, and closed by its owner.

    Publications get offsets in the order in which they come, and the events of each have consecutive offsets."""

    @property
    def pending_events(self) -> int:
        """Events that were given and are not answered yet."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None:
        """Commit everything that was asked for so far; `publish` then raises Unavailable."""

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        """The place of the events in the log, once they are durable.

        Raises Unavailable before the committer is entered and once it is closing. The future raises StorageFull or
        StorageError where the log refuses; then none of the events is in the log. A publication that is cancelled
        before its commit has begun is withdrawn; later, its events are in the log all the same."""


class PublicationLog(ReadableLog, Protocol):
    """The log of a site: one writer, any number of readers in any process. The owner closes it.

    An implementation is one class, named in `culver.plugins.LOGS` under the scheme of its addresses."""

    @classmethod
    def open(cls, address: str, settings: LogSettings) -> "PublicationLog":
        """Open the log, or make it where there is none. Recovers what was acknowledged before a crash.

        Raises StorageError where another process writes the log, StorageCorrupt where it is damaged."""

    @classmethod
    def open_reader(cls, address: str) -> LogReader:
        """A reader of the log at that address, in this or any other process. Never blocks the writer."""

    @property
    def address(self) -> str:
        """The address that opens a reader of this log, in any process of the site."""

    @property
    def refusal(self) -> str | None:
        """Why the log takes no events until it is opened again, in a sentence; None while it takes them."""

    def committer(self, observer: CommitObserver, clock_us: Callable[[], int]) -> Committer:
        """The publishing end for the running loop, one at a time. `clock_us` tells when events are received."""

    def append(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Append all batches and wait until they are durable; returns the first event's offset.

        All or nothing: raises TooLarge, StorageFull or StorageError, and then none of it is ever read. For tools that
        fill a log; a site publishes through its committer."""

    def pause(self, reason: str | None) -> None:
        """Refuse events with StorageFull and this reason from now on, or take them again where it is None. Once it
        returns, nothing of before is being written any more, but for small groups. Blocks."""

    def trim(self, before: int) -> None:
        """Give back the space of events below `before`; the log may keep more, never less. Blocks."""

    def close(self) -> None:
        """Let everything go; `append` then raises StorageError. Harmless to call again."""
