"""The newest events of a connection, in arrays, until they are sent.

offsets   12        15   16
bounds    0         2    3    5
lanes     0    4    0    4    4        who gets them
numbers   7  331    7  331  332        by which registration; only where the connection has groups
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from culver.jit import Integers


class Chunk:
    """Events that ascend. `epoch` is that of the session when it came in."""

    __slots__ = ("bounds", "epoch", "lanes", "numbers", "offsets")

    def __init__(
        self, offsets: list[int], bounds: list[int], lanes: list[int], numbers: list[int], epoch: int = 0
    ) -> None:
        self.offsets = offsets
        self.bounds = bounds
        self.lanes = lanes
        self.numbers = numbers
        self.epoch = epoch

    def cut(self, count: int) -> tuple["Chunk", "Chunk"]:
        """The first events, so many, and the others."""
        at = self.bounds[count]
        first = Chunk(
            self.offsets[:count], self.bounds[: count + 1], self.lanes[:at], self.numbers[:at], self.epoch
        )
        bounds = [bound - at for bound in self.bounds[count:]]
        return first, Chunk(self.offsets[count:], bounds, self.lanes[at:], self.numbers[at:], self.epoch)


def chunk_of(offsets: Integers, lanes: Integers, numbers: Integers | None) -> Chunk:
    """Group pairs of an event and a lane, in any order, by event."""
    order = np.argsort(offsets, kind="stable")
    offsets = offsets[order]
    starts = np.flatnonzero(np.diff(offsets, prepend=-1))
    return Chunk(
        offsets[starts].tolist(),
        [*starts.tolist(), len(offsets)],
        lanes[order].tolist(),
        [] if numbers is None else numbers[order].tolist(),
    )


class EventQueue:
    """Pure. Bounded in events and in pairs; the owner decides what becomes of the oldest ones that do not fit."""

    def __init__(self, max_events: int, max_pairs: int) -> None:
        self._max_events = max_events
        self._max_pairs = max_pairs
        self._chunks: deque[Chunk] = deque()
        self._events = 0
        self._pairs = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    @property
    def first(self) -> int | None:
        return self._chunks[0].offsets[0] if self._chunks else None

    def push(self, chunk: Chunk) -> Sequence[Chunk]:
        """Add events behind all others. Returns the oldest ones, which do not fit any more and are out now."""
        self._chunks.append(chunk)
        self._count(chunk, 1)
        return list(self._surplus())

    def take(self, limit: int, end: int) -> list[Chunk]:
        """The oldest events, at most so many, with offsets below `end`."""
        taken: list[Chunk] = []
        while self._chunks and limit and self._chunks[0].offsets[0] < end:
            chunk = self._chunks.popleft()
            self._count(chunk, -1)
            count = min(limit, bisect_left(chunk.offsets, end))
            if len(chunk.offsets) > count:
                chunk, rest = chunk.cut(count)
                self.put_back([rest])
            taken.append(chunk)
            limit -= count
        return taken

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Undo a `take`, or the end of one."""
        for chunk in reversed(chunks):
            if chunk.offsets:
                self._chunks.appendleft(chunk)
                self._count(chunk, 1)

    def _surplus(self) -> Iterator[Chunk]:
        while (surplus := self._events - self._max_events) > 0 or self._pairs > self._max_pairs:
            chunk = self._chunks.popleft()
            self._count(chunk, -1)
            # At least an eighth, because what stays of a chunk is copied.
            drop = max(surplus, len(chunk.offsets) // 8, 1)
            if drop < len(chunk.offsets):
                chunk, rest = chunk.cut(drop)
                self.put_back([rest])
            yield chunk

    def _count(self, chunk: Chunk, sign: int) -> None:
        self._events += sign * len(chunk.offsets)
        self._pairs += sign * len(chunk.lanes)
