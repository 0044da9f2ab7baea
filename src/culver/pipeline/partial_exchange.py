"""Where the tasks of a range meet: the last one to finish joins what all have found.

    partials/START-END.5-8-1f00ba42-90c1d3aa.0-3.part   written by task 0 of 3, by a plan and a division
             START-END.5-8-1f00ba42-90c1d3aa.1-3.part   written by task 1                 with these marks
    notifications/START-END.ntf                         task 2 finds the others there, joins them with what it has in
                                                        memory into this, and deletes the two

A task that does not find the results of all others writes its own, and looks once more. So of two tasks that finish
at the same moment at least one finds all. Both may: then they write the same content under the same name. A task that
is tried again after its block was joined finds nothing of the others, and leaves its own result behind. The driver
removes it at its next start; if another task joins it before, the content is the same again.

A worker that has outlived its driver may still write. If it has another plan, or an index that was rebuilt meanwhile
under the same version, it writes under other names. A partial result need not survive a power cut, because Spark then
runs the whole batch again.

Nothing is grouped for the file: grouping looks at every registration that was found, and the task that joins does
that once.

    magic "CULVPRT1" | u32 crc32 of the header | u32 header length
    header (JSON, see `_Header`), padded with spaces to 8 bytes
    runs      rows uint16, lengths uint32, numbers uint32     of each list: run i is the event in row rows[i], which
                                                              satisfies the next lengths[i] numbers, less `low`
    groups    numbers int64, bounds int64, rows uint16        of each, as `Groups` has them

Each array begins at a multiple of 8. A file appears as a whole. A reader checks its length, but not what is in the
arrays: it reads the file a moment after it was written.
"""

import contextlib
import mmap
import os
import struct
import zlib
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from culver.disk import write_whole
from culver.errors import StorageCorrupt
from culver.matching import Grouping, Groups, Matched, MatchList
from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.notifications import NOTIFICATION_SUFFIX, Notifications, notification_file_name
from culver.pipeline.operator_work import SliceWork, with_join_time

_SUFFIX = ".part"
_MAGIC = b"CULVPRT1"
_PREFIX = struct.Struct("<8sII")
_ALIGNMENT = 8
_WIDEST = 1 << 32


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


class _Header(msgspec.Struct):
    start: int
    end: int
    index_version: int
    runs: list[tuple[int, int, int, int]]  # low, high, runs and pairs of each list
    groups: list[tuple[int, int]]  # registrations and pairs of each
    work: tuple[SliceWork, ...]


def put_partial(
    directory: Path, part: Partial, task: int, plan: BatchPlan, grouping: Grouping
) -> Notifications | None:
    """Joins what all tasks have found, where this is the last of them: the caller puts the result on disk and then
    calls `clear_partials`. Any other task stores what it has found, and gets None. Raises StorageCorrupt where what
    another task has stored is torn."""
    paths = _paths(directory, part, plan)
    own = paths.pop(task)
    others = _read(paths)
    if others is None:
        directory.mkdir(exist_ok=True)
        write_partial(own, part)
        others = _read(paths)
    return None if others is None else _join(part, others, grouping)


def clear_partials(directory: Path, joined: Notifications, plan: BatchPlan) -> None:
    for path in _paths(directory, joined, plan):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _read(paths: list[Path]) -> list[tuple[list[Matched], tuple[SliceWork, ...]]] | None:
    """The contents of all of them; None where one is not there."""
    try:
        return [read_partial(path) for path in paths]
    except FileNotFoundError:
        return None


def _join(
    part: Partial, others: list[tuple[list[Matched], tuple[SliceWork, ...]]], grouping: Grouping
) -> Notifications:
    began = perf_counter()
    found, work = list(part.found), list(part.work)
    for each, done in others:
        found += each
        work += done
    groups = grouping.group(found)
    work.sort(key=lambda each: each.slice)
    return Notifications(
        part.start,
        part.end,
        part.index_version,
        *groups,
        part.sizes,
        with_join_time(tuple(work), perf_counter() - began),
    )


def _paths(directory: Path, part: Partial | Notifications, plan: BatchPlan) -> list[Path]:
    """By task. The mark takes a while, and is the same for all; the part tells how the index was divided."""
    stem = notification_file_name(part.start, part.end).removesuffix(NOTIFICATION_SUFFIX)
    mark = "-".join([plan.mark, *sorted({each.division for each in part.work})])
    return [directory / f"{stem}.{mark}.{task}-{plan.tasks}{_SUFFIX}" for task in range(plan.tasks)]


def write_partial(path: Path, part: Partial) -> None:
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
    counts = [(*each.span, len(own[0]), each.pairs) for each, own in zip(lists, runs, strict=True)]
    sizes = [(len(each.numbers), len(each.rows)) for each in groups]
    header = msgspec.json.encode(_Header(part.start, part.end, part.index_version, counts, sizes, part.work))
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGNMENT)
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, zlib.crc32(header), len(header)), header]
    for array in (array for arrays in (*runs, *groups) for array in arrays):
        parts += [array.view(np.uint8).data, bytes(-array.nbytes % _ALIGNMENT)]
    write_whole(path, parts, durable=False)


def read_partial(path: Path) -> tuple[list[Matched], tuple[SliceWork, ...]]:
    """What was found, mapped, and its work. Raises StorageCorrupt if the file is torn, FileNotFoundError if gone."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _PREFIX.size:
            raise StorageCorrupt(f"{path} is too short for a partial result")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    magic, crc, length = _PREFIX.unpack_from(data)
    text = data[_PREFIX.size : _PREFIX.size + length]
    if magic != _MAGIC or zlib.crc32(text) != crc:
        raise StorageCorrupt(f"{path} is no partial result of this format, or torn")
    header = msgspec.json.decode(text, type=_Header)
    at = _PREFIX.size + length

    def cut(kind: type[np.generic], count: int) -> NDArray[Any]:
        nonlocal at
        array = np.frombuffer(data, kind, count, at) if count else np.empty(0, kind)
        at += array.nbytes + -array.nbytes % _ALIGNMENT
        return array

    found: list[Matched] = []
    try:
        for low, high, runs, pairs in header.runs:
            arrays = cut(np.uint16, runs), cut(np.uint32, runs), cut(np.uint32, pairs)
            found.append(_list_of((low, high), *arrays))
        for registrations, pairs in header.groups:
            numbers, bounds = cut(np.int64, registrations), cut(np.int64, registrations + 1)
            found.append(Groups(numbers, bounds, cut(np.uint16, pairs)))
    except ValueError as exc:
        raise StorageCorrupt(f"{path} is torn") from exc
    if at != len(data):
        raise StorageCorrupt(f"{path} is torn")
    return found, header.work


def _runs_of(found: MatchList) -> tuple[NDArray[Any], ...]:
    """The arrays of a list in the file: without events that match nothing, and four bytes for a number."""
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
