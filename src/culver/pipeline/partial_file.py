"""The file by which a task hands what it has found in a block to the task that joins.

Nothing is grouped for it: grouping looks at every registration that was found, and the task that joins does that
once.

    magic "CULVPRT1" | u32 crc32 of the header | u32 header length
    header (JSON: start, end, index_version, runs ([low, high, runs, pairs] of each list), groups ([registrations,
            pairs] of each), and the work that it took), padded with spaces to 8 bytes
    runs      rows uint16, lengths uint32, numbers uint32     of each list: run i is the event in row rows[i], which
                                                              satisfies the next lengths[i] numbers, less `low`
    groups    numbers int64, bounds int64, rows uint16        of each, as `Groups` has them

Each array begins at a multiple of 8. A file appears as a whole. A reader checks its length, but not what is in the
arrays: it reads the file a moment after it was written.
"""

import json
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from culver.disk import write_whole
from culver.errors import StorageCorrupt
from culver.matching import Grouping, Groups, Matched, MatchList
from culver.pipeline.operator_work import SliceWork

_MAGIC = b"CULVPRT1"
_PREFIX = struct.Struct("<8sII")
_ALIGNMENT = 8
_WIDEST = 1 << 32

Number = TypeVar("Number", bound=np.generic)


class Partial(msgspec.Struct, frozen=True, eq=False):
    """What the slices of one task found in `[start, end)`."""

    start: int
    end: int
    index_version: int
    found: list[Matched]
    sizes: NDArray[np.uint32]
    """Payload bytes of each event. The file leaves them out, because every task knows them."""
    work: tuple[SliceWork, ...] = ()

    @property
    def pairs(self) -> int:
        return sum(each.pairs for each in self.found)


def write(path: Path, part: Partial) -> None:
    """Write the file as a whole: a reader sees all of it or none. A power cut may take it."""
    lists: list[MatchList] = []
    groups: list[Groups] = []
    for each in part.found:
        if isinstance(each, Groups):
            groups.append(each)
        elif each.span[1] - each.span[0] < _WIDEST:
            lists.append(each)
        else:
            groups.append(Grouping().group([each]))
    runs = [_runs_of(each) for each in lists]
    header = json.dumps(
        {
            "start": part.start,
            "end": part.end,
            "index_version": part.index_version,
            "runs": [[*each.span, len(own[0]), each.pairs] for each, own in zip(lists, runs, strict=True)],
            "groups": [[len(each.numbers), len(each.rows)] for each in groups],
            "work": msgspec.to_builtins(part.work),
        }
    ).encode()
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGNMENT)
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, zlib.crc32(header), len(header)), header]
    for array in (array for arrays in (*runs, *groups) for array in arrays):
        parts += [array.view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT)]
    write_whole(path, parts, durable=False)


def read(path: Path) -> tuple[list[Matched], tuple[SliceWork, ...]]:
    """What was found, and the work that it took. Groups are mapped. Raises StorageCorrupt where the file is torn,
    FileNotFoundError where it is gone."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _PREFIX.size:
            raise StorageCorrupt(f"{path} is too short for a partial result")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    magic, crc, length = _PREFIX.unpack_from(data)
    text = data[_PREFIX.size : _PREFIX.size + length]
    if magic != _MAGIC or zlib.crc32(text) != crc:
        raise StorageCorrupt(f"{path} is no partial result of this format, or torn")
    header = json.loads(text)
    found: list[Matched] = []
    cut = _Cutter(data, _PREFIX.size + length)
    try:
        for low, high, runs, pairs in header["runs"]:
            arrays = cut.next(np.uint16, runs), cut.next(np.uint32, runs), cut.next(np.uint32, pairs)
            found.append(_list_of((low, high), *arrays))
        for registrations, pairs in header["groups"]:
            numbers, bounds = cut.next(np.int64, registrations), cut.next(np.int64, registrations + 1)
            found.append(Groups(numbers, bounds, cut.next(np.uint16, pairs)))
    except ValueError as exc:
        raise StorageCorrupt(f"{path} is torn") from exc
    if cut.at != len(data):
        raise StorageCorrupt(f"{path} is torn")
    return found, msgspec.convert(header["work"], tuple[SliceWork, ...])


def _runs_of(found: MatchList) -> tuple[NDArray[Any], ...]:
    """The arrays of a list as the file has them: events that match nothing are left out, and a number takes four
    bytes."""
    lengths = np.diff(found.offsets)
    events = np.flatnonzero(lengths)
    numbers = (found.numbers - found.span[0]).astype(np.uint32)
    return (events + found.first_row).astype(np.uint16), lengths[events].astype(np.uint32), numbers


def _list_of(
    span: tuple[int, int], rows: NDArray[np.uint16], lengths: NDArray[np.uint32], numbers: NDArray[np.uint32]
) -> MatchList:
    events = int(rows[-1]) + 1 if len(rows) else 0
    offsets = np.zeros(events + 1, np.int64)
    offsets[rows.astype(np.int64) + 1] = lengths
    return MatchList(0, span, offsets.cumsum(), numbers + np.int64(span[0]))


class _Cutter:
    """Takes the arrays that lie one after the other in a file."""

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
