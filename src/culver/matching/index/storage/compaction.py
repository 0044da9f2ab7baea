"""Merging segments. A compaction merges some segments of one set and one scheme, beside everything else that goes on.

    writer's thread          plan_compaction ..................................... install
                                   |            publish, publish, ...                 |
    another thread                 +--> run: merge, lay out, write, map the file -----+

What it reads never changes: segments are immutable, and it has the tombstones of the moment when it was planned. A
registration that ends while it runs is still in the new segment, and `install` takes the tombstone over. A process
that ends meanwhile leaves a file that no version names; `IndexWriter.retire` deletes it.
"""

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching.index.compile.clause_table import ClauseTable, first_of_runs, join_tables
from culver.matching.index.search.columnar_matcher import ColumnarView
from culver.matching.index.search.text_matcher import TextView
from culver.matching.index.segments import container
from culver.matching.index.segments.columnar_segment import ColumnarSegment
from culver.matching.index.segments.segment_file import (
    FOREVER,
    AnySegment,
    Content,
    encode_segment,
    open_segment,
)
from culver.matching.index.segments.text_segment import Texts, TextSegment, compile_texts, join_texts
from culver.matching.index.storage.partitioner import Partitioner
from culver.matching.index.storage.version_files import SEGMENT_SUFFIX, StoredSegment, views_of

C = TypeVar("C", ClauseTable, Texts)


class Compaction:
    """Made by `IndexWriter.plan_compaction`, which remembers it until it is installed or abandoned."""

    def __init__(self, directory: Path, version: int, sources: Sequence[StoredSegment], horizon: int) -> None:
        self.sources = tuple(sources)
        self.file = ""
        """The file that it makes; named before the file appears."""
        self.segment: AnySegment | None = None
        """The segment that it has made. None when it is done: nothing is left of the sources."""
        self.done = False
        self._directory = directory
        self._version = version
        self._horizon = horizon
        self._cancelled = threading.Event()

    def __len__(self) -> int:
        """The registrations to work through."""
        return sum(len(source.segment) for source in self.sources)

    def run(self) -> None:
        """Do the work. Call it once, from any thread; a million registrations take seconds. Raises OSError. Returns
        early, not `done`, where it is cancelled."""
        content, _ = merge_segments(self.sources, self._horizon)
        if len(content.numbers) and not self._cancelled.is_set():
            pieces = encode_segment(content)
            if self._cancelled.is_set():
                return
            self.file = segment_file_name(self._version, self.sources[0].set, pieces)
            container.write(self._directory / self.file, pieces)
            self.segment = open_segment(self._directory / self.file)
        self.done = not self._cancelled.is_set()

    def cancel(self) -> None:
        """Have `run` end after the step it is in."""
        self._cancelled.set()


def segment_file_name(version: int, set_number: int, pieces: Sequence[bytes]) -> str:
    """The name of a segment that is made after `version`, in a set."""
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return f"{version:020d}-{set_number}-{crc:08x}{SEGMENT_SUFFIX}"


def merge_columnar(
    views: Sequence[ColumnarView], horizon: int, added: Sequence[ClauseTable] = ()
) -> tuple[ClauseTable, Integers | None]:
    """Put all registrations into one table, with those that are added and without those that ended at or below
    `horizon`. Also returns the position at which each has ended (None: none has)."""
    return _merged([(view.segment.table(), view.until) for view in views], horizon, added, join_tables)


def merge_texts(
    views: Sequence[TextView], horizon: int, added: Sequence[Texts] = ()
) -> tuple[Texts, Integers | None]:
    """Do as `merge_columnar`, for segments of one other scheme."""
    return _merged([(view.segment.content(), view.until) for view in views], horizon, added, join_texts)


def _merged(
    stored: Sequence[tuple[C, Integers | None]],
    horizon: int,
    added: Sequence[C],
    join: Callable[[Sequence[C]], tuple[C, Integers]],
) -> tuple[C, Integers | None]:
    if not stored and len(added) == 1:
        return added[0], None
    contents: list[C] = []
    untils: list[Integers] = []
    for content, until in stored:
        if until is None:
            until = np.full(len(content.numbers), FOREVER)
        else:
            kept = until > horizon
            content, until = content.select_registrations(kept), until[kept]
        contents.append(content)
        untils.append(until)
    for content in added:
        contents.append(content)
        untils.append(np.full(len(content.numbers), FOREVER))
    joined, origin = join(contents)
    ended = np.concatenate(untils)[origin]
    return joined, (ended if (ended != FOREVER).any() else None)


def merge_segments(
    sources: Sequence[StoredSegment], horizon: int, added: Sequence[Content] = ()
) -> tuple[Content, Integers | None]:
    """Do as `merge_columnar`, for segments of one scheme, at least one or something added."""
    texts = [content for content in added if isinstance(content, Texts)]
    others = views_of(sources, TextSegment)
    if texts or others:
        return merge_texts(others, horizon, texts)
    tables = [content for content in added if isinstance(content, ClauseTable)]
    return merge_columnar(views_of(sources, ColumnarSegment), horizon, tables)


def deal_out(
    sources: Sequence[StoredSegment], partitioner: Partitioner, changed: Sequence[int], horizon: int
) -> Iterator[tuple[int, Content, Integers | None]]:
    """For each set in `changed` and each scheme, yield what it is to hold of the registrations in `sources`, and the
    position at which each has ended (None: none has). What ended at or below `horizon` is left out."""
    for scheme in sorted({stored.segment.scheme for stored in sources}):
        content, until = merge_segments(
            [stored for stored in sources if stored.segment.scheme == scheme], horizon
        )
        once = first_of_runs(content.numbers)  # several sets may have held it
        content, until = select(content, once), None if until is None else until[once]
        held = partitioner.assign(compile_texts(content) if isinstance(content, Texts) else content)
        for place in changed:
            own = held[:, place]
            if own.any():
                yield place, select(content, own), None if until is None else until[own]


def select(content: Content, kept: NDArray[np.bool_]) -> Content:
    """Keep only the registrations that are marked."""
    return content if kept.all() else content.select_registrations(kept)
