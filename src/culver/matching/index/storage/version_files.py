"""Versions of the index, and reading one.

    index/
      00000000000000000041.version          a manifest per version
      00000000000000000042.version
      00000000000000000017-0-5d0c8a31.segment   of set 0, shared by the versions that name it
      00000000000000000042-0-9b2e117f.segment   of one scheme: see `segment` and `texts`

    container of kind "version"
      meta     {"version": 42, "registry_version": 40,
                "placement": {"name": ..., "slices": ..., "homes": ..., "state": ...},
                "segments": [{"file": ..., "set": ..., "size": ..., "count": ...}, ...]}
      arrays   ended_start    per segment, where its entries in the next two begin
               ended_place    which of its registrations have ended, by place
               ended_until    and at which log position

A version names everything it consists of and never changes. It has all changes up to a registry version; versions
that compactions made have the same changes as the one before. Version 0 is empty and needs no file.

Opening a version costs what is not open in the process yet: a segment's checksum is checked when it is mapped for the
first time (0.3 s per GB that the page cache holds), and shared by all versions from then on.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.errors import NotFound, StorageCorrupt
from culver.matching.filter import Matches, select_rows, spread_rows
from culver.matching.groups import Found
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.results.gatherer import Gatherer
from culver.matching.index.results.grouping import Grouping
from culver.matching.index.results.listed_matches import Listed
from culver.matching.index.search.columnar_matcher import FOREVER, Part, Parts
from culver.matching.index.search.text_matcher import Beside, Done, TextPart, joined
from culver.matching.index.segments import container
from culver.matching.index.segments.columnar_segment import AnySegment, Segment, open_segment
from culver.matching.index.segments.text_segment import Filters, TextSegment
from culver.matching.index.storage.partitioner import UNDIVIDED, Placed
from culver.matching.index.storage.tombstones import NONE, Tombstones

_FEW_ROWS = 64

KIND = "version"
VERSION_SUFFIX = ".version"
SEGMENT_SUFFIX = ".segment"


class Memory:
    """For `Index.find`, used again from call to call. Not thread-safe."""

    def __init__(self) -> None:
        self.grouping = Grouping()
        self.gatherer = Gatherer()
        self._columns: BatchColumns | None = None

    def columns_of(self, batch: pa.RecordBatch) -> BatchColumns:
        """Kept until another batch comes, or `let_go`: several sets, of several slices, are asked about the same."""
        columns = self._columns
        if columns is None or columns.batch is not batch:
            columns = self._columns = BatchColumns(batch)
        return columns

    def let_go(self) -> None:
        """Of the last batch."""
        self._columns = None


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of a version: a segment of some scheme, the file that it is in, and what has ended of it."""

    file: str
    segment: AnySegment
    tombstones: Tombstones = NONE
    set: int = 0

    def part(self) -> Part:
        """Of a columnar segment."""
        if not isinstance(self.segment, Segment):
            raise ValueError(f"{self.file} is of scheme {self.segment.scheme}")
        return Part(self.segment, self.tombstones.spread(len(self.segment)))

    def text_part(self) -> TextPart:
        """Of a segment of another scheme."""
        if not isinstance(self.segment, TextSegment):
            raise ValueError(f"{self.file} is of scheme {self.segment.scheme}")
        until = self.tombstones.spread(len(self.segment))
        return TextPart(self.segment, np.full(len(self.segment), FOREVER) if until is None else until)


@dataclass(frozen=True, slots=True)
class Version:
    number: int
    registry_version: int
    parts: tuple[StoredPart, ...]
    placed: Placed = UNDIVIDED


def version_path(directory: Path, version: int) -> Path:
    return directory / f"{version:020d}{VERSION_SUFFIX}"


def versions_in(directory: Path) -> list[int]:
    """The versions that have a file, intact or not, ascending."""
    if not directory.is_dir():
        return []
    stems = [path.name.removesuffix(VERSION_SUFFIX) for path in directory.glob(f"*{VERSION_SUFFIX}")]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def files_of_version(directory: Path, version: int) -> set[str]:
    """The segment files that a version names. Raises FileNotFoundError, StorageCorrupt."""
    return {str(entry["file"]) for entry in _manifest(directory, version).meta["segments"]}


