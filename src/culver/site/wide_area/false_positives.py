"""Counts events of other sites that no subscription of this one wanted: the price of encoding predicates."""

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from culver.model import Event
from culver.pipeline import Notifications


class FalsePositives:
    """Hears of events when they are in the log, and then of what they matched, both in order."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By origin."""
        self._waiting: deque[tuple[int, str]] = deque()  # the offset here, and the origin

    def committed(self, first_offset: int, events: Sequence[Event]) -> None:
        self._waiting.extend(
            (first_offset + at, event.origin.site)
            for at, event in enumerate(events)
            if event.origin is not None
        )

    def accepted(self, notifications: Notifications) -> None:
        waiting, start, end = self._waiting, notifications.start, notifications.end
        if not waiting or waiting[0][0] >= end:
            return
        matched = np.zeros(end - start, np.bool_)
        matched[notifications.rows] = True
        while waiting and waiting[0][0] < end:
            offset, origin = waiting.popleft()
            if offset >= start and not matched[offset - start]:
                self.counts[origin] += 1
