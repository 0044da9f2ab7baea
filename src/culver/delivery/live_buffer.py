"""The buffer of one live subscriber: a bounded queue of offsets, and the gaps of those that did not fit."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culver.delivery.deliveries import DeliveryGap
from culver.delivery.ranges.lost_events import LostEvents


class LiveBuffer:
    """Pure. A full buffer drops its oldest offsets, so gaps always come before the offsets that wait. The
    subscription takes effect at `since`; `lost` says which offsets stand for lost events."""

    def __init__(self, subscription: str, capacity: int, since: int, lost: LostEvents) -> None:
        self._subscription = subscription
        self._capacity = max(capacity, 1)
        self._since = since
        self._lost = lost
        self._offsets: deque[int] = deque()
        self._gaps: list[DeliveryGap] = []  # ascending, at most one for each reason

    @property
    def first(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    def push(self, offsets: NDArray[np.int64]) -> None:
        """Add offsets, which ascend and lie behind all pushed before. Costs no more than the capacity."""
        surplus = len(offsets) - self._capacity
        if surplus > 0:
            self._drop(len(self._offsets))
            self._note(int(offsets[0]), int(offsets[surplus - 1]) + 1, surplus)
            offsets = offsets[surplus:]
        self._offsets.extend(offsets.tolist())
        self._drop(len(self._offsets) - self._capacity)

    def start_after(self, after: int) -> None:
        """Begin behind `after`, which the subscriber saw last."""
        if after + 1 < self._since:
            gap = DeliveryGap(self._subscription, after + 1, self._since, None, "disconnected")
            self._gaps.insert(0, gap)
        while self._offsets and self._offsets[0] <= after:
            self._offsets.popleft()

    def take(self, limit: int) -> tuple[list[DeliveryGap], list[int]]:
        """The next gaps and offsets, at most `limit` together. The gaps come first."""
        gaps = self._gaps[:limit]
        del self._gaps[:limit]
        count = 0 if self._gaps else min(limit - len(gaps), len(self._offsets))
        return gaps, [self._offsets.popleft() for _ in range(count)]

    def take_all(self) -> tuple[list[DeliveryGap], list[int]]:
        """All gaps and offsets. The gaps come first."""
        return self.take(len(self._gaps) + len(self._offsets))

    def put_back(self, gaps: Sequence[DeliveryGap], offsets: Sequence[int]) -> None:
        """Undo a `take`, or the end of one, that led to nothing. If the buffer has overflowed since, these were the
        oldest, and become part of the gap."""
        if offsets and self._gaps:
            self._note(offsets[0], offsets[-1] + 1, len(offsets))
            offsets = ()
        for gap in reversed(gaps):
            if gap.reason == "overflow":
                self._note(gap.start, gap.end, gap.dropped)
            else:
                self._gaps.insert(0, gap)
        self._offsets.extendleft(reversed(offsets))
        self._drop(len(self._offsets) - self._capacity)

    def _drop(self, count: int) -> None:
        if count > 0:
            dropped = [self._offsets.popleft() for _ in range(count)]
            self._note(dropped[0], dropped[-1] + 1, count)

    def _note(self, start: int, end: int, dropped: int | None) -> None:
        """Count dropped offsets into the one gap of an overflow."""
        if (lost := self._lost.start_of(start)) is not None:
            start = max(lost, self._since)
        if self._lost.any_within(start, end):
            dropped = None
        if self._gaps and self._gaps[-1].reason == "overflow":
            last = self._gaps.pop()
            start, end = min(start, last.start), max(end, last.end)
            dropped = None if dropped is None or last.dropped is None else dropped + last.dropped
        self._gaps.append(DeliveryGap(self._subscription, start, end, dropped, "overflow"))