def write_version(directory: Path, version: Version) -> None:
    tombstones = [stored.tombstones for stored in version.parts]
    start = np.zeros(len(tombstones) + 1, np.int64)
    np.cumsum([len(each) for each in tombstones], out=start[1:])
    arrays: dict[str, NDArray[Any]] = {
        "ended_start": start,
        "ended_place": np.concatenate([NONE.places, *(each.places for each in tombstones)]),
        "ended_until": np.concatenate([NONE.until, *(each.until for each in tombstones)]),
    }
    segments = [
        {
            "file": stored.file,
            "set": stored.set,
            "size": (directory / stored.file).stat().st_size,
            "count": len(stored.segment),
        }
        for stored in version.parts
    ]
    meta = {
        "version": version.number,
        "registry_version": version.registry_version,
        "placement": asdict(version.placed),
        "segments": segments,
    }
    container.write(version_path(directory, version.number), container.encode(KIND, meta, arrays))


def read_version(directory: Path, number: int, only_set: int | None = None) -> Version:
    """A version, or one set of it. Raises NotFound where it does not exist, and StorageCorrupt, naming the file,
    where it or a segment of it is torn, altered or missing."""
    path = version_path(directory, number)
    try:
        manifest = _manifest(directory, number)
    except FileNotFoundError:
        if number == 0:
            return Version(0, 0, ())
        raise NotFound(f"the index in {directory} has no version {number}") from None
    start = manifest.arrays["ended_start"].tolist()
    parts: list[StoredPart] = []
    for entry, begin, end in zip(manifest.meta["segments"], start, start[1:], strict=False):
        if only_set is not None and entry["set"] != only_set:
            continue
        file = directory / entry["file"]
        try:
            if file.stat().st_size != entry["size"]:
                raise StorageCorrupt(f"{file} should have {entry['size']} bytes; rebuild the index")
            segment = open_segment(file)
        except FileNotFoundError:
            if not path.exists():  # retired while it was being opened
                raise NotFound(f"the index in {directory} has no version {number}") from None
            raise StorageCorrupt(f"{file} is missing, though {path} names it; rebuild the index") from None
        ended = Tombstones(
            manifest.arrays["ended_place"][begin:end], manifest.arrays["ended_until"][begin:end]
        )
        parts.append(StoredPart(entry["file"], segment, ended, entry["set"]))
    placed = Placed.read(manifest.meta["placement"])
    return Version(number, manifest.meta["registry_version"], tuple(parts), placed)


def placed_in(directory: Path, number: int) -> Placed:
    """How a version is divided. Raises NotFound, StorageCorrupt."""
    try:
        return Placed.read(_manifest(directory, number).meta["placement"])
    except FileNotFoundError:
        if number == 0:
            return UNDIVIDED
        raise NotFound(f"the index in {directory} has no version {number}") from None


def counts_in(directory: Path, number: int) -> NDArray[np.int64]:
    """How many registrations each set of a version has, in effect or not. Raises NotFound, StorageCorrupt."""
    homes = placed_in(directory, number).homes
    counts = np.zeros(len(homes), np.int64)
    try:
        for entry in _manifest(directory, number).meta["segments"]:
            counts[entry["set"]] += entry["count"]
    except FileNotFoundError:
        raise NotFound(f"the index in {directory} has no version {number}") from None
    return counts


def _manifest(directory: Path, version: int) -> container.Container:
    path = version_path(directory, version)
    manifest = container.read(path)
    if manifest.kind != KIND or manifest.meta["version"] != version:
        raise StorageCorrupt(f"{path} is not the manifest of version {version}; rebuild the index")
    return manifest


