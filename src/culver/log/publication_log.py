"""What a publication log is: batches of events in, positions out, durable before it answers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from culver.model.columns import Packed


class Body(NamedTuple):
    """A batch and the bytes that it has in the log."""

    batch: pa.RecordBatch
    data: bytes
    received_us: int

    @property
    def events(self) -> int:
        rows: int = self.batch.num_rows
        return rows


MOST_ROOM = 256 * 1024


class Staged(NamedTuple):
    """Bytes that are to be written to a place of a file, and how many zeros behind them, at most MOST_ROOM.

    The zeros are room for what follows: a sync takes little more than half the time where the file does not grow,
    because the file system has nothing to note about it then. They are no part of what is promised, so it does not
    matter whether the disk takes them."""

    descriptor: int
    position: int
    data: bytes
    room: int = 0


class WriteFailure(NamedTuple):
    """Why bytes are not on disk. Where it was syncing that failed, nobody knows whether they are."""

    error: OSError
    syncing: bool


class CommitReceipt(NamedTuple):
    """Where acknowledged events stand in the log: `[first_offset, next_offset)`, in the order sent."""

    first_offset: int
    next_offset: int


class ReadableLog(Protocol):
    """What reading takes, in any process. Safe to call from several threads."""

    @property
    def first_offset(self) -> int:
        """The oldest offset that can still be read."""

    @property
    def next_offset(self) -> int:
        """The offset that the next event gets. Everything below is on disk."""

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The events of `[start, end)` as (offset of the first row, batch), in order, cut to the range.

        Ends early where the log ends. Raises NotFound where `start` is trimmed, StorageCorrupt where a
        checksum fails."""

    def offset_at(self, received_us: int) -> int:
        """The first offset whose event was received at or after that time; `next_offset` if none was."""


class PublicationLog(ReadableLog, Protocol):
    """Events in one sequence, numbered from 0. One writer; any number of readers in any process."""

    def prepare(self, batches: Sequence[pa.RecordBatch]) -> list[Body]:
        """What `append` takes. Touches no file, so that it may run where waiting is not allowed. Raises TooLarge."""

    def prepare_packed(self, batches: Sequence[Packed], received_us: int) -> list[Body]:
        """The same of batches that have their bytes already; `received_us` is when the last event came."""

    def append(self, group: Sequence[Body]) -> int:
        """Write all of it and make it durable with one `fdatasync`; returns the first event's offset.

        All or nothing: raises StorageFull or StorageError, and then none of it is ever read."""

    def stage(self, group: Sequence[Body]) -> Staged | None:
        """The first half of an append where waiting is not allowed: the caller has the bytes written and synced, and
        calls `settle` before anything else is appended. None where it takes `append`, in another thread."""

    def settle(self, failure: WriteFailure | None) -> int:
        """The second half; returns and raises what `append` does."""

    def trim(self, before: int) -> None:
        """Give back the disk space of what lies below `before`; it may keep more, never less."""

    def close(self) -> None: ...
