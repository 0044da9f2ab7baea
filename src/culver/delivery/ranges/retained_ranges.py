"""The ranges of notifications that somebody may still need, in order, and which of them become one file.

Ranges never overlap here. Where two files cover the same offset, the later one begins at `start`, behind the end of
the other, although its file reaches further back:

    file A  [0 ........ 50)         range A  0 .. 50
    file B         [30 ........ 80) range B  50 .. 80
    file C                     [80 .. 90)
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.delivery.delivery_kernels import copy_kept
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.delivery.ranges.lost_events import damage_from
from culver.jit import read_only
from culver.matching import MOST_EVENTS, Grouping, Groups, Rows, pooled_rows
from culver.pipeline import Notifications, aligned_rows, notification_file_name

# So many of the newest ranges become one as they come, each up to so many bytes: the event loop waits for it.
_LOOSE = 32
_LOOSE_BYTES = 1 << 16


class RetainedRange:
    """Answers for `[start, end)` with the content of one notification file. Nobody changes it once it is made; it is
    no frozen dataclass, because one is made for every group of events."""

    __slots__ = ("end", "notifications", "size", "start", "stored")

    def __init__(self, start: int, notifications: Notifications, *, stored: bool = True) -> None:
        """`stored` says whether its file is on disk."""
        n = notifications
        self.start = start
        self.end = n.end
        self.notifications = n
        self.stored = stored
        self.size = n.numbers.nbytes + n.bounds.nbytes + n.rows.nbytes + n.sizes.nbytes

    @property
    def name(self) -> str:
        return notification_file_name(self.notifications.start, self.end)

    @property
    def unstored_bytes(self) -> int:
        return 0 if self.stored else self.size

    def continues(self, group: Sequence["RetainedRange"]) -> bool:
        """Whether the range follows a group and, with it, has no more events than one file can hold."""
        return group[-1].end == self.start and self.end - group[0].start <= MOST_EVENTS


class RetainedRanges:
    """Ascending, without overlap. There is a hole only where the log had been trimmed already.

    Small ranges that are in memory only come by the hundred in a second, and a search for the rows of a registration
    looks at every range. So the newest of them become one whenever there are enough."""

    def __init__(self) -> None:
        self._ranges: list[RetainedRange] = []
        self._ends: list[int] = []
        self._loose = 0  # how many of the newest are waiting to become one
        self._grouping = Grouping()
        self.unstored_bytes = 0

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[RetainedRange]:
        return iter(self._ranges)

    def append(self, item: RetainedRange) -> None:
        if self._loose and not item.continues(self._ranges[-self._loose :]):
            self._loose = 0
        self._ranges.append(item)
        self._ends.append(item.end)
        self.unstored_bytes += item.unstored_bytes
        if item.stored or item.size > _LOOSE_BYTES or item.start > item.notifications.start:
            self._loose = 0
            return
        self._loose += 1
        if self._loose == _LOOSE:
            loose = self._ranges[-_LOOSE:]
            content = merge(loose, self._grouping, pooled_rows)
            self.exchange(loose, RetainedRange(content.start, content, stored=False))
            self._loose = 0

    def leave_as_is(self) -> None:
        """Keep the ranges that are there now apart until they are exchanged."""
        self._loose = 0

    def drop_below(self, offset: int) -> list[RetainedRange]:
        """Take out the ranges that end at or below `offset`, but never the newest one."""
        count = min(bisect_right(self._ends, offset), max(len(self._ranges) - 1, 0))
        dropped = self._ranges[:count]
        self.unstored_bytes -= sum(item.unstored_bytes for item in dropped)
        del self._ranges[:count], self._ends[:count]
        self._loose = min(self._loose, len(self._ranges))
        return dropped

    def exchange(self, old: Sequence[RetainedRange], new: RetainedRange) -> None:
        """Put one range in the place of adjacent ones that together cover the same offsets."""
        at = self._ranges.index(old[0])
        self.unstored_bytes += new.unstored_bytes - sum(item.unstored_bytes for item in old)
        self._ranges[at : at + len(old)] = [new]
        self._ends[at : at + len(old)] = [new.end]

    def segments(
        self, numbers: Sequence[int], start: int, end: int | None = None
    ) -> Iterator[tuple[Notifications, Rows]]:
        """The rows of these registrations at offsets in `[start, end)`, range by range, ascending.

        `numbers` ascend and belong to one subscription, so each takes effect when the one before ends, and their rows
        in one range do not interleave. A caller that stops early pays nothing for the ranges it did not reach."""
        for at in range(bisect_right(self._ends, start), len(self._ranges)):
            item = self._ranges[at]
            if end is not None and item.start >= end:
                return
            n = item.notifications
            for number in numbers:
                rows = rows_of(n, number)
                if len(rows) and (low := max(start, item.start)) > n.start:
                    rows = rows[rows.searchsorted(np.uint16(low - n.start)) :]
                if len(rows) and end is not None and end < n.end:
                    rows = rows[: rows.searchsorted(np.uint16(end - n.start))]
                if len(rows):
                    yield n, rows

    def overlapping(self, start: int, end: int) -> Iterator[RetainedRange]:
        """The ranges that answer for any offset in `[start, end)`."""
        for at in range(bisect_right(self._ends, start), len(self._ranges)):
            if self._ranges[at].start >= end:
                return
            yield self._ranges[at]

    def offsets(self, numbers: Sequence[int], start: int, limit: int) -> list[int]:
        """The first offsets of these registrations at or above `start`, at most `limit`."""
        found: list[int] = []
        for n, rows in self.segments(numbers, start):
            found.extend((rows[: limit - len(found)].astype(np.int64) + n.start).tolist())
            if len(found) >= limit:
                break
        return found


def rows_of(notifications: Notifications, number: int) -> Rows:
    n = notifications
    at = int(n.numbers.searchsorted(number))
    if at == len(n.numbers) or n.numbers[at] != number:
        return n.rows[:0]
    return n.rows[n.bounds[at] : n.bounds[at + 1]]


def last_offsets(notifications: Notifications) -> NDArray[np.int64]:
    """The last offset that each registration gets; -1 where it gets none."""
    n = notifications
    last = np.full(len(n.numbers), -1, np.int64)
    present = np.diff(n.bounds) > 0
    last[present] = n.rows[n.bounds[1:][present] - 1].astype(np.int64) + n.start
    return last


def merge(
    ranges: Sequence[RetainedRange], grouping: Grouping, new_rows: Callable[[int], Rows]
) -> Notifications:
    """One content for adjacent ranges, with the same rows. Holds the GIL for little, and needs little memory beyond
    the result."""
    start = ranges[0].start
    parts = [_cut(item) for item in ranges]
    groups = grouping.group(
        [Groups(part.numbers, part.bounds, part.rows) for part in parts],
        [part.start - start for part in parts],
        new_rows,
    )
    sizes = np.concatenate([part.sizes for part in parts])
    damage = tuple([each for part in parts for each in part.damage])
    return Notifications(start, ranges[-1].end, parts[-1].index_version, *groups, sizes, damage=damage)


def _cut(item: RetainedRange) -> Notifications:
    """The content of a range without what lies before its start."""
    n = item.notifications
    return n if item.start == n.start else select(n, np.ones(len(n.numbers), np.bool_), item.start)


def select(notifications: Notifications, keep: NDArray[np.bool_], start: int) -> Notifications:
    """A copy with the registrations to keep, and their rows from offset `start` on. Reads no other rows. A kernel
    copies, because NumPy would hold the GIL for as long as that takes."""
    n = notifications
    numbers = n.numbers[keep]
    bounds = np.empty(len(numbers) + 1, np.int64)
    rows = aligned_rows(int(np.diff(n.bounds)[keep].sum()))
    skip = start - n.start
    arrays = read_only(n.numbers), read_only(n.bounds), read_only(n.rows)
    count = copy_kept(keep, *arrays, skip, numbers, bounds, rows)
    sizes = n.sizes[skip:].copy()
    return Notifications(
        start,
        n.end,
        n.index_version,
        numbers[:count],
        bounds[: count + 1],
        rows[: bounds[count]],
        sizes,
        damage=damage_from(n, start),
    )


@dataclass(frozen=True, slots=True)
class MergeLevel:
    """Files below `below_bytes` are merged once there are more than `most` of them. Merging by level keeps the number
    of files small and rewrites each row a handful of times, not once per merge."""

    below_bytes: int
    most: int


LEVELS = (MergeLevel(512 * 1024, 64), MergeLevel(8 * 1024 * 1024, 16))
_LARGEST_MERGE_BYTES = 64 * 1024 * 1024


def plan_storing(ranges: Iterable[RetainedRange]) -> list[list[RetainedRange]]:
    """Groups of adjacent ranges that are in memory only. Each becomes one file."""
    return list(_groups([item for item in ranges if not item.stored]))


def plan_merges(
    ranges: Iterable[RetainedRange], levels: Sequence[MergeLevel] = LEVELS
) -> list[list[RetainedRange]]:
    """Groups of adjacent files, each worth merging into one. Returns the groups of one level at a time."""
    everything = [item for item in ranges if item.stored]
    smaller_than = 0
    for level in levels:
        groups = [group for group in _groups(everything, level.below_bytes) if len(group) > 1]
        due = sum(item.size >= smaller_than for group in groups for item in group)
        if due > level.most:
            return groups
        smaller_than = level.below_bytes
    return []


def _groups(ranges: Sequence[RetainedRange], below_bytes: int = NEVER) -> Iterator[list[RetainedRange]]:
    """Runs of adjacent ranges below a size. The size of a run is bounded, so that one merge fits into memory."""
    most_bytes = min(8 * below_bytes, _LARGEST_MERGE_BYTES)
    group: list[RetainedRange] = []
    total = 0
    for item in ranges:
        if group and (
            item.size >= below_bytes or total + item.size > most_bytes or not item.continues(group)
        ):
            yield group
            group, total = [], 0
        if item.size < below_bytes:
            group.append(item)
            total += item.size
    if group:
        yield group