class Index:
    """One version, memory-mapped. Immutable, safe to share between threads; processes share its pages.

    Files that are deleted while it is open stay readable for it. The mapping ends with `close` and the
    last use of what `match` returned.
    """

    def __init__(self, version: int, parts: list[Part], beside: Beside | None = None) -> None:
        every: list[Part | TextPart] = [*parts, *(() if beside is None else beside.parts)]
        self.version = version
        self.count = sum(part.in_effect() for part in every)  # registrations that have not ended
        # Numbers grow with time, so in this order the results of segments mostly just follow one another.
        self._parts: Parts | None = Parts(sorted(parts, key=_first_number))
        ends = [part.segment.arrays.numbers[[0, -1]] for part in every if len(part.segment)]
        self.numbers = (int(min(e[0] for e in ends)), int(max(e[1] for e in ends))) if ends else (0, 0)
        """The lowest and the highest number there may be in what `match` returns."""
        self._beside = beside

    @classmethod
    def open(
        cls, directory: Path, version: int, only_set: int | None = None, filters: Filters | None = None
    ) -> "Index":
        """A whole version, or one set of it. `filters` makes those of other schemes than the columnar; without it,
        a version that needs one is refused as a ValueError. Raises NotFound where there is no such version,
        StorageCorrupt where a file of it is damaged."""
        stored = read_version(directory, version, only_set).parts
        parts = [each.part() for each in stored if isinstance(each.segment, Segment)]
        others = [each.text_part() for each in stored if isinstance(each.segment, TextSegment)]
        if not others:
            return cls(version, parts)
        if filters is None:
            raise ValueError(f"version {version} has segments of scheme {others[0].segment.scheme}")
        return cls(version, parts, Beside(others, filters))

    def match(self, batch: pa.RecordBatch, first_offset: int = 0) -> Matches:
        """The registrations that each event of `batch` matches. Row i is the event at log offset
        `first_offset + i`, and a registration takes part where `since <= offset < until`."""
        return self._match(BatchColumns(batch), first_offset)

    def _match(self, columns: BatchColumns, first_offset: int) -> Matches:
        if self._parts is None:
            raise ValueError("the index is closed")
        found = self._parts.match(columns, first_offset)
        if self._beside is None:
            return found
        positions = np.arange(first_offset, first_offset + columns.rows)
        return joined([found, self._beside.match(columns.batch, positions)])

    def match_some(self, batch: pa.RecordBatch, chosen: NDArray[np.bool_], first_offset: int = 0) -> Matches:
        """The same where only the chosen events are to be matched; the others match nothing."""
        return self._match_some(BatchColumns(batch), chosen, first_offset)

    def _match_some(
        self, columns: BatchColumns, chosen: NDArray[np.bool_] | None, first_offset: int
    ) -> Matches:
        if self._parts is None or chosen is None or chosen.all():
            return self._match(columns, first_offset)
        batch = columns.batch
        rows, end = np.flatnonzero(chosen), first_offset + batch.num_rows
        if any(part.changes_within(first_offset, end) for part in self._parts):
            found = select_rows(self._parts.match(columns, first_offset), rows)
        else:
            # Each registration is in effect for all events or for none: it does not matter where an event is.
            found = self._parts.match(BatchColumns(batch.take(pa.array(rows))), first_offset)
        if self._beside is not None:
            found = joined([found, self._beside.match(batch.take(pa.array(rows)), first_offset + rows)])
        return spread_rows(found, rows, batch.num_rows)

    def find(
        self,
        batch: pa.RecordBatch,
        start: int,
        first_row: int,
        chosen: NDArray[np.bool_] | None,
        memory: Memory,
    ) -> Iterator[Found]:
        """The same, all or the chosen, to be grouped by registration: the events are the rows from `first_row` on,
        and row r is at log offset `start + r`."""
        if self._parts is None:
            raise ValueError("the index is closed")
        parts, count = self._parts, batch.num_rows
        if not parts and self._beside is None:
            return
        if _is_sparse(parts, count if chosen is None else int(np.count_nonzero(chosen))):
            columns, first = memory.columns_of(batch), start + first_row
            yield Listed(self._match_some(columns, chosen, first), self.numbers, first_row)
            return
        rows = np.arange(first_row, first_row + count).astype(np.uint16)
        if chosen is not None and not chosen.all():
            rows, batch = rows[chosen], batch.take(pa.array(np.flatnonzero(chosen)))
        step = parts.rows_at_a_time
        for begin in range(0, len(rows), step):
            columns = BatchColumns(batch.slice(begin, step))
            for part in parts:
                yield memory.gatherer.find(part, columns, rows[begin : begin + step], start)
        if self._beside is not None:
            found = self._beside.match(batch, start + rows.astype(np.int64))
            matches = spread_rows(found, rows.astype(np.int64) - first_row, count)
            yield Listed(matches, self.numbers, first_row)

    def take_done(self) -> tuple[Done, ...]:
        """What schemes other than the columnar have done since the last call. For one owner, who matches."""
        return () if self._beside is None else self._beside.take_done()

    def close(self) -> None:
        self._parts = None

    def __enter__(self) -> "Index":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_sparse(parts: Parts, count: int) -> bool:
    """Whether pairs are to be listed for so many events. To gather is to look at every registration, which does not
    pay where pairs are fewer."""
    return count <= _FEW_ROWS or parts.matches_per_row() * count < parts.registrations


def _first_number(part: Part) -> int:
    numbers = part.segment.arrays.numbers
    return int(numbers[0]) if len(numbers) else 0
