"""Writing versions of the index. One process owns the directory."""

import contextlib
import errno
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from culver.errors import Conflict, CulverError, StorageCorrupt, StorageError, StorageFull
from culver.matching.index import container, tiers
from culver.matching.index.compiler import Entry, compile_entries
from culver.matching.index.matcher import FOREVER, Part, merge_parts
from culver.matching.index.segment import encode, from_chunks, open_segment
from culver.matching.index.snapshot import (
    SEGMENT_SUFFIX,
    StoredPart,
    files_of_version,
    read_version,
    version_path,
    versions_in,
    write_version,
)
from culver.matching.index.table import ClauseTable


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the version in the making; `chunks` is what its file will hold, if it has none yet."""

    part: Part
    file: str = ""
    chunks: Sequence[bytes] = ()


class IndexWriter:
    """Owns the directory of an index. Not thread-safe; readers may open any version at any time.

    It starts from the newest intact version. What is newer but torn or altered is left alone and named in
    `problems`; publishing goes on from the intact one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.problems: list[str] = []
        self._version = 0
        self._parts: list[StoredPart] = []
        with _translated(directory):
            directory.mkdir(parents=True, exist_ok=True)
            for leftover in directory.glob("*.tmp"):
                leftover.unlink(missing_ok=True)
        for version in reversed(versions_in(directory)):
            try:
                self._parts = read_version(directory, version)
            except CulverError as problem:
                self.problems.append(problem.message)
            else:
                self._version = version
                break

    @property
    def version(self) -> int:
        return self._version

    def publish(
        self, version: int, added: Sequence[Entry], ended: Sequence[tuple[int, int]], horizon: int
    ) -> None:
        """Make a new version: the current one with `added` registrations, and those in `ended` (number,
        position) in effect only below that position; a number that is unknown is ignored.

        Registrations that ended at or below `horizon` may be dropped, so a reader of this version must not
        match events below it. The version is complete when its file appears. Raises Conflict where
        `version` is not new, StorageFull and StorageError with nothing changed.
        """
        if version <= self._version:
            raise Conflict(f"the index is at version {self._version}, so {version} cannot be published")
        pieces = [_Piece(stored.part, stored.file) for stored in self._parts]
        if added:
            pieces.append(_piece(compile_entries(added)))
        if ended:
            pieces = [replace(piece, part=_end(piece.part, ended)) for piece in pieces]
        while chosen := tiers.choose(
            [len(piece.part.segment) for piece in pieces], [_dead(piece.part, horizon) for piece in pieces]
        ):
            table, until = merge_parts([pieces[place].part for place in chosen], horizon)
            pieces = [piece for place, piece in enumerate(pieces) if place not in chosen]
            if len(table.numbers):
                merged = _piece(table)
                pieces.append(replace(merged, part=Part(merged.part.segment, until)))
        with _translated(self._directory):
            parts = [self._stored(version, piece) for piece in pieces]
            write_version(self._directory, version, parts)
        self._parts, self._version = parts, version

    def retire(self, before: int) -> None:
        """Delete the versions below `before`, but never the current one, and the segments that no version
        left over names."""
        with _translated(self._directory):
            needed = {stored.file for stored in self._parts}
            for version in versions_in(self._directory):
                if version < before and version != self._version:
                    version_path(self._directory, version).unlink(missing_ok=True)
                else:
                    with contextlib.suppress(StorageCorrupt):
                        needed |= files_of_version(self._directory, version)
            for path in self._directory.glob(f"*{SEGMENT_SUFFIX}"):
                if path.name not in needed:
                    path.unlink(missing_ok=True)

    def _stored(self, version: int, piece: _Piece) -> StoredPart:
        """The piece as a part whose segment is mapped from its file, which is written if need be."""
        if not piece.chunks:
            return StoredPart(piece.file, piece.part)
        crc = 0
        for chunk in piece.chunks:
            crc = zlib.crc32(chunk, crc)
        file = f"{version:020d}-{crc:08x}{SEGMENT_SUFFIX}"
        container.write(self._directory / file, piece.chunks)
        return StoredPart(file, Part(open_segment(self._directory / file), piece.part.until))


def _end(part: Part, ended: Sequence[tuple[int, int]]) -> Part:
    """The part with some registrations ended; those that are not in it are ignored."""
    pairs = np.array(ended, np.int64).reshape(-1, 2)
    places, there = part.segment.places(pairs[:, 0])
    if not there.any():
        return part
    until = np.full(len(part.segment), FOREVER) if part.until is None else part.until.copy()
    np.minimum.at(until, places[there], pairs[there, 1])
    return Part(part.segment, until)


def _dead(part: Part, horizon: int) -> int:
    return 0 if part.until is None else int(np.count_nonzero(part.until <= horizon))


def _piece(table: ClauseTable) -> _Piece:
    chunks = encode(table)
    return _Piece(Part(from_chunks(chunks)), chunks=chunks)


@contextlib.contextmanager
def _translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk that holds the index in {directory} is full") from exc
        raise StorageError(f"cannot write the index in {directory}: {exc.strerror}") from exc
