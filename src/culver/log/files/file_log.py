"""The writer of a file log: appends groups of checksummed batches to the last segment of a directory."""

import contextlib
import fcntl
import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Self

import pyarrow as pa

from culver.config import LogSettings
from culver.disk import make_directory, sync_directory
from culver.errors import NotFound, StorageCorrupt, StorageError, StorageFull, TooLarge
from culver.log.files.disk_thread import PREALLOCATED_BYTES, StagedWrite, WriteFailure
from culver.log.files.file_log_reader import FileLogReader, directory_of
from culver.log.files.group_committer import GroupCommitter
from culver.log.files.log_segment import (
    HEADER,
    MAX_BODY_BYTES,
    Record,
    RecordBody,
    SegmentHeader,
    find_tail,
    group_size,
    list_segments,
    new_header,
    pack_group,
    read_header,
    segment_name,
    storage_error,
)
from culver.log.publication_log import CommitObserver, DamagedEvents
from culver.model.columns import Packed, received_times, serialise

_logger = logging.getLogger("culver.log")

_RECENT_BATCHES = 64
_RECENT_BYTES = 4 * 1024 * 1024
_NOTHING: tuple[Sequence[RecordBody], Sequence[Record], int] = ((), (), 0)


class FileLog:
    """Implements PublicationLog. Opening it recovers from a crash.

    A lock on the directory, which the operating system drops with the process, keeps other writers away. A group is
    durable, and only then counted into `next_offset`, once `fdatasync` has returned. A full disk refuses one append
    and leaves the log usable. Any other failed write, or a failed `fdatasync` (after which the page cache may show
    bytes that are not on disk), makes it refuse appends until it is opened again.
    """

    def __init__(self, directory: Path, settings: LogSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._lock = threading.Lock()
        self._reader = FileLogReader(directory)
        self._refusal: str | None = None
        self._paused: str | None = None
        # The first offsets of all segments. The list is replaced as a whole, so that readers need no lock.
        self._firsts: list[int] = []
        self.next_offset = 0
        self._received_us = 0
        # The newest batches, which the engine asks for at once; replaced as a whole too.
        self._recent: tuple[tuple[int, pa.RecordBatch], ...] = ()
        self._recent_bytes = 0
        # The last segment, which is the one being written: its file, its header, the end of its records and the end
        # of the zeros behind them.
        self._descriptor = -1
        self._header = SegmentHeader(0, 0, 0)
        self._position = 0
        self._preallocated_end = 0
        # The group being written, its records and their length in bytes.
        self._staged = _NOTHING
        self._directory_lock = _lock_directory(directory)
        try:
            self._open_last_segment()
        except OSError as exc:
            self.close()
            raise storage_error(exc, f"opening the log in {directory}") from exc
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, address: str, settings: LogSettings) -> Self:
        return cls(directory_of(address), settings)

    @classmethod
    def open_reader(cls, address: str) -> FileLogReader:
        return FileLogReader(directory_of(address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def first_offset(self) -> int:
        return self._firsts[0]

    @property
    def damage(self) -> Sequence[DamagedEvents]:
        return self._reader.damage

    @property
    def address(self) -> str:
        return self._directory.absolute().as_uri()

    @property
    def refusal(self) -> str | None:
        return self._refusal

    def committer(self, observer: CommitObserver, clock_us: Callable[[], int]) -> GroupCommitter:
        # Stamps never fall, but those of a clock that was ahead in an earlier run must not outlive it.
        self._received_us = min(self._received_us, clock_us())
        return GroupCommitter(self, self._settings, observer, clock_us)

    def append(self, batches: Sequence[pa.RecordBatch]) -> int:
        packed = [Packed(batch, serialise(batch)) for batch in batches if batch.num_rows]
        return self.append_group(self.prepare(packed))

    # --- what the group committer needs ---------------------------------------------------------------

    def prepare(self, batches: Sequence[Packed]) -> list[RecordBody]:
        """Make record bodies for `append_group` or `stage`. Never blocks. Raises TooLarge."""
        for _, stream in batches:
            if len(stream) > MAX_BODY_BYTES:
                raise TooLarge(
                    f"a batch of {len(stream)} bytes is more than one log record holds; send fewer events at a time",
                    field="events",
                    limit=MAX_BODY_BYTES,
                )
        return [RecordBody(batch, stream, int(received_times(batch).max())) for batch, stream in batches]

    def append_group(self, group: Sequence[RecordBody]) -> int:
        """Write the group with one `fdatasync`; returns the first event's offset. Blocks, and raises as `append`."""
        with self._lock:
            if self._refusal is not None:
                raise StorageError(self._refusal)
            if self._paused is not None:
                raise StorageFull(self._paused)
            if not group:
                return self.next_offset
            if not self._fits(group):
                self._start_segment()
            return self._settle(_write_and_sync(self._stage(group)))

    def stage(self, group: Sequence[RecordBody]) -> StagedWrite | None:
        """The first half of an append that does not block: the caller has the bytes written and synced, and calls
        `settle` before it appends anything else. None where the group needs `append_group`, in another thread."""
        with self._lock:
            refused = self._refusal is not None or self._paused is not None
            if refused or not group or not self._fits(group):
                return None
            return self._stage(group, preallocating=True)

    def settle(self, failure: WriteFailure | None) -> int:
        """The second half; returns and raises as `append_group` does."""
        with self._lock:
            return self._settle(failure)

    # --- reading and trimming -------------------------------------------------------------------------

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if start < self.first_offset:
            raise NotFound(
                f"offset {start} is trimmed; the log starts at {self.first_offset}",
                first_offset=self.first_offset,
            )
        end = min(end, self.next_offset)
        recent = self._recent
        if recent and recent[0][0] <= start < end:
            return _cut(recent, start, end)
        return self._reader.read(start, end)

    def offset_at(self, received_us: int) -> int:
        return self._reader.offset_at(received_us, self.next_offset)

    def pause(self, reason: str | None) -> None:
        with self._lock:
            self._paused = reason

    def trim(self, before: int) -> None:
        """Deletes the segments that lie below `before` as a whole, oldest first; never the last one."""
        with self._lock:
            firsts = self._firsts
            whole = sum(1 for following in firsts[1:] if following <= before)
            # Readers learn of the new first offset before the files go.
            self._firsts = firsts[whole:]
        if not whole:
            return
        try:  # without the lock, because appends must not wait for this
            for first in firsts[:whole]:
                (self._directory / segment_name(first)).unlink(missing_ok=True)
            sync_directory(self._directory)
        except OSError as exc:
            with self._lock:
                self._firsts = list_segments(self._directory)
            raise storage_error(exc, f"trimming the log in {self._directory}") from exc

    def close(self) -> None:
        with self._lock:
            self._refusal = f"the log in {self._directory} is closed"
            if self._descriptor >= 0:
                self._cut_preallocated()
            for descriptor in (self._descriptor, self._directory_lock):
                if descriptor >= 0:
                    os.close(descriptor)
            self._descriptor = self._directory_lock = -1

    def _remember(self, batches: list[tuple[int, pa.RecordBatch]], size: int) -> None:
        """Keep the batches just written in memory, if they are small. What is kept always reaches the log's end."""
        if self._recent_bytes + size > _RECENT_BYTES or len(self._recent) + len(batches) > _RECENT_BATCHES:
            self._recent, self._recent_bytes = (), 0
        if size <= _RECENT_BYTES and len(batches) <= _RECENT_BATCHES:
            self._recent = (*self._recent, *batches)
            self._recent_bytes += size

    def _fits(self, group: Sequence[RecordBody]) -> bool:
        """Whether the group goes into the current segment. A group larger than any segment gets one to itself."""
        end = self._position + group_size(group)
        return self._position == HEADER.size or end <= self._settings.segment_bytes

    def _stage(self, group: Sequence[RecordBody], *, preallocating: bool = False) -> StagedWrite:
        data, records = pack_group(group, self._header, self._position, self.next_offset, self._received_us)
        self._staged = (group, records, len(data))
        end, zeros = self._position + len(data), 0
        if preallocating and end > self._preallocated_end:
            # The group makes the file grow: the zeros behind it are enough for many groups that follow.
            zeros = max(0, min(PREALLOCATED_BYTES, self._settings.segment_bytes - end))
            self._preallocated_end = end + zeros
        return StagedWrite(self._descriptor, self._position, data, zeros)

    def _settle(self, failure: WriteFailure | None) -> int:
        """Make the staged group readable, or take it back where it could not be written."""
        (group, records, size), self._staged = self._staged, _NOTHING
        if failure is not None:
            raise self._take_back(failure) from failure.error
        self._reader.note(self._header.first_offset, records)
        first = self.next_offset
        self._position += size
        self._received_us = records[-1].received_us
        batches = [(record.offset, body.batch) for record, body in zip(records, group, strict=True)]
        self._remember(batches, size)
        self.next_offset = records[-1].end_offset
        return first

    def _take_back(self, failure: WriteFailure) -> StorageError:
        """Cut off the remains of a group that is not on disk. After a failed write the cut need not be durable,
        because recovery takes no part of a group. After a failed sync the log refuses appends."""
        self._preallocated_end = self._position
        if failure.syncing:
            error = self._refuse(f"fdatasync failed ({failure.error.strerror})")
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._position)
                os.fsync(self._descriptor)
            return error
        error = storage_error(failure.error, f"appending to the log in {self._directory}")
        try:
            os.ftruncate(self._descriptor, self._position)
        except OSError as exc:
            self._refuse(f"a failed write ({error.message}) could not be taken back ({exc.strerror})")
        return error

    def _refuse(self, why: str) -> StorageError:
        self._refusal = (
            f"the log in {self._directory} takes no more events: {why}. Nothing that was acknowledged is "
            "lost. Check the disk and restart the site, which opens the log again."
        )
        _logger.error("%s", self._refusal)
        return StorageError(self._refusal)

    def _start_segment(self) -> None:
        """Start a new file, which is durable under its name before anything in it is acknowledged."""
        path = self._directory / segment_name(self.next_offset)
        header, packed = new_header(self.next_offset, self._received_us)
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            _write_at(descriptor, packed, 0)
            os.fsync(descriptor)
            sync_directory(self._directory)
        except OSError as exc:
            if descriptor >= 0:
                os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise storage_error(exc, f"starting the log segment {path}") from exc
        self._use(descriptor, path, header)
        self._position = self._preallocated_end = HEADER.size
        if header.first_offset not in self._firsts:
            self._firsts = [*self._firsts, header.first_offset]

    def _cut_preallocated(self) -> None:
        """Cut the zeros off a segment that is full. They may stay where that fails, but take space."""
        if self._preallocated_end > self._position:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._position)

    def _use(self, descriptor: int, path: Path, header: SegmentHeader) -> None:
        if self._descriptor >= 0:
            self._cut_preallocated()
            os.close(self._descriptor)
        self._descriptor, self._header = descriptor, header
        self._reader.adopt(path, header)

    def _open_last_segment(self) -> None:
        self._firsts = list_segments(self._directory)
        self.next_offset = self._firsts[-1] if self._firsts else 0
        path = self._directory / segment_name(self.next_offset)
        if not self._firsts or _is_unfinished(path):
            if len(self._firsts) > 1:
                before = self._directory / segment_name(self._firsts[-2])
                with before.open("rb") as file:
                    tail = find_tail(file.fileno(), read_header(file.fileno(), before))
                self._received_us = tail.received_us
            self._start_segment()
            return
        descriptor = os.open(path, os.O_RDWR)
        try:
            header = read_header(descriptor, path)
            tail = find_tail(descriptor, header)
            surplus = os.fstat(descriptor).st_size - tail.position
            if tail.torn:
                _logger.warning(
                    "%s: cut %d bytes behind offset %d that a crash has left unfinished; "
                    "they were not acknowledged",
                    path,
                    surplus,
                    tail.offset,
                )
            elif surplus:
                _logger.info("%s: cut %d preallocated bytes behind offset %d", path, surplus, tail.offset)
            if surplus:
                os.ftruncate(descriptor, tail.position)
            # The last group may be in the page cache only: written but not synced, or synced in vain, and then
            # its pages count as clean though they never reached the disk. Writing it again makes them dirty.
            group = os.pread(descriptor, tail.position - tail.group_position, tail.group_position)
            _write_at(descriptor, group, tail.group_position)
            os.fsync(descriptor)
            sync_directory(self._directory)
        except BaseException:
            os.close(descriptor)
            raise
        self._use(descriptor, path, header)
        self._reader.note(header.first_offset, tail.records)
        self._position = self._preallocated_end = tail.position
        self.next_offset, self._received_us = tail.offset, tail.received_us


