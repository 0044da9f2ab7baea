"""Reads a file log by offset, in any process."""

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np
import pyarrow as pa

from culver.errors import NotFound, StorageError
from culver.log.files.log_segment import (
    HEADER,
    BadRecord,
    Record,
    SegmentHeader,
    corrupt,
    list_segments,
    read_header,
    segment_name,
    storage_error,
    walk,
)
from culver.model.columns import deserialise, received_times

_SPACING_BYTES = 32 * 1024
_MOST_RESUMES = 64


class FileLogReader:
    """Implements LogReader on the segments of a directory that another process, or thread, appends to.

    Never blocks the writer, and holds no file open between calls."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._firsts: list[int] = []
        self._segments: dict[int, _Segment] = {}

    @property
    def first_offset(self) -> int:
        return self._refresh()[0]

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if start >= end:
            return iter(())
        self._find(start)
        return self._read(start, end)

    def offset_at(self, received_us: int, end: int) -> int:
        firsts = self._refresh()
        # A segment's header holds the latest time before it: the last one with an earlier time has the event.
        at = bisect_left(firsts, received_us, key=lambda first: self._segment(first).header.received_us)
        segment = self._segment(firsts[max(at - 1, 0)])
        with self._lock:
            # The last indexed record that was received before that time, or the first record.
            at = max(bisect_left(segment.times, received_us) - 1, 0)
            offset, position = segment.offsets[at], segment.positions[at]
        # Records from `end` on may be half written at this moment and are not looked at.
        for record, body in self._walk(segment, position, offset) if offset < end else ():
            if record.received_us >= received_us:
                times = received_times(_decode(segment, record, body))
                hits = np.flatnonzero(times >= received_us)
                # There is none when the clock was set back: the time was reached in a segment trimmed since.
                return min(record.offset + (int(hits[0]) if len(hits) else 0), end)
            offset = record.end_offset
            if offset >= end:
                break
        return min(offset, end)

    def adopt(self, path: Path, header: SegmentHeader) -> None:
        """The writer has made this segment."""
        with self._lock:
            first = header.first_offset
            self._segments[first] = _Segment(path, header)
            if first not in self._firsts:
                self._firsts = sorted([*self._firsts, first])

    def note(self, first: int, records: Sequence[Record]) -> None:
        """The writer has made these records of a segment durable."""
        with self._lock:
            for record in records:
                self._segments[first].note(record)

    def _read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        offset = start
        while offset < end:
            segment = self._find(offset)
            with self._lock:
                at, position = segment.locate(offset)
            for record, body in self._walk(segment, position, at):
                at, position = record.end_offset, record.end_position
                if at <= offset:
                    continue
                batch = _decode(segment, record, body)
                first, offset = max(offset, record.offset), min(end, at)
                batch = batch.slice(first - record.offset, offset - first)
                if offset == end:
                    # This comes before the last batch, because a caller may not come back for more.
                    with self._lock:
                        segment.remember(at, position)
                yield first, batch
                if offset == end:
                    return
            self._check_successor(segment, at, position, end)

    def _check_successor(self, segment: "_Segment", offset: int, position: int, end: int) -> None:
        """Check that the segment behind one that ended at `offset` begins there."""
        later = [first for first in self._refresh() if first > segment.header.first_offset]
        if not later:
            raise corrupt(
                segment.path, position, f"it ends at offset {offset}, and events up to {end} were promised"
            )
        if later[0] != offset:
            raise corrupt(
                segment.path, position, f"it ends at offset {offset}, and the next file starts at {later[0]}"
            )

    def _find(self, offset: int) -> "_Segment":
        """The segment that holds `offset`. Raises NotFound where it is trimmed."""
        for _ in range(3):
            firsts = self._firsts
            at = bisect_right(firsts, offset) - 1
            # An offset beyond what was read of the last known segment may lie in a segment not known yet.
            known = self._segments.get(firsts[at]) if at >= 0 else None
            if at < 0 or (at == len(firsts) - 1 and (known is None or offset > known.tail[0])):
                firsts = self._refresh()
                at = bisect_right(firsts, offset) - 1
            if at < 0:
                raise NotFound(
                    f"offset {offset} is trimmed; the log starts at {firsts[0]}", first_offset=firsts[0]
                )
            try:
                return self._segment(firsts[at])
            except FileNotFoundError:
                self._refresh()  # the segment was trimmed a moment ago
        raise StorageError(f"the segment of offset {offset} in {self._directory} cannot be opened")

    def _segment(self, first: int) -> "_Segment":
        segment = self._segments.get(first)
        if segment is None:
            path = self._directory / segment_name(first)
            with path.open("rb") as file:
                header = read_header(file.fileno(), path)
            with self._lock:
                segment = self._segments.setdefault(first, _Segment(path, header))
        return segment

    def _walk(self, segment: "_Segment", position: int, offset: int) -> Iterator[tuple[Record, memoryview]]:
        try:
            with segment.path.open("rb", buffering=0) as file:
                for record, body in walk(file.fileno(), segment.header, position, offset):
                    with self._lock:
                        segment.note(record)
                    yield record, body
        except FileNotFoundError:
            raise NotFound(f"offset {offset} is trimmed") from None
        except BadRecord as exc:
            raise corrupt(segment.path, exc.position, "a record fails its checksum") from exc
        except OSError as exc:
            raise storage_error(exc, f"reading {segment.path}") from exc

    def _refresh(self) -> list[int]:
        try:
            firsts = list_segments(self._directory)
        except OSError as exc:
            raise storage_error(exc, f"listing {self._directory}") from exc
        if not firsts:
            raise StorageError(f"{self._directory} holds no log segments")
        with self._lock:
            self._firsts = firsts
            for gone in self._segments.keys() - set(firsts):
                del self._segments[gone]
        return firsts


class _Segment:
    """A sparse index of one segment: where records start, as far as the segment has been walked.

    offsets[i], positions[i] and times[i] belong to one record; entries are at least 32 KiB apart. The first entry's
    time is the latest before the segment. `tail` is where the next unknown record starts. `resumes` holds where the
    latest reads ended, which is where the next ones begin.
    """

    __slots__ = ("header", "offsets", "path", "positions", "resumes", "tail", "times")

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.tail = (header.first_offset, HEADER.size)
        self.offsets = [header.first_offset]
        self.positions = [HEADER.size]
        self.times = [header.received_us]
        self.resumes: dict[int, int] = {}

    def note(self, record: Record) -> None:
        """Take a record into the index, where it is the next unknown one."""
        if record.offset != self.tail[0]:
            return
        self.tail = (record.end_offset, record.end_position)
        if record.position - self.positions[-1] >= _SPACING_BYTES:
            self.offsets.append(record.offset)
            self.positions.append(record.position)
            self.times.append(record.received_us)

    def remember(self, offset: int, position: int) -> None:
        self.resumes.pop(offset, None)
        self.resumes[offset] = position
        if len(self.resumes) > _MOST_RESUMES:
            del self.resumes[next(iter(self.resumes))]

    def locate(self, offset: int) -> tuple[int, int]:
        """The nearest known start of a record at or before `offset`, as (offset, position)."""
        if offset >= self.tail[0]:
            return self.tail
        if offset in self.resumes:
            return offset, self.resumes[offset]
        at = bisect_right(self.offsets, offset) - 1
        return self.offsets[at], self.positions[at]


def directory_of(address: str) -> Path:
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(address).path)))


def _decode(segment: _Segment, record: Record, body: memoryview) -> pa.RecordBatch:
    try:
        batch = deserialise(pa.py_buffer(body))
    except (pa.ArrowException, OSError) as exc:
        raise corrupt(segment.path, record.position, f"a record's batch cannot be read ({exc})") from exc
    if batch.num_rows != record.events:
        what = f"a record has {batch.num_rows} events where {record.events} are announced"
        raise corrupt(segment.path, record.position, what)
    return batch
