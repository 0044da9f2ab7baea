"""Writing versions of the index. One process owns the directory.

A change costs a small segment and a manifest, whatever the size of the index: registrations that come are written
together with the smallest segments, and those that end become tombstones. Compactions (see `compaction`), at most one
at a time, merge everything larger.
"""

import contextlib
import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.disk import make_directory
from culver.errors import Conflict, CulverError, StorageCorrupt, StorageError, StorageFull
from culver.jit import Integers
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.segments import container
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.segment_file import Content, contents_of, encode_segment, open_segment
from culver.matching.index.segments.text_segment import Filters, TextSegment
from culver.matching.index.storage import merge_policy
from culver.matching.index.storage.compaction import (
    Compaction,
    deal_out,
    merge_segments,
    segment_file_name,
    select,
)
from culver.matching.index.storage.partitioner import ANYWHERE, Partitioner, PlacementRecord
from culver.matching.index.storage.version_files import (
    SEGMENT_SUFFIX,
    IndexVersion,
    StoredSegment,
    Tombstones,
    files_of_version,
    index_versions,
    read_version,
    version_path,
    write_version,
)


class IndexWriter:
    """Owns the directory of an index. Not thread-safe; readers may open any version at any time.

    It starts from the newest intact version. It leaves newer ones that are torn or altered alone, names them in
    `problems`, and goes on from the intact one.

    With `filters`, it makes the filters of schemes other than `columnar` before a version appears, so that whoever
    matches in this process need not wait for them.
    """

    def __init__(self, directory: Path, filters: Filters | None = None) -> None:
        self._directory = directory
        self._filters = filters
        self._partitioner: Partitioner | None = None  # None: one set holds everything
        self.problems: list[str] = []
        self._current = IndexVersion()
        self._compaction: Compaction | None = None
        self._left: list[int] | None = None  # the versions that `retire` has left; None: something came since
        with _translated(directory):
            make_directory(directory)
            for leftover in directory.glob("*.tmp"):
                leftover.unlink(missing_ok=True)
        for version in reversed(index_versions(directory)):
            try:
                self._current = read_version(directory, version)
            except CulverError as problem:
                self.problems.append(problem.message)
            else:
                self._prepare(self._current)
                break

    @property
    def version(self) -> int:
        """The number of the newest version, which readers open it by."""
        return self._current.number

    @property
    def registry_version(self) -> int:
        """The newest version has all changes of the registry up to this."""
        return self._current.registry_version

    @property
    def placement(self) -> PlacementRecord:
        return self._current.placement

    @property
    def partitioner(self) -> Partitioner | None:
        """What divides the index from now on; None: one set holds everything."""
        return self._partitioner

    def divide(self, partitioner: Partitioner) -> None:
        """Have `partitioner` decide from now on. The index is empty, or divided by one that had learnt the same."""
        record = PlacementRecord.of(partitioner)
        if self.version and self.placement != record:
            raise ValueError(
                f"the index is divided otherwise: {self.placement.name}, {self.placement.slices}"
            )
        self._partitioner = partitioner
        if not self.version:
            self._current = replace(self._current, placement=record)

    @property
    def segments(self) -> int:
        return len(self._current.segments)

    def contents(self) -> list[tuple[int, int]]:
        """The registrations in effect and the bytes of each set of the newest version. Thread-safe."""
        return _contents(self._current)

    def contents_of_slices(self) -> list[tuple[int, int]]:
        """Do as `contents`, for each slice. A registration counts in each set that the slice may work on."""
        current = self._current  # one moment's: it may be divided anew meanwhile
        homes, sets = current.placement.homes, _contents(current)
        return [
            (sum(count for count, _ in own), sum(size for _, size in own))
            for each in range(current.placement.slices)
            for own in [[held for home, held in zip(homes, sets, strict=True) if home in (each, ANYWHERE)]]
        ]

    def schemes(self) -> dict[str, tuple[int, int]]:
        """Do as `contents`, for each scheme. A registration counts in each set that holds it."""
        schemes: dict[str, tuple[int, int]] = {}
        for stored in self._current.segments:
            count, size = schemes.get(stored.segment.scheme, (0, 0))
            schemes[stored.segment.scheme] = count + stored.in_effect, size + stored.nbytes
        return schemes

    def division(self) -> tuple[Partitioner | None, list[tuple[int, int]]]:
        """The partitioner and the contents of its sets, of one moment. May be called from any thread."""
        while True:
            partitioner, current = self._partitioner, self._current
            if _homes(partitioner) == current.placement.homes:  # else one of them is just changing
                return partitioner, _contents(current)

    def publish(
        self,
        registry_version: int,
        added: Sequence[Entry],
        ended: Sequence[tuple[int, int]],
        horizon: int,
        tables: Sequence[ClauseTable] = (),
        ended_together: Sequence[tuple[Integers, int]] = (),
    ) -> None:
        """Make a new version. It adds the registrations `added` and those compiled in `tables`, and ends those in
        `ended` (number, position) and `ended_together` (numbers, position) at that position; unknown numbers are
        ignored. Its number is `registry_version`, or one more than the last where compactions have used that up.

        Registrations that ended at or below `horizon` may be dropped, so a reader of this version must not match
        events below it. The version is complete when its file appears. Raises Conflict where `registry_version` is
        not new, and StorageFull and StorageError with nothing changed.
        """
        if registry_version <= self.registry_version:
            raise Conflict(
                f"the index has all changes up to version {self.registry_version} already, "
                f"so {registry_version} cannot be published"
            )
        number = max(registry_version, self.version + 1)
        numbers, until = columns_of_ends(ended, ended_together)
        partitioner = self._partitioner
        told = _one_set(numbers) if partitioner is None else partitioner.holders(numbers)
        fresh = [*contents_of(added), *((table, table) for table in tables if len(table.numbers))]
        held = [
            _one_set(table.numbers) if partitioner is None else partitioner.assign(table)
            for table, _ in fresh
        ]
        schemes = dict.fromkeys(content.scheme for _, content in fresh)
        segments: list[StoredSegment] = []
        with _translated(self._directory):
            for place in range(told.shape[1]):
                ends = numbers[told[:, place]], until[told[:, place]]
                own = [_with_ends(stored, *ends) for stored in self._current.segments if stored.set == place]
                own = [stored for stored in own if stored.outlives(horizon) or self._is_busy(stored)]
                new = [select(content, one[:, place]) for (_, content), one in zip(fresh, held, strict=True)]
                for scheme in schemes:
                    more = [each for each in new if len(each.numbers) and each.scheme == scheme]
                    if more:
                        small, own = self._small_and_others(own, scheme)
                        written = self._write(number, place, *merge_segments(small, horizon, more))
                        own.append(_with_ends(written, *ends))
                segments += own
            placement = PlacementRecord.of(partitioner)
            self._advance(IndexVersion(number, registry_version, tuple(segments), placement))

    def redivide(
        self,
        partitioner: Partitioner,
        kept: Sequence[int],
        sources: Sequence[int],
        changed: Sequence[int],
        horizon: int,
    ) -> None:
        """Make a version that `partitioner` divides, and have it decide from now on. Set s stays as it is and becomes
        `kept[s]`, unless that is below 0; the sets in `changed` are filled from the registrations of the sets in
        `sources`. There must be no compaction under way. Raises StorageFull and StorageError with nothing changed."""
        if self._compaction is not None:
            raise ValueError("the index cannot be divided anew while a compaction is under way")
        number, stored = self.version + 1, self._current.segments
        segments = [replace(each, set=kept[each.set]) for each in stored if kept[each.set] >= 0]
        given = [each for each in stored if each.set in set(sources)]
        record = PlacementRecord.of(partitioner)
        with _translated(self._directory):
            for place, content, until in deal_out(given, partitioner, changed, horizon):
                segments.append(self._write(number, place, content, until))
            self._advance(replace(self._current, number=number, segments=tuple(segments), placement=record))
        self._partitioner = partitioner

    def sample(self, sets: Sequence[int], most: int) -> ClauseTable:
        """About `most` of the columnar registrations in these sets, each once: to find out what they are like."""
        segments = [
            stored.segment
            for stored in self._current.segments
            if stored.set in set(sets) and isinstance(stored.segment, ColumnarSegment)
        ]
        step = -(-sum(map(len, segments)) // max(1, most))
        tables = [segment.table().every(step) for segment in segments]
        return ClauseTable.joined([compile_entries(()), *tables]).distinct()

    def plan_compaction(self, horizon: int, quiet: bool = False) -> Compaction | None:
        """Choose what to merge next, more of it if `quiet`. None: nothing, or another compaction is under way."""
        if self._compaction is not None:
            return None
        choose = merge_policy.choose_when_quiet if quiet else merge_policy.choose
        kinds = sorted({(stored.set, stored.segment.scheme) for stored in self._current.segments})
        for kind in kinds:
            parts = [
                stored for stored in self._current.segments if (stored.set, stored.segment.scheme) == kind
            ]
            sizes = [len(stored.segment) for stored in parts]
            chosen = choose(sizes, [stored.tombstones.dead(horizon) for stored in parts])
            if chosen:
                sources = [parts[each] for each in chosen]
                self._compaction = Compaction(self._directory, self.version, sources, horizon)
                break
        return self._compaction

    def install(self, compaction: Compaction) -> None:
        """Make a version in which the segment that the compaction has made replaces those that it was made of.
        Raises StorageFull and StorageError with nothing changed."""
        if compaction is not self._compaction or not compaction.done:
            raise ValueError("only the compaction that was planned last can be installed, once it is done")
        replaced = [stored for stored in self._current.segments if self._is_busy(stored)]
        segments = [stored for stored in self._current.segments if not self._is_busy(stored)]
        if compaction.segment is not None:
            merged = StoredSegment(compaction.file, compaction.segment, set=replaced[0].set)
            for stored in replaced:
                ended = stored.tombstones
                merged = _with_ends(merged, stored.segment.arrays.numbers[ended.places], ended.until)
            segments.append(merged)
        with _translated(self._directory):
            self._advance(replace(self._current, number=self.version + 1, segments=tuple(segments)))
        self._compaction = None

    def abandon(self, compaction: Compaction) -> None:
        """Forget a compaction that failed or was cancelled, and is not running any more."""
        if compaction is self._compaction:
            self._compaction = None
            self._left = None  # it may have left a file

    def retire(self, before: int) -> None:
        """Delete the versions below `before`, never the current one, and the segments that none names any more."""
        if self._left is not None and all(left >= before or left == self.version for left in self._left):
            return  # as it was left the last time
        with _translated(self._directory):
            # Listed first: a compaction may put its file here at any moment, and says so before it does.
            listed = list(self._directory.glob(f"*{SEGMENT_SUFFIX}"))
            needed = {stored.file for stored in self._current.segments}
            if self._compaction is not None:
                needed.add(self._compaction.file)
            left: list[int] = []
            for version in index_versions(self._directory):
                if version < before and version != self.version:
                    version_path(self._directory, version).unlink(missing_ok=True)
                else:
                    left.append(version)
                    with contextlib.suppress(StorageCorrupt):
                        needed |= files_of_version(self._directory, version)
            for path in listed:
                if path.name not in needed:
                    path.unlink(missing_ok=True)
            self._left = left if self._compaction is None else None

    def _advance(self, version: IndexVersion) -> None:
        self._prepare(version)
        write_version(self._directory, version)
        self._current = version
        self._left = None

    def _prepare(self, version: IndexVersion) -> None:
        for stored in version.segments:
            if self._filters is not None and isinstance(stored.segment, TextSegment):
                stored.segment.prepare(self._filters)

    def _is_busy(self, stored: StoredSegment) -> bool:
        """Whether the compaction under way will replace this segment. Its tombstones may have grown since."""
        return self._compaction is not None and any(
            stored.segment is source.segment and stored.set == source.set  # sets may share one
            for source in self._compaction.sources
        )

    def _small_and_others(
        self, parts: Sequence[StoredSegment], scheme: str
    ) -> tuple[list[StoredSegment], list[StoredSegment]]:
        small: list[StoredSegment] = []
        others: list[StoredSegment] = []
        for stored in parts:
            rewritten = len(stored.segment) <= merge_policy.SMALLEST and not self._is_busy(stored)
            rewritten = rewritten and stored.segment.scheme == scheme
            (small if rewritten else others).append(stored)
        return small, others

    def _write(self, number: int, set_number: int, content: Content, until: Integers | None) -> StoredSegment:
        pieces = encode_segment(content)
        file = segment_file_name(number, set_number, pieces)
        self._left = None  # where no version comes to name the file, `retire` deletes it
        container.write(self._directory / file, pieces)
        segment = open_segment(self._directory / file)
        return StoredSegment(file, segment, Tombstones.gathered(until), set_number)


def _one_set(numbers: Integers) -> NDArray[np.bool_]:
    return np.ones((len(numbers), 1), np.bool_)


def _homes(partitioner: Partitioner | None) -> tuple[int, ...]:
    return (ANYWHERE,) if partitioner is None else tuple(partitioner.homes.tolist())


def _contents(version: IndexVersion) -> list[tuple[int, int]]:
    contents = [(0, 0)] * len(version.placement.homes)
    for stored in version.segments:
        count, size = contents[stored.set]
        contents[stored.set] = count + stored.in_effect, size + stored.nbytes
    return contents


def columns_of_ends(
    ended: Sequence[tuple[int, int]], together: Sequence[tuple[Integers, int]] = ()
) -> tuple[Integers, Integers]:
    """Turn (number, position) pairs, and (numbers, position) pairs, into two columns."""
    pairs = np.array(ended, np.int64).reshape(-1, 2)
    numbers = [pairs[:, 0], *(numbers for numbers, _ in together)]
    until = [pairs[:, 1], *(np.full(len(numbers), position, np.int64) for numbers, position in together)]
    return np.concatenate(numbers), np.concatenate(until)


def _with_ends(stored: StoredSegment, numbers: Integers, until: Integers) -> StoredSegment:
    """End some registrations of the segment; those that are not in it are ignored."""
    if not len(numbers):
        return stored
    places, there = stored.segment.places(numbers)
    if not there.any():
        return stored
    return replace(stored, tombstones=stored.tombstones.joined(places[there], until[there]))


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk that holds the index in {directory} is full") from exc
        raise StorageError(f"cannot write the index in {directory}: {exc.strerror}") from exc
