"""Writing versions of the index. One process owns the directory.

A change costs a small segment and a manifest, whatever the size of the index: registrations that come are written
together with the smallest segments, and those that end become tombstones. Everything larger is merged by
compactions (see `compaction`), of which there is at most one at a time.
"""

import contextlib
import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from culver.errors import Conflict, CulverError, StorageCorrupt, StorageError, StorageFull
from culver.matching.index.compile.clause_table import ClauseTable, concatenate, select_registrations
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.segments import container
from culver.matching.index.segments.columnar_segment import Segment, open_segment
from culver.matching.index.segments.text_segment import Filters, TextSegment
from culver.matching.index.storage import merge_policy
from culver.matching.index.storage.compaction import Compaction, segment_file
from culver.matching.index.storage.index_redivision import dealt_out
from culver.matching.index.storage.partitioner import ANYWHERE, Placed, Slicing, Undivided
from culver.matching.index.storage.segment_content import (
    Content,
    contents_of,
    encode,
    merge,
    scheme_of,
    selected,
)
from culver.matching.index.storage.tombstones import Integers, columns_of_ends, gathered
from culver.matching.index.storage.version_files import (
    SEGMENT_SUFFIX,
    StoredPart,
    Version,
    files_of_version,
    read_version,
    version_path,
    versions_in,
    write_version,
)


