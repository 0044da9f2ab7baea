"""A compaction: some segments of one set and one scheme become one, beside everything else that goes on.

    writer's thread          plan_compaction ..................................... install
                                   |            publish, publish, ...                 |
    another thread                 +--> run: merge, lay out, write, map the file -----+

What it reads never changes: segments are immutable, and it has the tombstones of the moment when it was planned. A
registration that ends while it runs is still in the new segment, and `install` takes the tombstone over. A process
that ends meanwhile leaves a file that no version names; `IndexWriter.retire` deletes it.
"""

import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

from culver.matching.index.segments import container
from culver.matching.index.segments.segment_file import AnySegment, encode_segment, open_segment
from culver.matching.index.storage.segment_merge import merge_segments
from culver.matching.index.storage.version_files import SEGMENT_SUFFIX, StoredSegment


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
        """How many registrations it has to work through."""
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