def _lock_directory(directory: Path) -> int:
    """Make the directory and lock it; returns the descriptor that holds the lock."""
    try:
        make_directory(directory)
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as exc:
        raise storage_error(exc, f"making the log directory {directory}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(descriptor)
        raise StorageError(
            f"another process writes the log in {directory}; stop it, or use another data directory"
        ) from exc
    return descriptor


def _is_unfinished(path: Path) -> bool:
    """Whether a crash interrupted the making of a segment, so that nothing in it can have been acknowledged.

    An empty file that an operator made counts too: the log goes on at the offset of its name."""
    if path.stat().st_size > HEADER.size:
        return False
    with path.open("rb") as file:
        try:
            read_header(file.fileno(), path)
        except StorageCorrupt:
            return True
    return False


def _cut(
    batches: Sequence[tuple[int, pa.RecordBatch]], start: int, end: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the parts of adjacent batches that lie in `[start, end)`."""
    at = bisect_right(batches, start, key=itemgetter(0)) - 1
    for offset, batch in batches[at:]:
        first, last = max(start, offset), min(end, offset + batch.num_rows)
        if first < last:
            yield first, batch.slice(first - offset, last - first)


def _write_and_sync(staged: StagedWrite) -> WriteFailure | None:
    syncing = False
    try:
        _write_at(staged.descriptor, staged.data, staged.position)
        syncing = True
        os.fdatasync(staged.descriptor)
    except OSError as exc:
        return WriteFailure(exc, syncing)
    return None


def _write_at(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
