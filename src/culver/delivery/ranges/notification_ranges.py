"""The notification files that are still needed, in order, each with the part of the log that it answers for.

Ranges never overlap here: where two files cover the same offset, the later one begins at `start`, behind the
other's end, although its file reaches further back.

    file A  [0 ........ 50)         Range A  0 .. 50
    file B         [30 ........ 80) Range B  50 .. 80
    file C                     [80 .. 90)
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from culver.delivery.delivery_kernels import copy_kept
from culver.jit import read_only
from culver.matching import MOST_EVENTS, Grouping, Groups, Rows, pooled_rows
from culver.pipeline import Notifications, aligned_rows, notification_file_name

_LOOSE = 32  # ranges that become one
_LOOSE_BYTES = 1 << 16  # of each, at most: it is done on the event loop


class Range:
    """Answers for `[start, end)` with the content of one notification file. Never changed once it is made; but no
    frozen dataclass, for one is made for every group of events."""

    __slots__ = ("end", "notifications", "size", "start", "stored")

    def __init__(self, start: int, notifications: Notifications, *, stored: bool = True) -> None:
        n = notifications
        self.start = start
        self.end = n.end
        self.notifications = n
        self.stored = stored  # its file is on disk
        self.size = n.numbers.nbytes + n.bounds.nbytes + n.rows.nbytes + n.sizes.nbytes

    @property
    def name(self) -> str:
        return notification_file_name(self.notifications.start, self.end)


class Ranges:
    """Ascending, without overlap; a hole is possible only where the log had been trimmed already."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self._ends: list[int] = []
        self.unstored_bytes = 0  # in memory only, because there is no file yet
        self._loose = 0  # how many of the newest are small, in memory only, and merged soon
        self._grouping = Grouping()

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def append(self, item: Range) -> None:
        if self._loose and not _continues(self._ranges[-self._loose :], item):
            self._loose = 0
        self._ranges.append(item)
        self._ends.append(item.end)
        self.unstored_bytes += 0 if item.stored else item.size
        if item.stored or item.size > _LOOSE_BYTES or item.start > item.notifications.start:
            self._loose = 0
            return
        self._loose += 1
        if self._loose == _LOOSE:
            loose = self._ranges[-_LOOSE:]
            content = merge(loose, self._grouping, pooled_rows)
            self.exchange(loose, Range(content.start, content, stored=False))
            self._loose = 0

    def leave_as_is(self) -> None:
        """Keep the ranges there are apart until they are exchanged."""
        self._loose = 0

    def drop_below(self, offset: int) -> list[Range]:
        """Take out the ranges that end at or below `offset`, but never the newest one."""
        count = min(bisect_right(self._ends, offset), max(len(self._ranges) - 1, 0))
        dropped = self._ranges[:count]
        self.unstored_bytes -= sum(map(_unstored_bytes, dropped))
        del self._ranges[:count], self._ends[:count]
        self._loose = min(self._loose, len(self._ranges))
        return dropped

    def exchange(self, old: Sequence[Range], new: Range) -> None:
        """Put one range in the place of adjacent ones that together cover the same offsets."""
        at = self._ranges.index(old[0])
        self.unstored_bytes += _unstored_bytes(new) - sum(map(_unstored_bytes, old))
        self._ranges[at : at + len(old)] = [new]
        self._ends[at : at + len(old)] = [new.end]

    def segments(
        self, numbers: Sequence[int], start: int, end: int | None = None
    ) -> Iterator[tuple[Notifications, Rows]]:
        """The rows of these registrations at offsets in `[start, end)`, file by file, ascending.

        `numbers` ascend and belong to one subscription, so each is in effect before the next: their rows in
        one file do not interleave. Stopping early costs nothing for the files not reached."""
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

    def offsets(self, numbers: Sequence[int], start: int, limit: int) -> list[int]:
        """The first offsets of these registrations at or above `start`, at most `limit`."""
        found: list[int] = []
        for n, rows in self.segments(numbers, start):
            found.extend((rows[: limit - len(found)].astype(np.int64) + n.start).tolist())
            if len(found) >= limit:
                break
        return found


