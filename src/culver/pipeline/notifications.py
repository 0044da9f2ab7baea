"""The pipeline's result: for one range of the log, which registrations get which events.

A Spark worker writes its result as a notification file, which delivery reads; the inline engine hands its result over
in memory, and delivery writes the file. Rows are grouped by registration, so that a mailbox finds its share with one
binary search:

    magic "CULVNTF3" | u32 crc32 of what follows, up to the rows | u32 header length
    header (JSON: start, end, index_version, registrations, pairs, checksum of the rows (`culver.pipeline.checksum`),
            the work that it took (`culver.pipeline.operator_work`), and what could not be matched because the log is
            damaged), padded with spaces to 8 bytes
    numbers   int64[registrations]      ascending
    bounds    int64[registrations + 1]  where each registration's rows begin
    sizes     uint32[end - start]       payload bytes of each event of the range
    zeros     up to the next multiple of the header's `alignment`: 8, or 4096 where the rows are many
    rows      uint16[pairs]             event offset - start, ascending within a registration

Many rows bypass the page cache on their way to the disk. They would fill it, although they are read a page here and a
page there, if at all; and in a virtual machine, each new page of the cache may have to come from the host first.

The file's name is its range, `START-END.ntf` in 20 digits each. Matching the same range against the same index
version gives the same content except for the work, so writing it twice changes nothing. Ranges may overlap after a
restart with other batch bounds; a reader takes each offset from the first file that covers it.
"""

import errno
import mmap
import os
import struct
import zlib
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from culver.disk import whole_file, write_all
from culver.errors import StorageCorrupt
from culver.log import DamagedEvents
from culver.pipeline.operator_work import SliceWork

_MAGIC = b"CULVNTF3"
_PREFIX = struct.Struct("<8sII")
_LENGTH = struct.Struct("<I")
_CHECKED_FROM = 12
NOTIFICATION_SUFFIX = ".ntf"
_PAGE = 4096
_MANY_BYTES = 1 << 20


class Notifications(msgspec.Struct, frozen=True, eq=False):
    """The events of `[start, end)` that each registration gets; see the module for the arrays. It is a struct, which
    is made faster than a dataclass, because there is one for every few events."""

    start: int
    end: int
    index_version: int
    numbers: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: NDArray[np.uint16]
    sizes: NDArray[np.uint32]
    work: tuple[SliceWork, ...] = ()
    """One record for each slice that worked on it; none where delivery has joined several ranges."""
    damage: tuple[DamagedEvents, ...] = ()
    """Events of the range that nobody could match. Every registration in effect has one row for each entry, at the
    last of its events, and that row stands for all of them."""


class _Header(msgspec.Struct):
    """The JSON of a file; see the module."""

    start: int
    end: int
    index_version: int
    registrations: int
    pairs: int
    alignment: int
    rows_checksum: int
    work: tuple[SliceWork, ...] = ()
    damage: tuple[DamagedEvents, ...] = ()


class NotificationSink(Protocol):
    """The engine calls it in order of `start`, without a hole, on the event loop's thread. It must not block."""

    def accept(self, notifications: Notifications, *, stored: bool) -> None:
        """With `stored` the file is on disk. Without, delivery writes one later, and the engine matches again what a
        crash takes before that."""


def notification_file_name(start: int, end: int) -> str:
    return f"{start:020d}-{end:020d}{NOTIFICATION_SUFFIX}"


def parse_notification_file_name(name: str) -> tuple[int, int] | None:
    """(start, end) of a notification file's name, or None for any other name."""
    stem, suffix = name[:-4], name[-4:]
    if suffix != NOTIFICATION_SUFFIX or len(stem) != 41 or stem[20] != "-":
        return None
    start, end = stem[:20], stem[21:]
    return (int(start), int(end)) if start.isdigit() and end.isdigit() else None


