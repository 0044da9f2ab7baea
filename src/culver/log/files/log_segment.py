"""The format of a log segment: how its bytes are laid out, packed and walked, and where they end after a crash.

A segment is a file named after the offset of its first event, `NNNNNNNNNNNNNNNNNNNN.log` (20 digits). It
starts with a header; records follow, each at a multiple of 8. Integers are little-endian.

    header    0          8        12     16             24            32         36      40
              | CULVLOG1 | format | salt | first offset | received us | reserved | crc32 |
                8 bytes    u32      u32    u64            i64           u32        u32

    record    0        4       8              16       20     24            32       36      40
              | length | crc32 | first offset | events | salt | received us | before | after | body | zeros |
                u32      u32     u64            u32      u32    i64           u32      u32     length to 8

- `crc32` of the header covers the bytes before it; that of a record covers the length and everything
  behind the checksum, the padding too.
- `salt` is random per segment. Bytes that merely look like a record (a publisher's own, or an older
  file's on recycled blocks) do not carry it.
- `received us` of a record is the latest time at which an event was received up to and including this
  record; that of the header the latest in all earlier segments. Both never fall.
- All records of one append are a group: `before` and `after` count the group's events on either side of
  this record. A group is taken as a whole or not at all, and an intact record of a later group proves
  that an earlier one had been acknowledged.
- `body` is one record batch as `culver.model.columns.serialise` writes it.
- Zeros may follow the last record: they preallocate space, because a sync is faster where the file does not grow. A
  record never begins with zeros.
"""

import contextlib
import errno
import logging
import os
import re
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from culver.errors import StorageCorrupt, StorageError, StorageFull

_logger = logging.getLogger("culver.log")

MAGIC = b"CULVLOG1"
FORMAT = 1
HEADER = struct.Struct("<8sIIQqII")
RECORD = struct.Struct("<IIQIIqII")
MAX_BODY_BYTES = 2**31
CHUNK_BYTES = 1024 * 1024
_FIRST_CHUNK_BYTES = 64 * 1024
_PREALLOCATED = bytes(RECORD.size)

_NAME = re.compile(r"[0-9]{20}\.log")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    first_offset: int
    received_us: int
    salt: int


class RecordBody(NamedTuple):
    """A batch, and the bytes of the record body that holds it."""

    batch: pa.RecordBatch
    data: bytes
    received_us: int

    @property
    def events(self) -> int:
        rows: int = self.batch.num_rows
        return rows


class Record(NamedTuple):
    """A record's header, and the position in its file at which it starts."""

    position: int
    length: int
    offset: int
    events: int
    received_us: int
    before: int
    after: int

    @property
    def end_offset(self) -> int:
        return self.offset + self.events

    @property
    def end_position(self) -> int:
        return self.position + RECORD.size + padded(self.length)

    @property
    def group_offset(self) -> int:
        return self.offset - self.before


class BadRecord(Exception):
    """Raised where the bytes at `position` are no intact record of this place in this segment. Never leaves the
    package: it becomes StorageCorrupt, or a cut."""

    def __init__(self, position: int) -> None:
        super().__init__(f"no intact record at byte {position}")
        self.position = position


def segment_name(first_offset: int) -> str:
    return f"{first_offset:020d}.log"


def list_segments(directory: Path) -> list[int]:
    """The first offsets of the segments in a directory, ascending."""
    return sorted(int(name[:20]) for name in os.listdir(directory) if _NAME.fullmatch(name))


def padded(length: int) -> int:
    return (length + 7) & ~7


def new_header(first_offset: int, received_us: int) -> tuple[SegmentHeader, bytes]:
    header = SegmentHeader(first_offset, received_us, secrets.randbits(32))
    packed = HEADER.pack(MAGIC, FORMAT, header.salt, first_offset, received_us, 0, 0)[:-4]
    return header, packed + zlib.crc32(packed).to_bytes(4, "little")


def read_header(descriptor: int, path: Path) -> SegmentHeader:
    """Raises StorageCorrupt where the header is of another format, or torn, altered or of another segment and the
    first record cannot stand in for it."""
    data = os.pread(descriptor, HEADER.size, 0)
    if len(data) == HEADER.size:
        magic, format_, salt, first_offset, received_us, _, crc = HEADER.unpack(data)
        if crc == zlib.crc32(data[:-4]) and magic == MAGIC:
            if format_ != FORMAT:
                raise StorageCorrupt(
                    f"{path} has log format {format_}, and this version of Culver reads format {FORMAT}; "
                    "run the version that wrote it",
                    path=str(path),
                )
            if segment_name(first_offset) == path.name:
                return SegmentHeader(first_offset, received_us, salt)
    return _header_from_first_record(descriptor, path)