def _unstored_bytes(item: Range) -> int:
    return 0 if item.stored else item.size


def rows_of(notifications: Notifications, number: int) -> Rows:
    """The rows of one registration in one file."""
    n = notifications
    at = int(n.numbers.searchsorted(number))
    if at == len(n.numbers) or n.numbers[at] != number:
        return n.rows[:0]
    return n.rows[n.bounds[at] : n.bounds[at + 1]]


def last_offsets(notifications: Notifications) -> NDArray[np.int64]:
    """The last offset that each registration of a file has in it; -1 where it has none."""
    n = notifications
    last = np.full(len(n.numbers), -1, np.int64)
    present = np.diff(n.bounds) > 0
    last[present] = n.rows[n.bounds[1:][present] - 1].astype(np.int64) + n.start
    return last


def merge(ranges: Sequence[Range], grouping: Grouping, new_rows: Callable[[int], Rows]) -> Notifications:
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
    return Notifications(start, ranges[-1].end, parts[-1].index_version, *groups, sizes)


def _cut(item: Range) -> Notifications:
    """A range's content without what lies before its start."""
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
    count = copy_kept(
        keep, read_only(n.numbers), read_only(n.bounds), read_only(n.rows), skip, numbers, bounds, rows
    )
    sizes = n.sizes[skip:].copy()
    return Notifications(
        start, n.end, n.index_version, numbers[:count], bounds[: count + 1], rows[: bounds[count]], sizes
    )


def plan_storing(ranges: Iterable[Range]) -> list[list[Range]]:
    """Groups of adjacent ranges that are in memory only, each to become one file."""
    groups: list[list[Range]] = []
    total = 0
    for item in ranges:
        if item.stored:
            continue
        if groups and total + item.size <= _LARGEST_MERGE_BYTES and _continues(groups[-1], item):
            groups[-1].append(item)
            total += item.size
        else:
            groups.append([item])
            total = item.size
    return groups


@dataclass(frozen=True, slots=True)
class Level:
    """Files below `below_bytes` are merged once there are more than `most` of them."""

    below_bytes: int
    most: int


_LARGEST_MERGE_BYTES = 64 * 1024 * 1024
LEVELS = (Level(512 * 1024, 64), Level(8 * 1024 * 1024, 16))
"""Levels keep the number of files small and have each row rewritten a handful of times, not once per merge."""


def plan_merges(ranges: Iterable[Range], levels: Sequence[Level] = LEVELS) -> list[list[Range]]:
    """Groups of adjacent files, each worth merging into one; at most one level's groups at a time."""
    everything = [item for item in ranges if item.stored]
    smaller_than = 0
    for level in levels:
        groups = [group for group in _groups(everything, level.below_bytes) if len(group) > 1]
        due = sum(item.size >= smaller_than for group in groups for item in group)
        if due > level.most:
            return groups
        smaller_than = level.below_bytes
    return []


def _groups(ranges: Sequence[Range], below_bytes: int) -> Iterator[list[Range]]:
    """Runs of adjacent small ranges; a run's sum is bounded, so that one merge fits into memory."""
    most_bytes = min(8 * below_bytes, _LARGEST_MERGE_BYTES)
    group: list[Range] = []
    total = 0
    for item in ranges:
        if group and (
            item.size >= below_bytes or total + item.size > most_bytes or not _continues(group, item)
        ):
            yield group
            group, total = [], 0
        if item.size < below_bytes:
            group.append(item)
            total += item.size
    if group:
        yield group


def _continues(group: Sequence[Range], item: Range) -> bool:
    """Whether a range follows a group and, with it, has no more events than one file can hold."""
    return group[-1].end == item.start and item.end - group[0].start <= MOST_EVENTS
