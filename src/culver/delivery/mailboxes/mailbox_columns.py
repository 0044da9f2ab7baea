"""The counters of all mailboxes, one dense slot per subscription and one column per counter, and the gaps of each.

registration number  7   9   12 ...      `SlotTable`: sorted, so that a whole notification file is
        slot         0   0   1           looked up with one `searchsorted`
                      \\ /    |
slot                   0     1           `MailboxColumns`: grown in large steps, freed slots are used again
  cursor              41    -1
  pending              3     0
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from culver.delivery.deliveries import DeliveryGap, join_gaps
from culver.delivery.delivery_kernels import find
from culver.jit import read_only

NONE: Final = -1
"""No slot: the number is unknown, ended, or belongs to a live subscription."""

NEVER: Final = np.iinfo(np.int64).max
"""An offset behind all others."""

_SMALLEST = 64
_GROWTH = 32
# How many runs of free slots `take` looks at for one that is long enough.
_MOST_TRIED = 1024

_MOST_GAPS = 8

Count = Callable[[int, int], int | None]
"""How many rows were dropped in `[start, end)`, or None where that cannot be told any more."""

_Integers = Sequence[int] | NDArray[np.int64]


class MailboxColumns:
    """The counters of all mailboxes, as arrays over the slots in use. Hot: `accept` adds to them in bulk."""

    def __init__(self) -> None:
        self._free: list[range] = []
        self.used = 0
        self.cursor = np.full(_SMALLEST, -1, np.int64)  # last acknowledged offset
        self.newest_number = np.full(_SMALLEST, NONE, np.int64)  # registration in effect
        self.most_count = np.full(_SMALLEST, NEVER, np.int64)
        self.most_bytes = np.full(_SMALLEST, NEVER, np.int64)
        self.most_age_us = np.full(_SMALLEST, NEVER, np.int64)
        # A range changes the next four in a thousand mailboxes here and there, so they lie together in one row.
        self._set_counted(np.tile(np.array([0, 0, 0, NEVER]), (_SMALLEST, 1)))

    def _set_counted(self, counted: NDArray[np.int64]) -> None:
        self.counted = counted
        """A row for each slot: the columns below."""
        self.floor = counted[:, 0]  # lowest offset that can still be delivered
        self.pending = counted[:, 1]  # rows at or above the floor
        self.size = counted[:, 2]  # their payload bytes, at most
        self.oldest = counted[:, 3]  # the lowest of them

    def take(self, count: int = 1) -> int:
        """The first of `count` slots in a row, in their initial state."""
        for place in reversed(range(len(self._free))[-_MOST_TRIED:]):
            if len(free := self._free[place]) >= count:
                self._free[place : place + 1] = [free[count:]] if len(free) > count else []
                return free.start
        if self.used + count > len(self.cursor):
            self._grow(count)
        first, self.used = self.used, self.used + count
        for name, blank in _BLANKS.items():
            getattr(self, name)[first : self.used] = blank
        return first

    def release(self, slots: NDArray[np.int64]) -> None:
        """Give back slots, which ascend."""
        for name, blank in _BLANKS.items():
            getattr(self, name)[slots] = blank
        breaks = np.flatnonzero(np.diff(slots) != 1) + 1
        self._free += [range(int(run[0]), int(run[-1]) + 1) for run in np.split(slots, breaks) if len(run)]

    def count(self) -> int:
        return int(np.count_nonzero(self.newest_number[: self.used] != NONE))

    def all_pending(self) -> int:
        """How many deliveries wait in all mailboxes together."""
        return int(self.pending[: self.used].sum())

    def lowest_pending(self) -> int:
        """The lowest offset that waits in a mailbox; NEVER where none does."""
        return int(self.oldest[: self.used].min(initial=NEVER))

    def overflowing(self) -> list[int]:
        """Slots that hold more than their limit in count, or may hold more than their limit in bytes."""
        used = slice(self.used)
        over = (self.pending[used] > self.most_count[used]) | (self.size[used] > self.most_bytes[used])
        return np.flatnonzero(over).tolist()

    def ages(self, below: int) -> list[int]:
        """The age limits, in microseconds, ascending, of the mailboxes with something older than that offset."""
        ages = self.most_age_us[: self.used][self.oldest[: self.used] < below]
        return [int(age) for age in np.unique(ages)]

    def shortest_age(self) -> int | None:
        """The least age limit of all mailboxes that hold something."""
        ages = self.most_age_us[: self.used][self.oldest[: self.used] < NEVER]
        return int(ages.min()) if len(ages) else None

    def expiring(self, bounds: Mapping[int, int]) -> list[tuple[int, int]]:
        """(slot, offset) where something older than the offset waits, given for each age limit the first offset that
        is young enough."""
        candidates = np.flatnonzero(self.oldest[: self.used] < max(bounds.values(), default=0))
        pairs = ((slot, bounds.get(int(self.most_age_us[slot]), 0)) for slot in candidates.tolist())
        return [(slot, bound) for slot, bound in pairs if self.oldest[slot] < bound]

    def _grow(self, count: int) -> None:
        for name in ("cursor", "newest_number", "most_count", "most_bytes", "most_age_us"):
            setattr(self, name, _larger(getattr(self, name), self.used, count))
        self._set_counted(_larger(self.counted, self.used, count))


def _larger(array: NDArray[np.int64], used: int, more: int) -> NDArray[np.int64]:
    """A copy with room for `more` entries behind those in use, and for many more: memory that nobody touches costs
    nothing, and the event loop rarely has to wait for a copy."""
    result = np.empty((max(_GROWTH * len(array), used + more), *array.shape[1:]), np.int64)
    result[:used] = array[:used]
    return result


_BLANKS = {
    "cursor": -1,
    "floor": 0,
    "pending": 0,
    "size": 0,
    "oldest": NEVER,
    "newest_number": NONE,
    "most_count": NEVER,
    "most_bytes": NEVER,
    "most_age_us": NEVER,
}


class SlotTable:
    """Registration number to slot. Numbers only grow, so adding is nearly always appending."""

    def __init__(self) -> None:
        self._numbers = np.empty(_SMALLEST, np.int64)
        self._slots = np.empty(_SMALLEST, np.int64)
        self._used = 0
        self._dead = 0

    def add(self, numbers: _Integers, slots: _Integers) -> None:
        """Add numbers, each of which is new or was removed."""
        if not len(numbers):
            return
        count = len(numbers)
        if self._used + count > len(self._numbers):
            self._numbers = _larger(self._numbers, self._used, count)
            self._slots = _larger(self._slots, self._used, count)
        last = self._numbers[self._used - 1] if self._used else NONE
        self._numbers[self._used : self._used + count] = numbers
        self._slots[self._used : self._used + count] = slots
        ordered = numbers[0] > last and (count == 1 or bool(np.all(np.diff(numbers) > 0)))
        self._used += count
        if not ordered:
            self._tidy()

    def remove(self, numbers: _Integers) -> None:
        """Remove numbers; one that is not there is ignored."""
        if not self._used:
            return
        at = np.minimum(self._numbers[: self._used].searchsorted(numbers), self._used - 1)
        at = at[(self._numbers[at] == numbers) & (self._slots[at] != NONE)]
        self._slots[at] = NONE
        self._dead += len(at)
        if self._dead > max(1024, self._used // 2):
            self._tidy()

    def slots_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of each number, or NONE. The numbers ascend."""
        slots = np.empty(len(numbers), np.int64)
        find(read_only(numbers), *self.known(), slots)
        return slots

    def known(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers, ascending, and the slot of each, or NONE. Valid until the next change."""
        return self._numbers[: self._used], self._slots[: self._used]

    def slot_of(self, number: int) -> int:
        return int(self.slots_of(np.array([number], np.int64))[0])

    def _tidy(self) -> None:
        """Sort, and leave out the numbers that were removed."""
        alive = np.flatnonzero(self._slots[: self._used] != NONE)
        alive = alive[np.argsort(self._numbers[alive], kind="stable")]
        numbers, slots = self._numbers[alive], self._slots[alive]
        self._used, self._dead = len(alive), 0
        self._numbers[: self._used], self._slots[: self._used] = numbers, slots


class GapLedger:
    """The gaps that a subscriber has yet to acknowledge, by slot. They ascend and do not overlap; beyond eight, the
    oldest two become one.

    Every session announces a gap until something at or behind its end is acknowledged. So no gap is silent, not when
    the connection breaks, not when the site restarts."""

    def __init__(self) -> None:
        self._gaps: dict[int, list[DeliveryGap]] = {}

    def slots(self) -> list[int]:
        return list(self._gaps)

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
            gaps[-2:] = [join_gaps(gaps[-2], gaps[-1])]
        elif len(gaps) > _MOST_GAPS:
            gaps[:2] = [join_gaps(gaps[0], gaps[1])]

    def after(self, slot: int, offset: int, count: Count) -> list[DeliveryGap]:
        """The gaps of a subscriber that has everything up to `offset`. One that began before is cut and recounted."""
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
