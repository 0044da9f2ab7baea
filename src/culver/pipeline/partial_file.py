"""What one task of several has found in a block: a partial result, and the file by which another task gets it.

Nothing is grouped yet: grouping looks at every registration that was found, and whoever joins does that once for all.

    magic "CULVPRT1" | u32 crc32 of the header | u32 header length
    header (JSON: start, end, index_version, runs ([low, high, runs, pairs] of each), groups ([registrations, pairs]
            of each), and the work that it took), padded with spaces to 8 bytes
    runs      rows uint16, lengths uint32, numbers uint32     of each, as `culver.matching.groups.Runs` has them
    groups    numbers int64, bounds int64, rows uint16        of each, as `Groups` has them

Each array begins at a multiple of 8. A file is put in place as a whole, and its length is checked, but not what is in
the arrays: it is read a moment after it was written.
"""

import contextlib
import json
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from culver.errors import StorageCorrupt
from culver.matching import Groups, Runs
from culver.pipeline.operator_work import SliceWork, members_of, work_from
from culver.pipeline.result_join import Collection

_MAGIC = b"CULVPRT1"
_PREFIX = struct.Struct("<8sII")
_ALIGNMENT = 8
_MOST_PARTS = 512  # of a file that are written at once: the system takes 1,024

Number = TypeVar("Number", bound=np.generic)


class Partial(msgspec.Struct, frozen=True, eq=False):
    """What the slices of one task found in `[start, end)`."""

    start: int
    end: int
    index_version: int
    found: Collection
    sizes: NDArray[np.uint32]
    """Payload bytes of each event. They are not in the file: every task knows them."""
    work: tuple[SliceWork, ...] = ()


def write(path: Path, part: Partial) -> None:
    """Put the file in place as a whole: a reader sees all of it or none. A power cut may take it."""
    header = json.dumps(
        {
            "start": part.start,
            "end": part.end,
            "index_version": part.index_version,
            "runs": [[each.low, each.high, len(each.rows), len(each.numbers)] for each in part.found.runs],
            "groups": [[len(each.numbers), len(each.rows)] for each in part.found.groups],
            "work": [members_of(each) for each in part.work],
        }
    ).encode()
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGNMENT)
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, zlib.crc32(header), len(header)), header]
    for array in _arrays(part.found):
        parts += [array.view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT)]
    # Workers on two machines may have the same number, and write the same part.
    temporary = path.with_suffix(f".{secrets.token_hex(4)}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            _write_all(file.fileno(), [memoryview(each) for each in parts if len(each)])
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read(path: Path) -> tuple[Collection, tuple[SliceWork, ...]]:
    """What was found, mapped, and the work that it took. Raises StorageCorrupt where the file is torn,
    FileNotFoundError where it is gone."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _PREFIX.size:
            raise StorageCorrupt(f"{path} is too short for a partial result")
        # Pages of one's own where they are written to, which they never are: arrays that can be written to are what
        # the kernels are compiled for.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    magic, crc, length = _PREFIX.unpack_from(data)
    text = data[_PREFIX.size : _PREFIX.size + length]
    if magic != _MAGIC or zlib.crc32(text) != crc:
        raise StorageCorrupt(f"{path} is no partial result of this format, or torn")
    header = json.loads(text)
    found, cut = Collection(), _Cutter(data, _PREFIX.size + length)
    try:
        for low, high, runs, pairs in header["runs"]:
            arrays = cut.next(np.uint16, runs), cut.next(np.uint32, runs), cut.next(np.uint32, pairs)
            found.runs.append(Runs(low, high, *arrays))
        for registrations, pairs in header["groups"]:
            numbers, bounds = cut.next(np.int64, registrations), cut.next(np.int64, registrations + 1)
            found.groups.append(Groups(numbers, bounds, cut.next(np.uint16, pairs)))
    except ValueError as exc:
        raise StorageCorrupt(f"{path} is torn") from exc
    if cut.at != len(data):
        raise StorageCorrupt(f"{path} is torn")
    return found, tuple(work_from(each) for each in header["work"])


class _Cutter:
    """Arrays that lie one after the other in a file."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.at = at
        self._data = data

    def next(self, kind: type[Number], count: int) -> NDArray[Number]:
        """Raises ValueError where so many are not there."""
        if not count:
            return np.empty(0, kind)
        array = np.frombuffer(self._data, kind, count, self.at)
        self.at += array.nbytes + -array.nbytes % _ALIGNMENT
        return array


def _arrays(found: Collection) -> Iterator[NDArray[Any]]:
    for runs in found.runs:
        yield from (runs.rows, runs.lengths, runs.numbers)
    for groups in found.groups:
        yield from groups


def _write_all(descriptor: int, parts: list[memoryview]) -> None:
    while parts:
        written = os.writev(descriptor, parts[:_MOST_PARTS])
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]
