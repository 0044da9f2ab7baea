"""One range of the log through the three operators, from the files of a site to its notifications.

This is the shell around the pure operators. The inline engine runs it in the site's process, Spark in its workers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

from culver import matching
from culver.errors import NotFound
from culver.log.files import FileLogReader
from culver.log.log import PublicationLog
from culver.matching.groups import MOST_EVENTS
from culver.matching.index import Memory
from culver.pipeline import joining, operators
from culver.pipeline.checksum import checksum
from culver.pipeline.divided import DividedIndex
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications
from culver.pipeline.work import Meter, SchemeWork, Work, worker_name
from culver.placement import layer


def warm_up() -> None:
    """Load all that a range needs, so that the first event need not wait. Harmless to call again."""
    matching.warm_up()
    joining.load()
    layer.load()
    checksum(np.zeros(0, np.uint16))


class RangeProcessor:
    """Keeps the log and the last index open between ranges. Not thread-safe."""

    def __init__(
        self, index: Path, log: PublicationLog | FileLogReader, head: Callable[[], Head | None]
    ) -> None:
        """`head` is asked how far delivery is, and which index version there is; None: not known this instant."""
        self._directory = index
        self._log = log
        self._head = head
        self._index: DividedIndex | None = None
        self._memory = Memory()
        self._worker = worker_name()

    def process(self, start: int, end: int, index_version: int) -> Iterator[Notifications]:
        """Match what delivery does not have of `[start, end)` in all slices, block by block; nothing where nothing
        is left to do (a batch that is run again after a restart)."""
        for block, _ in self._blocks(start, end):
            yield self._match(block, self._newest_or(index_version))

    def process_slice(
        self, start: int, end: int, index_version: int, own: int, slices: int
    ) -> Iterator[tuple[Notifications, bool]]:
        """The same in one of so many slices; the second value tells whether that is all there is to the block.

        It is where the other slices cannot be counted on to do the same: where the version is gone or has been
        divided anew since, for slices must not work with different ones, and where delivery has a part of the block.
        Then all of it is matched here and now."""
        for block, cut in self._blocks(start, end):
            index = None if cut else self._open_slice(index_version, own, slices)
            if index is None:
                yield self._match(block, self._newest_or(index_version)), True
            else:
                parts, seconds = self._read(block)
                yield self._match_slice(block, parts, index, own, seconds), False

    def close(self) -> None:
        self._forget_index()

    def _blocks(self, start: int, end: int) -> Iterator[tuple[tuple[int, int], bool]]:
        """The blocks that delivery does not have, and whether it has a part of one, which is then cut off: the log
        may be trimmed there. Other blocks are the same for all slices."""
        for first in range(start, end, MOST_EVENTS):
            head = self._head()
            frontier = head.frontier if head is not None else start
            if (last := min(end, first + MOST_EVENTS)) > frontier:
                yield (max(first, frontier), last), first < frontier

    def _read(self, block: tuple[int, int]) -> tuple[list[pa.RecordBatch], float]:
        """The events of a block, and the seconds that took."""
        began = perf_counter()
        return operators.access_point(*block, self._log.read(*block)), perf_counter() - began

    def _match(self, block: tuple[int, int], index: DividedIndex) -> Notifications:
        parts, seconds = self._read(block)
        each = seconds / index.slices
        return operators.join(
            [self._match_slice(block, parts, index, own, each) for own in range(index.slices)]
        )

    def _match_slice(
        self,
        block: tuple[int, int],
        parts: Sequence[pa.RecordBatch],
        index: DividedIndex,
        own: int,
        read_seconds: float,
    ) -> Notifications:
        start, end = block
        send = None if index.placement is None else operators.sent_to(index.placement, own)
        meter = Meter()
        began = perf_counter()
        found = operators.exit_point(
            start, index.version, parts, operators.match(index.set, start, parts, self._memory, send, meter)
        )
        took = perf_counter() - began
        work = Work(
            slice=own,
            events=end - start,
            sent=meter.sent,
            pairs=len(found.rows),
            ap_seconds=read_seconds + meter.route_seconds,
            m_seconds=meter.m_seconds,
            ep_seconds=took - meter.route_seconds - meter.m_seconds,  # the exit point asks for what is found
            worker=self._worker,
            schemes=tuple(SchemeWork(*each) for each in index.take_done()),
        )
        return replace(found, work=(work,))

    def _newest_or(self, version: int) -> DividedIndex:
        try:
            index = self._open(version)
            for number in range(index.slices):
                index.open_slice(number)
            return index
        except NotFound:
            self._forget_index()
            # The newest version gives the same answer: registrations carry the positions between which they
            # are in effect, and one is dropped only when the frontier has passed its end. Its number may be
            # lower, where the index was rebuilt.
            head = self._head()
            if head is None or head.index_version == version:
                raise
            return self._newest_or(head.index_version)

    def _open_slice(self, version: int, own: int, slices: int) -> DividedIndex | None:
        """The version with one slice open; None where it is gone, or has another number of slices."""
        try:
            index = self._open(version)
            if index.slices != slices:
                return None
            index.open_slice(own)
        except NotFound:
            return None
        return index

    def _open(self, version: int) -> DividedIndex:
        if self._index is None or self._index.version != version:
            opened = DividedIndex(self._directory, version)
            self._forget_index()
            self._index = opened
        return self._index

    def _forget_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None