def _header_from_first_record(descriptor: int, path: Path) -> SegmentHeader:
    """The header of a segment whose own is damaged: the file's name and the first record say the same. Only the time
    is that of the record, which is not before that of the header."""
    head = memoryview(os.pread(descriptor, RECORD.size, HEADER.size))
    record = unpack_record(head, 0, HEADER.size) if len(head) == RECORD.size else None
    if record is None or segment_name(record.offset) != path.name:
        raise corrupt(path, 0, "its header is not intact")
    data = memoryview(os.pread(descriptor, record.end_position - HEADER.size, HEADER.size))
    if len(data) < record.end_position - HEADER.size or not is_intact(data, 0, record):
        raise corrupt(path, 0, "its header is not intact")
    _logger.warning("%s has a damaged header; its first record says the same, and no event is lost", path)
    return SegmentHeader(record.offset, record.received_us, int.from_bytes(data[20:24], "little"))


def pack_group(
    bodies: Sequence[RecordBody], header: SegmentHeader, position: int, offset: int, received_us: int
) -> tuple[bytes, list[Record]]:
    """Pack a group that goes to `position`; returns its bytes and its records."""
    parts: list[bytes] = []
    records: list[Record] = []
    total = sum(body.events for body in bodies)
    before = 0
    for body in bodies:
        data, events = body.data, body.events
        received_us = max(received_us, body.received_us)
        after = total - before - events
        record = Record(position, len(data), offset + before, events, received_us, before, after)
        head = RECORD.pack(
            record.length, 0, record.offset, events, header.salt, received_us, before, record.after
        )
        padding = bytes(padded(record.length) - record.length)
        crc = zlib.crc32(padding, zlib.crc32(data, zlib.crc32(head[8:], zlib.crc32(head[:4]))))
        parts += (head[:4], crc.to_bytes(4, "little"), head[8:], data, padding)
        records.append(record)
        position = record.end_position
        before += events
    return b"".join(parts), records


def group_size(bodies: Sequence[RecordBody]) -> int:
    return sum(RECORD.size + padded(len(body.data)) for body in bodies)


def walk(
    descriptor: int, header: SegmentHeader, position: int, offset: int
) -> Iterator[tuple[Record, memoryview]]:
    """Yield every record from `position` on, where the record of `offset` starts, with its body.

    Hot: one `pread` per mebibyte. Bodies are views into what was read; nothing is copied. Ends at the end of the
    file, also in the middle of a record, or where preallocated zeros begin; raises BadRecord where a record is
    complete but not intact.
    """
    data = memoryview(b"")
    start = position  # where `data` begins in the file
    # A reader that follows the end of a log wants the last few records, and not the zeros behind them.
    chunk = _FIRST_CHUNK_BYTES
    while True:
        at = position - start
        if len(data) - at < RECORD.size:
            data, start, at = _chunk(descriptor, position, max(chunk, RECORD.size)), position, 0
            chunk = CHUNK_BYTES
            if len(data) < RECORD.size:
                return
        record = unpack_record(data, at, position)
        if record is None and data[at : at + RECORD.size] == _PREALLOCATED:
            return
        if record is None or not _has_place(data, at, header, record, offset):
            raise BadRecord(position)
        size = record.end_position - position
        if len(data) - at < size:
            data, start, at = _chunk(descriptor, position, max(chunk, size)), position, 0
            chunk = CHUNK_BYTES
            if len(data) < size:
                return
        if not is_intact(data, at, record):
            raise BadRecord(position)
        body_at = at + RECORD.size
        yield record, data[body_at : body_at + record.length]
        position, offset = record.end_position, record.end_offset


