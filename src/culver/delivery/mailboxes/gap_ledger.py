"""The gaps that a subscriber has yet to acknowledge, by slot.

Every session announces a gap until something at or behind its end is acknowledged. So no gap is silent, not when the
connection breaks, not when the site restarts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from culver.delivery.deliveries import DeliveryGap

_MOST = 8

Count = Callable[[int, int], int | None]
"""How many rows were dropped in `[start, end)`, or None where that cannot be told any more."""


class GapLedger:
    """The gaps of a slot ascend and do not overlap. Beyond eight, the oldest two become one."""

    def __init__(self) -> None:
        self._gaps: dict[int, list[DeliveryGap]] = {}

    def of(self, slot: int) -> tuple[DeliveryGap, ...]:
        return tuple(self._gaps.get(slot, ()))

    def resume(self, slot: int, gaps: Sequence[DeliveryGap]) -> None:
        if gaps:
            self._gaps[slot] = list(gaps)

    def clear(self, slot: int) -> None:
        self._gaps.pop(slot, None)

    def clear_all(self, slots: NDArray[np.int64]) -> None:
        present = np.array(list(self._gaps), np.int64)
        for slot in present[np.isin(present, slots)].tolist():
            self.clear(slot)

    def add(self, slot: int, gap: DeliveryGap) -> None:
        """Add a gap, which lies behind all others of the slot."""
        gaps = self._gaps.setdefault(slot, [])
        gaps.append(gap)
        if len(gaps) > 1 and gaps[-2].reason == gap.reason:
            gaps[-2:] = [_join(gaps[-2], gaps[-1])]
        elif len(gaps) > _MOST:
            gaps[:2] = [_join(gaps[0], gaps[1])]

    def after(self, slot: int, offset: int, count: Count) -> list[DeliveryGap]:
        """The gaps of a subscriber that has everything up to `offset`. A gap that began before is cut, and counted
        anew."""
        return [
            gap if gap.start > offset else replace(gap, start=offset + 1, dropped=count(offset + 1, gap.end))
            for gap in self._gaps.get(slot, ())
            if gap.end - 1 > offset
        ]

    def acknowledge(self, slot: int, offset: int, count: Count) -> None:
        """Forget what lies at or below `offset`."""
        if slot in self._gaps:
            left = self.after(slot, offset, count)
            self.clear(slot)
            self.resume(slot, left)


def _join(first: DeliveryGap, second: DeliveryGap) -> DeliveryGap:
    known = first.dropped is not None and second.dropped is not None
    dropped = (first.dropped or 0) + (second.dropped or 0) if known else None
    return DeliveryGap(first.subscription, first.start, second.end, dropped, second.reason)