class IndexWriter:
    """Owns the directory of an index. Not thread-safe; readers may open any version at any time.

    It starts from the newest intact version. What is newer but torn or altered is left alone and named in
    `problems`; publishing goes on from the intact one.

    With `filters`, those of other schemes than the columnar are made before a version appears, so that whoever
    matches in this process need not wait for them.
    """

    def __init__(self, directory: Path, filters: Filters | None = None) -> None:
        self._directory = directory
        self._filters = filters
        self._slicing: Slicing = Undivided()
        self.problems: list[str] = []
        self._current = Version(0, 0, ())
        self._compaction: Compaction | None = None
        self._left: list[int] | None = None  # the versions that `retire` has left; None: something came since
        with _translated(directory):
            directory.mkdir(parents=True, exist_ok=True)
            for leftover in directory.glob("*.tmp"):
                leftover.unlink(missing_ok=True)
        for version in reversed(versions_in(directory)):
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
    def placed(self) -> Placed:
        """How the newest version is divided."""
        return self._current.placed

    def divide(self, slicing: Slicing) -> None:
        """Have `slicing` decide from now on: for an empty index, or one that was divided by its like, which had
        learnt the same."""
        if self.version and self.placed != Placed.by(slicing):
            raise ValueError(f"the index is divided otherwise: {self.placed.name}, {self.placed.slices}")
        self._slicing = slicing
        if not self.version:
            self._current = replace(self._current, placed=Placed.by(slicing))

    @property
    def slicing(self) -> Slicing:
        """What decides now."""
        return self._slicing

    @property
    def segments(self) -> int:
        """How many segments the newest version has."""
        return len(self._current.parts)

    def contents(self) -> list[tuple[int, int]]:
        """For each set of the newest version, the registrations in effect and the bytes of its arrays. May be
        called from any thread."""
        return _contents(self._current)

    def contents_of_slices(self) -> list[tuple[int, int]]:
        """The same for each slice; a registration counts in each set that the slice may work on."""
        current = self._current  # of one moment: it may be divided anew meanwhile
        homes, sets = current.placed.homes, _contents(current)
        return [
            (sum(count for count, _ in own), sum(size for _, size in own))
            for each in range(current.placed.slices)
            for own in [[held for home, held in zip(homes, sets, strict=True) if home in (each, ANYWHERE)]]
        ]

    def divided(self) -> tuple[Slicing, list[tuple[int, int]]]:
        """What decides now, and the contents of its sets: of one moment, from any thread."""
        while True:
            slicing, current = self._slicing, self._current
            if tuple(slicing.homes.tolist()) == current.placed.homes:  # else one of them is just changing
                return slicing, _contents(current)

    def schemes(self) -> dict[str, tuple[int, int]]:
        """The same for each scheme; a registration counts in each set that holds it."""
        schemes: dict[str, tuple[int, int]] = {}
        for stored in self._current.parts:
            schemes[stored.segment.scheme] = _counted(schemes.get(stored.segment.scheme, (0, 0)), stored)
        return schemes

    def publish(
        self,
        registry_version: int,
        added: Sequence[Entry],
        ended: Sequence[tuple[int, int]],
        horizon: int,
        tables: Sequence[ClauseTable] = (),
        ended_together: Sequence[tuple[Integers, int]] = (),
    ) -> None:
        """Make a new version: the current one with `added` registrations and those compiled in `tables`, and those
        in `ended` (number, position) and `ended_together` (numbers, position) in effect only below that
        position; a number that is unknown is ignored. Its number is `registry_version`, or one more
        than the last where compactions have used that up.

        Registrations that ended at or below `horizon` may be dropped, so a reader of this version must not
        match events below it. The version is complete when its file appears. Raises Conflict where
        `registry_version` is not new, StorageFull and StorageError with nothing changed.
        """
        if registry_version <= self.registry_version:
            raise Conflict(
                f"the index has all changes up to version {self.registry_version} already, "
                f"so {registry_version} cannot be published"
            )
        number = max(registry_version, self.version + 1)
        numbers, until = columns_of_ends(ended, ended_together)
        told = self._slicing.holders(numbers)
        tables = [table for table in tables if len(table.numbers)]
        fresh = [*contents_of(added), *((table, table) for table in tables)]
        held = [self._slicing.assign(table) for table, _ in fresh]
        schemes = dict.fromkeys(scheme_of(content) for _, content in fresh)
        parts: list[StoredPart] = []
        with _translated(self._directory):
            for place in range(len(self._slicing.homes)):
                ends = numbers[told[:, place]], until[told[:, place]]
                own = [_with_ends(stored, *ends) for stored in self._current.parts if stored.set == place]
                own = [stored for stored in own if self._is_busy(stored) or not _is_dead(stored, horizon)]
                new = [
                    selected(content, one[:, place]) for (_, content), one in zip(fresh, held, strict=True)
                ]
                for scheme in schemes:
                    more = [each for each in new if len(each.numbers) and scheme_of(each) == scheme]
                    if more:
                        small, own = self._small_and_others(own, scheme)
                        own.append(_with_ends(self._write(number, place, more, small, horizon), *ends))
                parts += own
            placed = Placed.by(self._slicing)
            self._advance(Version(number, registry_version, tuple(parts), placed))

    def redivide(
        self,
        slicing: Slicing,
        kept: Sequence[int],
        sources: Sequence[int],
        changed: Sequence[int],
        horizon: int,
    ) -> None:
        """Make a version that `slicing` divides, and have it decide from now on. Set s stays as it is and becomes
        `kept[s]`, unless that is below 0; the sets in `changed` are filled from the registrations of the sets in
        `sources`. There must be no compaction under way. Raises StorageFull and StorageError with nothing changed."""
        if self._compaction is not None:
            raise ValueError("the index cannot be divided anew while a compaction is under way")
        number, stored = self.version + 1, self._current.parts
        parts = [replace(each, set=kept[each.set]) for each in stored if kept[each.set] >= 0]
        given = [each for each in stored if each.set in set(sources)]
        with _translated(self._directory):
            for place, content, until in dealt_out(given, slicing, changed, horizon):
                parts.append(self._written(number, place, content, until))
            self._advance(
                replace(self._current, number=number, parts=tuple(parts), placed=Placed.by(slicing))
            )
        self._slicing = slicing

    def sample(self, sets: Sequence[int], most: int) -> ClauseTable:
        """About `most` of the registrations in these sets, each once: to find out what they are like."""
        segments = [
            stored.segment
            for stored in self._current.parts
            if stored.set in set(sets) and isinstance(stored.segment, Segment)
        ]
        count = sum(map(len, segments))
        step = -(-count // max(1, most))
        tables = [
            select_registrations(segment.table(), np.arange(len(segment)) % step == 0) for segment in segments
        ]
        table, _ = concatenate([compile_entries(()), *tables])
        return select_registrations(table, np.diff(table.numbers, prepend=-1) > 0)

    def plan_compaction(self, horizon: int, quiet: bool = False) -> Compaction | None:
        """What to merge next, if anything; None also while another compaction is under way. `quiet`: nothing has
        changed for a while, so more is worth merging."""
        if self._compaction is not None:
            return None
        choose = merge_policy.choose_when_quiet if quiet else merge_policy.choose
        kinds = sorted({(stored.set, stored.segment.scheme) for stored in self._current.parts})
        for kind in kinds:
            parts = [stored for stored in self._current.parts if (stored.set, stored.segment.scheme) == kind]
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
        replaced = [stored for stored in self._current.parts if self._is_busy(stored)]
        parts = [stored for stored in self._current.parts if not self._is_busy(stored)]
        if compaction.segment is not None:
            merged = StoredPart(compaction.file, compaction.segment, set=replaced[0].set)
            for stored in replaced:
                ended = stored.tombstones
                merged = _with_ends(merged, stored.segment.arrays.numbers[ended.places], ended.until)
            parts.append(merged)
        with _translated(self._directory):
            self._advance(replace(self._current, number=self.version + 1, parts=tuple(parts)))
        self._compaction = None

    def abandon(self, compaction: Compaction) -> None:
        """Forget a compaction that failed or was cancelled, and is not running any more."""
        if compaction is self._compaction:
            self._compaction = None
            self._left = None  # it may have left a file

    def retire(self, before: int) -> None:
        """Delete the versions below `before`, but never the current one, and the segments that no version
        left over names."""
        if self._left is not None and all(left >= before or left == self.version for left in self._left):
            return  # as it was left the last time
        with _translated(self._directory):
            # Listed first: a compaction may put its file here at any moment, and says so before it does.
            listed = list(self._directory.glob(f"*{SEGMENT_SUFFIX}"))
            needed = {stored.file for stored in self._current.parts}
            if self._compaction is not None:
                needed.add(self._compaction.file)
            left: list[int] = []
            for version in versions_in(self._directory):
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

    def _advance(self, version: Version) -> None:
        self._prepare(version)
        write_version(self._directory, version)
        self._current = version
        self._left = None

    def _prepare(self, version: Version) -> None:
        for stored in version.parts:
            if self._filters is not None and isinstance(stored.segment, TextSegment):
                stored.segment.prepare(self._filters)

    def _is_busy(self, stored: StoredPart) -> bool:
        """Whether the compaction under way will replace this part. Its tombstones may have grown since."""
        return self._compaction is not None and any(
            stored.segment is source.segment and stored.set == source.set  # sets may share one
            for source in self._compaction.sources
        )

    def _small_and_others(
        self, parts: Sequence[StoredPart], scheme: str
    ) -> tuple[list[StoredPart], list[StoredPart]]:
        small: list[StoredPart] = []
        others: list[StoredPart] = []
        for stored in parts:
            rewritten = len(stored.segment) <= merge_policy.SMALLEST and not self._is_busy(stored)
            rewritten = rewritten and stored.segment.scheme == scheme
            (small if rewritten else others).append(stored)
        return small, others

    def _write(
        self,
        number: int,
        place: int,
        contents: Sequence[Content],
        small: Sequence[StoredPart],
        horizon: int,
    ) -> StoredPart:
        """A new segment of a set with these contents and what is left of some small parts, all of one scheme."""
        return self._written(number, place, *merge(small, horizon, contents))

    def _written(self, number: int, place: int, content: Content, until: Integers | None) -> StoredPart:
        chunks = encode(content)
        file = segment_file(number, place, chunks)
        self._left = None  # where no version comes to name it, `retire` deletes it
        container.write(self._directory / file, chunks)
        written = StoredPart(file, open_segment(self._directory / file), set=place)
        return written if until is None else replace(written, tombstones=gathered(until))


def _contents(version: Version) -> list[tuple[int, int]]:
    contents = [(0, 0)] * len(version.placed.homes)
    for stored in version.parts:
        contents[stored.set] = _counted(contents[stored.set], stored)
    return contents


def _counted(before: tuple[int, int], stored: StoredPart) -> tuple[int, int]:
    """With the registrations in effect and the bytes of another part."""
    return (
        before[0] + len(stored.segment) - len(stored.tombstones),
        before[1] + sum(array.nbytes for array in stored.segment.arrays),
    )


def _with_ends(stored: StoredPart, numbers: Integers, until: Integers) -> StoredPart:
    """The part with some registrations ended; those that are not in it are ignored."""
    if not len(numbers):
        return stored
    places, there = stored.segment.places(numbers)
    if not there.any():
        return stored
    return replace(stored, tombstones=stored.tombstones.joined(places[there], until[there]))


def _is_dead(stored: StoredPart, horizon: int) -> bool:
    return stored.tombstones.dead(horizon) == len(stored.segment)


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk that holds the index in {directory} is full") from exc
        raise StorageError(f"cannot write the index in {directory}: {exc.strerror}") from exc
