"""The files of index versions.

    index/
      00000000000000000041.version              a manifest per version
      00000000000000000042.version
      00000000000000000017-0-5d0c8a31.segment   of set 0, shared by the versions that name it
      00000000000000000042-0-9b2e117f.segment   of one scheme each

    container of kind "version"
      meta     {"version": 42, "registry_version": 40,
                "placement": {"name": ..., "slices": ..., "homes": ..., "state": ...},
                "segments": [{"file": ..., "set": ..., "size": ..., "count": ...}, ...]}
      arrays   ended_start    per segment, where its entries in the next two begin
               ended_place    which of its registrations have ended, by place
               ended_until    and at which log position

A version names everything that it consists of and never changes. It has all changes up to a registry version;
versions that compactions made have the same changes as the one before. Version 0 is empty and needs no file.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.errors import NotFound, StorageCorrupt
from culver.jit import Integers
from culver.matching.index.compile.clause_table import run_starts
from culver.matching.index.segments import container
from culver.matching.index.segments.segment_file import FOREVER, AnySegment, S, SegmentView, open_segment
from culver.matching.index.storage.partitioner import UNDIVIDED, PlacementRecord

KIND = "version"
VERSION_SUFFIX = ".version"
SEGMENT_SUFFIX = ".segment"


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The places of registrations that have ended, ascending, and the log position at which each ended. Immutable."""

    places: Integers
    until: Integers

    def __len__(self) -> int:
        return len(self.places)

    def joined(self, places: Integers, until: Integers) -> "Tombstones":
        """Add more. Of two for one place the earlier end holds."""
        if not len(places):
            return self
        every = np.concatenate([self.places, places])
        distinct, inverse = np.unique(every, return_inverse=True)
        earliest = np.full(len(distinct), FOREVER)
        np.minimum.at(earliest, inverse, np.concatenate([self.until, until]))
        return Tombstones(distinct, earliest)

    def dead(self, horizon: int) -> int:
        return int(np.count_nonzero(self.until <= horizon))

    def spread(self, count: int) -> Integers | None:
        """The end of each of `count` registrations, as a `SegmentView` has it; None where none has ended."""
        if not len(self.places):
            return None
        until = np.full(count, FOREVER)
        until[self.places] = self.until
        return until

    @classmethod
    def gathered(cls, until: Integers | None) -> "Tombstones":
        """The opposite of `spread`."""
        if until is None:
            return NO_TOMBSTONES
        places = np.flatnonzero(until != FOREVER)
        return cls(places, until[places])


NO_TOMBSTONES = Tombstones(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of a version: its file, its set, and what has ended of it."""

    file: str
    segment: AnySegment
    tombstones: Tombstones = NO_TOMBSTONES
    set: int = 0

    @property
    def in_effect(self) -> int:
        return len(self.segment) - len(self.tombstones)

    def outlives(self, horizon: int) -> bool:
        return self.tombstones.dead(horizon) < len(self.segment)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.segment.arrays)


@dataclass(frozen=True, slots=True)
class IndexVersion:
    number: int = 0
    registry_version: int = 0
    segments: tuple[StoredSegment, ...] = ()
    placement: PlacementRecord = UNDIVIDED


def views_of(stored: Sequence[StoredSegment], kind: type[S]) -> list[SegmentView[S]]:
    """The segments of a kind, ready to be matched or merged."""
    return [
        SegmentView(each.segment, each.tombstones.spread(len(each.segment)))
        for each in stored
        if isinstance(each.segment, kind)
    ]


def version_path(directory: Path, version: int) -> Path:
    return directory / f"{version:020d}{VERSION_SUFFIX}"


def index_versions(directory: Path) -> list[int]:
    """The versions that have a file, intact or not, ascending."""
    if not directory.is_dir():
        return []
    stems = [path.name.removesuffix(VERSION_SUFFIX) for path in directory.glob(f"*{VERSION_SUFFIX}")]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def files_of_version(directory: Path, version: int) -> set[str]:
    """The segment files that a version names. Raises FileNotFoundError, StorageCorrupt."""
    return {str(entry["file"]) for entry in _manifest(directory, version).meta["segments"]}


def write_version(directory: Path, version: IndexVersion) -> None:
    """Put the manifest of a version in place; its segments are there already."""
    tombstones = [stored.tombstones for stored in version.segments]
    arrays: dict[str, NDArray[Any]] = {
        "ended_start": run_starts(np.array([len(each) for each in tombstones], np.int64)),
        "ended_place": np.concatenate([NO_TOMBSTONES.places, *(each.places for each in tombstones)]),
        "ended_until": np.concatenate([NO_TOMBSTONES.until, *(each.until for each in tombstones)]),
    }
    segments = [
        {
            "file": stored.file,
            "set": stored.set,
            "size": (directory / stored.file).stat().st_size,
            "count": len(stored.segment),
        }
        for stored in version.segments
    ]
    meta = {
        "version": version.number,
        "registry_version": version.registry_version,
        "placement": asdict(version.placement),
        "segments": segments,
    }
    container.write(version_path(directory, version.number), container.encode(KIND, meta, arrays))


def read_version(directory: Path, number: int, only_set: int | None = None) -> IndexVersion:
    """Open a version, or one set of it. Raises NotFound where it does not exist, and StorageCorrupt, naming the file,
    where it or one of its segments is torn, altered or missing.

    A segment's checksum is checked when this process first maps it (0.3 s per GB that the page cache holds); all
    versions share the mapping from then on."""
    path = version_path(directory, number)
    try:
        manifest = _manifest(directory, number)
    except FileNotFoundError:
        if number == 0:
            return IndexVersion()
        raise _not_found(directory, number) from None
    start = manifest.arrays["ended_start"].tolist()
    segments: list[StoredSegment] = []
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
                raise _not_found(directory, number) from None
            raise StorageCorrupt(f"{file} is missing, though {path} names it; rebuild the index") from None
        ended = Tombstones(
            manifest.arrays["ended_place"][begin:end], manifest.arrays["ended_until"][begin:end]
        )
        segments.append(StoredSegment(entry["file"], segment, ended, entry["set"]))
    placement = PlacementRecord.from_json(manifest.meta["placement"])
    return IndexVersion(number, manifest.meta["registry_version"], tuple(segments), placement)


def read_division(directory: Path, number: int) -> tuple[PlacementRecord, Integers]:
    """The division of a version, and the size of each set. Opens no segment. Raises NotFound, StorageCorrupt."""
    try:
        meta = _manifest(directory, number).meta
    except FileNotFoundError:
        if number == 0:
            return UNDIVIDED, np.zeros(1, np.int64)
        raise _not_found(directory, number) from None
    placement = PlacementRecord.from_json(meta["placement"])
    counts = np.zeros(len(placement.homes), np.int64)
    for entry in meta["segments"]:
        counts[entry["set"]] += entry["count"]
    return placement, counts


def _manifest(directory: Path, version: int) -> container.Container:
    path = version_path(directory, version)
    manifest = container.read(path)
    if manifest.kind != KIND or manifest.meta["version"] != version:
        raise StorageCorrupt(f"{path} is not the manifest of version {version}; rebuild the index")
    return manifest


def _not_found(directory: Path, version: int) -> NotFound:
    return NotFound(f"the index in {directory} has no version {version}")
