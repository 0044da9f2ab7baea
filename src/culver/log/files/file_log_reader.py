"""Reads a file log by offset, in any process."""

import contextlib
import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np
import pyarrow as pa

from culver.errors import NotFound, StorageCorrupt, StorageError
from culver.log.files.log_segment import (
    HEADER,
    BadRecord,
    Record,
    SegmentHeader,
    corrupt,
    find_resumption,
    list_segments,
    read_header,
    segment_name,
    storage_error,
    walk,
)
from culver.log.publication_log import DamagedEvents
from culver.model.columns import deserialise, received_times

_logger = logging.getLogger("culver.log")

_ANY_OFFSET = 2**63
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
        # What cannot be read, by path and position, and the position of the intact record behind it.
        self._damage: dict[tuple[Path, int], tuple[DamagedEvents, int | None]] = {}

    @property
    def first_offset(self) -> int:
        return self._refresh()[0]

    @property
    def damage(self) -> Sequence[DamagedEvents]:
        with self._lock:
            return sorted((each for each, _ in self._damage.values()), key=attrgetter("start"))

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if start >= end:
            return iter(())
        self._find(start)
        return self._read(start, end)

    def offset_at(self, received_us: int, end: int) -> int:
        segments = self._readable_segments()
        # A segment's header holds the latest time before it: the last one with an earlier time has the event.
        times = [each.header.received_us for each in segments]
        at = max(_first_from(times, received_us) - 1, 0)
        segment = segments[at]
        with self._lock:
            # A record with a later time than this was stamped by a clock that was ahead, and is no younger than those
            # behind it.
            latest_us = min([*times[at + 1 :], segments[-1].latest_us])
            # The last indexed record that was received before that time, or the first record.
            at = max(_first_from(segment.times, received_us) - 1, 0)
            offset, position = segment.offsets[at], segment.positions[at]
        found = offset
        # Records from `end` on may be half written at this moment and are not looked at.
        for record, body in self._walk(segment, position, offset, end, skip_to=_ANY_OFFSET):
            if record.received_us < received_us:
                found = record.end_offset
            elif record.received_us <= latest_us:
                if found == record.offset:
                    hits = np.flatnonzero(received_times(_decode(segment, record, body)) >= received_us)
                    # There is none when the clock was set back: the time was reached in a segment trimmed since.
                    found += int(hits[0]) if len(hits) else 0
                break
        return min(found, end)

    def adopt(self, path: Path, header: SegmentHeader) -> None:
        """The writer has made this segment."""
        with self._lock:
            first = header.first_offset
            self._segments[first] = _Segment(path, header)
            if first not in self._firsts:
                self._firsts = sorted([*self._firsts, first])

    def note(self, first: int, records: Sequence[Record]) -> None:
        """The writer has made these records of a segment durable, or found them there. Damage is between those that
        leave offsets out."""
        segment = self._segments[first]
        for record in records:
            if record.offset > segment.tail[0]:
                start, position = segment.tail
                self._add_damage(segment.path, position, start, record.offset, record.position)
            with self._lock:
                segment.note(record)

    def _read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        offset = start
        while offset < end:
            segment = self._find(offset)
            with self._lock:
                at, position = segment.locate(offset)
            for record, body in self._walk(segment, position, at, end, skip_to=offset):
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

    def _readable_segments(self) -> "list[_Segment]":
        segments = []
        for first in self._refresh():
            with contextlib.suppress(StorageCorrupt, FileNotFoundError):
                segments.append(self._segment(first))
        if not segments:
            raise StorageError(f"no log segment in {self._directory} can be read")
        return segments

    def _segment(self, first: int) -> "_Segment":
        segment = self._segments.get(first)
        if segment is None:
            path = self._directory / segment_name(first)
            try:
                with path.open("rb") as file:
                    header = read_header(file.fileno(), path)
            except StorageCorrupt:
                later = [each for each in self._firsts if each > first]
                if not later:
                    raise
                damage, _ = self._add_damage(path, 0, first, later[0], None)
                raise _unreadable(damage, "its header is not intact", ends=True) from None
            with self._lock:
                segment = self._segments.setdefault(first, _Segment(path, header))
        return segment

    def _walk(
        self, segment: "_Segment", position: int, offset: int, end: int, *, skip_to: int
    ) -> Iterator[tuple[Record, memoryview]]:
        """Yield the records of a segment with events below `end`, from the one at `position` on, whose first event is
        that of `offset`. Passes over damage that ends at or below `skip_to`, and raises StorageCorrupt for other."""
        resumption: int | None = position
        while resumption is not None and offset < end:
            position = resumption
            try:
                with segment.path.open("rb", buffering=0) as file:
                    for record, body in walk(file.fileno(), segment.header, position, offset):
                        with self._lock:
                            segment.note(record)
                        position, offset = record.end_position, record.end_offset
                        yield record, body
                        if offset >= end:
                            return
                what = f"it ends at offset {offset}"
            except BadRecord:
                what = "a record fails its checksum"
            except FileNotFoundError:
                raise NotFound(f"offset {offset} is trimmed") from None
            except OSError as exc:
                raise storage_error(exc, f"reading {segment.path}") from exc
            following = self._following(segment, position, offset)
            promised = end if following is None else min(end, following)
            if offset == promised:
                return
            damage, resumption = self._damage_at(segment, position, offset, promised)
            if damage.end > skip_to:
                raise _unreadable(damage, what, ends=resumption is not None or following is not None)
            offset = damage.end

    def _following(self, segment: "_Segment", position: int, offset: int) -> int | None:
        """The first offset of the segment behind one whose records have led to `offset`; None for the last."""
        later = [first for first in self._refresh() if first > segment.header.first_offset]
        if later and later[0] < offset:
            what = f"it holds events up to {offset}, and the next file starts at {later[0]}"
            raise corrupt(segment.path, position, what)
        return later[0] if later else None

    def _damage_at(
        self, segment: "_Segment", position: int, offset: int, promised: int
    ) -> tuple[DamagedEvents, int | None]:
        """The damage at a position, where the record of `offset` should be, and the position of the intact record
        behind it; None where the rest of the segment is damaged."""
        with self._lock:
            known = self._damage.get((segment.path, position))
        # Where nothing intact followed, more may have been written since.
        if known is not None and known[1] is not None:
            return known
        try:
            with segment.path.open("rb", buffering=0) as file:
                found = find_resumption(file.fileno(), segment.header, position, offset)
        except OSError as exc:
            raise storage_error(exc, f"reading {segment.path}") from exc
        if found is None:
            return self._add_damage(segment.path, position, offset, promised, None)
        return self._add_damage(segment.path, position, offset, found.offset, found.position)

    def _add_damage(
        self, path: Path, position: int, start: int, end: int, resumption: int | None
    ) -> tuple[DamagedEvents, int | None]:
        damage = DamagedEvents(str(path), position, start, end)
        with self._lock:
            known = (path, position) in self._damage
            self._damage[path, position] = damage, resumption
        if not known:
            _logger.error(
                "%s is damaged at byte %d: the events from offset %d up to %d cannot be read, those around them can",
                *damage,
            )
        return damage, resumption

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
            self._damage = {key: each for key, each in self._damage.items() if each[0].end > firsts[0]}
        return firsts


