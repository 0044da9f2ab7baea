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


class EventRun:
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

    def cut(self, count: int) -> tuple["EventRun", "EventRun"]:
        """The first events, so many, and the others."""
        at = self.bounds[count]
        first = EventRun(
            self.offsets[:count], self.bounds[: count + 1], self.lanes[:at], self.numbers[:at], self.epoch
        )
        bounds = [bound - at for bound in self.bounds[count:]]
        return first, EventRun(self.offsets[count:], bounds, self.lanes[at:], self.numbers[at:], self.epoch)


def event_run(offsets: Integers, lanes: Integers, numbers: Integers | None) -> EventRun:
    """Group pairs of an event and a lane, in any order, by event."""
    order = np.argsort(offsets, kind="stable")
    offsets = offsets[order]
    starts = np.flatnonzero(np.diff(offsets, prepend=-1))
    return EventRun(
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
        self._runs: deque[EventRun] = deque()
        self._events = 0
        self._pairs = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    @property
    def first(self) -> int | None:
        return self._runs[0].offsets[0] if self._runs else None

    def push(self, run: EventRun) -> Sequence[EventRun]:
        """Add events behind all others. Returns the oldest ones, which do not fit any more and are out now."""
        self._runs.append(run)
        self._count(run, 1)
        return list(self._surplus())

    def take(self, limit: int, end: int) -> list[EventRun]:
        """The oldest events, at most so many, with offsets below `end`."""
        taken: list[EventRun] = []
        while self._runs and limit and self._runs[0].offsets[0] < end:
            run = self._runs.popleft()
            self._count(run, -1)
            count = min(limit, bisect_left(run.offsets, end))
            if len(run.offsets) > count:
                run, rest = run.cut(count)
                self.put_back([rest])
            taken.append(run)
            limit -= count
        return taken

    def put_back(self, runs: Sequence[EventRun]) -> None:
        """Undo a `take`, or the end of one."""
        for run in reversed(runs):
            if run.offsets:
                self._runs.appendleft(run)
                self._count(run, 1)

    def _surplus(self) -> Iterator[EventRun]:
        while (surplus := self._events - self._max_events) > 0 or self._pairs > self._max_pairs:
            run = self._runs.popleft()
            self._count(run, -1)
            # At least an eighth, because what stays of a run is copied.
            drop = max(surplus, len(run.offsets) // 8, 1)
            if drop < len(run.offsets):
                run, rest = run.cut(drop)
                self.put_back([rest])
            yield run

    def _count(self, run: EventRun, sign: int) -> None:
        self._events += sign * len(run.offsets)
        self._pairs += sign * len(run.lanes)