def write_notifications(
    directory: Path, notifications: Notifications, *, durable: bool, most_bytes_at_once: int = 1 << 30
) -> Path:
    """Put the file in place as a whole: a reader sees all of it or none. With `durable` it is on disk on return;
    without, a power cut may take it (the log still has the events). Others who use the disk meanwhile wait for at
    most `most_bytes_at_once` of the rows."""
    n = notifications
    rows = _bytes(n.rows)
    alignment = _PAGE if durable and len(rows) >= _MANY_BYTES else 8
    counts = len(n.numbers), len(n.rows)
    header = msgspec.json.encode(
        _Header(n.start, n.end, n.index_version, *counts, alignment, _checksum(n.rows), n.work, n.damage)
    )
    header += b" " * (-(len(header) + _PREFIX.size) % 8)
    parts: list[bytes | memoryview] = [
        _LENGTH.pack(len(header)), header, _bytes(n.numbers), _bytes(n.bounds), _bytes(n.sizes)
    ]  # fmt: skip
    rows_at = _CHECKED_FROM + sum(map(len, parts))
    parts.append(bytes(-rows_at % alignment))
    rows_at += -rows_at % alignment
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    path = directory / notification_file_name(n.start, n.end)
    with whole_file(path, durable=durable) as file:
        write_all(file, [_MAGIC + _LENGTH.pack(crc), *parts])
        direct = 0
        if alignment == _PAGE:
            direct = _write_past_cache(file, rows, rows_at, most_bytes_at_once)
        file.seek(rows_at + direct)
        write_all(file, [rows[direct:]])
    return path


def read_notifications(path: Path, *, check_rows: bool = True) -> Notifications:
    """Map a notification file. Raises StorageCorrupt where it is torn or altered, FileNotFoundError where it is gone.
    Without `check_rows` it does not check the rows, nearly all of a large file: this is for a file that was written a
    moment ago, by a process that has seen it reach the disk."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _PREFIX.size:
            raise StorageCorrupt(f"{path} is too short for a notification file")
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    magic, crc, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise StorageCorrupt(f"{path} is no notification file of this format")
    try:
        at = _PREFIX.size + length
        header = msgspec.json.decode(data[_PREFIX.size : at], type=_Header)
        numbers = np.frombuffer(data, np.int64, header.registrations, at)
        bounds = np.frombuffer(data, np.int64, header.registrations + 1, at := at + numbers.nbytes)
        sizes = np.frombuffer(data, np.uint32, header.end - header.start, at := at + bounds.nbytes)
        at += sizes.nbytes
        rows = np.frombuffer(data, np.uint16, header.pairs, at := at + -at % header.alignment)
        intact = zlib.crc32(data[_CHECKED_FROM:at]) == crc and len(data) == at + rows.nbytes
        intact = intact and (not check_rows or _checksum(rows) == header.rows_checksum)
    except (ValueError, ZeroDivisionError) as exc:
        raise StorageCorrupt(f"{path} has a header that cannot be read") from exc
    if not intact:
        raise StorageCorrupt(f"{path} fails its checksum")
    return Notifications(
        header.start,
        header.end,
        header.index_version,
        numbers,
        bounds,
        rows,
        sizes,
        header.work,
        header.damage,
    )


def _write_past_cache(file: FileIO, rows: memoryview, at: int, step: int) -> int:
    """Write whole pages of rows past the page cache, at a place that is a multiple of a page; returns how many bytes:
    none where the file system cannot do that, or where the rows are not aligned in memory."""
    size = len(rows) // _PAGE * _PAGE
    done = 0
    if np.frombuffer(rows, np.uint8).ctypes.data % _PAGE:
        return 0
    try:
        descriptor = os.open(file.name, os.O_WRONLY | os.O_DIRECT)
    except OSError:
        return 0
    try:
        while done < size and done % _PAGE == 0:
            done += os.pwrite(descriptor, rows[done : min(done + step, size)], at + done)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
    return done // _PAGE * _PAGE


def aligned_rows(count: int) -> NDArray[np.uint16]:
    """Memory for so many rows, aligned for writing past the cache. It is mapped, because NumPy would hold the GIL
    while it gives back the pages of large arrays."""
    return np.frombuffer(mmap.mmap(-1, max(2 * count, 1)), np.uint16, count)


def _checksum(rows: NDArray[np.uint16]) -> int:
    # Imported here, because processes that only name files need no compiled code.
    from culver.pipeline.checksum import checksum

    return checksum(rows)


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.view(np.uint8).data