class _Segment:
    """A sparse index of one segment: where records start, as far as the segment has been walked.

    offsets[i], positions[i] and times[i] belong to one record; entries are at least 32 KiB apart. The first entry's
    time is the latest before the segment. `latest_us` is the time of the last record that is known, and `tail` where
    the next one starts. `resumes` holds where the latest reads ended, which is where the next ones begin.
    """

    __slots__ = ("header", "latest_us", "offsets", "path", "positions", "resumes", "tail", "times")

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.tail = (header.first_offset, HEADER.size)
        self.offsets = [header.first_offset]
        self.positions = [HEADER.size]
        self.times = [header.received_us]
        self.latest_us = header.received_us
        self.resumes: dict[int, int] = {}

    def note(self, record: Record) -> None:
        """Take a record into the index, where it is the next unknown one, or the next one behind damage."""
        if record.offset < self.tail[0]:
            return
        self.tail = (record.end_offset, record.end_position)
        self.latest_us = record.received_us
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


def _first_from(times: Sequence[int], received_us: int) -> int:
    """The place of the first time that is not before another, as all behind it are not. Times only fall where the
    clock of an earlier run was ahead; what it stamped is no younger than what came later."""
    lowest = np.minimum.accumulate(np.array(times, np.int64)[::-1])[::-1]
    return int(lowest.searchsorted(received_us))


def directory_of(address: str) -> Path:
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(address).path)))


def _unreadable(damage: DamagedEvents, what: str, *, ends: bool) -> StorageCorrupt:
    """The error for damage. `ends` says that something intact follows, which proves where the damage ends."""
    path, position, start, end = damage
    lost = f"{what}, and the events from offset {start} up to {end} cannot be read"
    return corrupt(Path(path), position, lost, start=start, **({"end": end} if ends else {}))


def _decode(segment: _Segment, record: Record, body: memoryview) -> pa.RecordBatch:
    try:
        batch = deserialise(pa.py_buffer(body))
    except (pa.ArrowException, OSError) as exc:
        what = f"a record's batch cannot be read ({exc})"
    else:
        if batch.num_rows == record.events:
            return batch
        what = f"a record has {batch.num_rows} events where {record.events} are announced"
    raise corrupt(segment.path, record.position, what, start=record.offset, end=record.end_offset)