def intact_records(data: bytes, header: SegmentHeader, position: int, offset: int) -> Iterator[Record]:
    """Find intact records that begin after `offset` in the file's bytes from `position` on, wherever they are."""
    words = np.frombuffer(data, np.dtype("<u8"), len(data) // 8)
    if len(words) * 8 < RECORD.size:
        return
    salted = (words[2:] >> np.uint64(32)) == header.salt
    later = words[1:-1] > offset
    view = memoryview(data)
    for word in np.flatnonzero(salted & later):
        at = int(word) * 8
        if len(view) - at < RECORD.size:
            break
        record = unpack_record(view, at, position + at)
        if record is None or record.end_position - position > len(view) or not is_intact(view, at, record):
            continue
        yield record


def find_resumption(descriptor: int, header: SegmentHeader, position: int, offset: int) -> Record | None:
    """The first intact record behind the damage at `position`, where the record of `offset` should start."""
    rest = bytes(_chunk(descriptor, position, os.fstat(descriptor).st_size))
    return next(intact_records(rest, header, position, offset), None)


def unpack_record(data: memoryview, at: int, position: int) -> Record | None:
    """The record header at `data[at:]`, or None where the bytes name an impossible length or no events."""
    length, _, offset, events, _, received_us, before, after = RECORD.unpack_from(data, at)
    if length > MAX_BODY_BYTES or events == 0:
        return None
    return Record(position, length, offset, events, received_us, before, after)


def is_intact(data: memoryview, at: int, record: Record) -> bool:
    """Whether the record, all of which is in `data[at:]`, matches its checksum."""
    expected = int.from_bytes(data[at + 4 : at + 8], "little")
    end = at + RECORD.size + padded(record.length)
    return zlib.crc32(data[at + 8 : end], zlib.crc32(data[at : at + 4])) == expected


def _has_place(data: memoryview, at: int, header: SegmentHeader, record: Record, offset: int) -> bool:
    return record.offset == offset and int.from_bytes(data[at + 20 : at + 24], "little") == header.salt


def _chunk(descriptor: int, position: int, size: int) -> memoryview:
    # Asking for the file's size first avoids allocating whole chunks when a reader follows the end of a log.
    wanted = min(size, os.fstat(descriptor).st_size - position)
    return memoryview(os.pread(descriptor, wanted, position) if wanted > 0 else b"")


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the last whole group, which starts at `group_position`. Everything behind `position` is to be cut:
    preallocated zeros, and with `torn` also a part of a group. `records` are the intact ones before it."""

    position: int
    offset: int
    received_us: int
    group_position: int
    torn: bool
    records: tuple[Record, ...]


def find_tail(descriptor: int, header: SegmentHeader) -> Tail:
    """Scan the last segment after a crash.

    A crash may leave any part of the last group on disk, because its pages are written in no order. So the first
    record that is not intact ends the log, and its group goes with it, unless an intact record of a later group
    follows: groups are written one after the other, each durable before the next, so the bad record was once
    acknowledged, and cutting it would break that promise. It stays, as a hole between the records. Damage to the very
    last group cannot be told from a torn tail; it is cut, and the cut is logged. Zeros alone are no group but
    preallocated space."""
    records: list[Record] = []
    position, offset = HEADER.size, header.first_offset
    while True:
        with contextlib.suppress(BadRecord):
            for record, _ in walk(descriptor, header, position, offset):
                records.append(record)
                position, offset = record.end_position, record.end_offset
        rest = bytes(_chunk(descriptor, position, os.fstat(descriptor).st_size))
        behind = list(intact_records(rest, header, position, offset))
        if not any(record.group_offset > offset for record in behind):
            break
        position, offset = behind[0].position, behind[0].offset
    whole = len(records)
    while whole and records[whole - 1].after:
        whole -= 1
    torn = whole < len(records) or bool(rest.strip(b"\0"))
    del records[whole:]
    if not records:
        return Tail(HEADER.size, header.first_offset, header.received_us, HEADER.size, torn, ())
    last = records[-1]
    group = next(record for record in reversed(records) if record.before == 0)
    return Tail(last.end_position, last.end_offset, last.received_us, group.position, torn, tuple(records))


def corrupt(path: Path, position: int, what: str, **details: Any) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} is damaged at byte {position}: {what}. Stop the site and restore the file from a copy; without "
        "one, docs/storage.md tells how to go on without the events that it held.",
        path=str(path),
        position=position,
        **details,
    )


def storage_error(exc: OSError, doing: str) -> StorageError:
    """Translate an OSError for the caller: a full disk is StorageFull."""
    if exc.errno in _FULL:
        return StorageFull(f"the disk is full while {doing} ({exc.strerror}); free space and send it again")
    return StorageError(f"the disk refused {doing}: {exc.strerror or exc}")
