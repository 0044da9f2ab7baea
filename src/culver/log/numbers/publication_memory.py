"""Where numbered publications stand in the log: what a repeat is answered with.

    publisher "pump-7"      floor   sequences    offsets
                              |     [100, 164)   from 5000
          forgotten: refused  |     [164, 200)   from 5210
          <-------------------+     [230, 231)   from 5300

Consecutive sequences with consecutive offsets share one range. A publisher's ranges are forgotten in the order of
their sequences: its floor is then above them, and what lies below the floor and is not remembered is refused, because
nobody knows any more whether it was stored. Above the floor, sequences may come in any order.

A range is forgotten when it is too old, or when there is no room for it:

    too many ranges        the publishers with the most ranges keep as many as fit when all of them keep the same
                           number; the others keep all of theirs
    too many publishers    the one that has published nothing new for the longest time keeps its floor alone

The floors of publishers without ranges are kept too, those of the latest publishers.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from typing import NamedTuple

import msgspec

from culver.config import PublishingSettings
from culver.errors import Conflict

# The window moves in this many steps.
_WINDOW_STEPS = 64
# Where there are too many ranges, one of so many goes, so that this is rarely needed.
_SHRINK_SHARE = 8


class StoredPart(NamedTuple):
    """Consecutive sequences `[first, end)`, and the offset of the first one; None where they are not stored."""

    first: int
    end: int
    offset: int | None


class StoredRanges(msgspec.Struct, array_like=True):
    """The ranges of one publisher, as three columns of 64-bit integers."""

    publisher: str
    floor: int
    firsts: bytes
    ends: bytes
    offsets: bytes


class MemoryContent(msgspec.Struct):
    """Everything that a memory knows of events below `position` of the log."""

    position: int = 0
    marks: list[tuple[int, int]] = []
    ranges: list[StoredRanges] = []
    floors: dict[str, int] = {}


class PublicationMemory:
    """Decides and does no I/O; times are passed in."""

    def __init__(self, settings: PublishingSettings, content: MemoryContent | None = None) -> None:
        self._settings = settings
        # The one with the latest publication last.
        self._publishers: OrderedDict[str, _Publisher] = OrderedDict()
        # Those of publishers that have no ranges, the latest last.
        self._floors: OrderedDict[str, int] = OrderedDict()
        self._count = 0
        # At these times, the log ended at these offsets.
        self._marks: deque[tuple[int, int]] = deque()
        if content is not None:
            self._marks.extend(content.marks)
            self._floors.update(content.floors)
            for each in content.ranges:
                known = self._publishers[each.publisher] = _Publisher(each.floor)
                known.firsts.frombytes(each.firsts)
                known.ends.frombytes(each.ends)
                known.offsets.frombytes(each.offsets)
                self._count += len(known)

    def __len__(self) -> int:
        """The number of ranges."""
        return self._count

    def find(self, publisher: str, first: int, end: int) -> list[StoredPart]:
        """Which of the sequences `[first, end)` are stored, in order. Raises Conflict where that is forgotten."""
        known = self._publishers.get(publisher)
        floor = self._floors.get(publisher, 0) if known is None else known.floor
        parts = [StoredPart(first, end, None)] if known is None else known.find(first, end)
        for part in parts:
            if part.offset is None and part.first < floor:
                raise Conflict(
                    f"sequence {part.first} of publisher {publisher!r} is too old: the site remembers sequences from "
                    f"{floor} on (publishing.window_seconds, window_ranges, max_publishers), and cannot tell whether "
                    "this event was stored before. Go on with higher sequences, or under another publisher",
                    field="sequence",
                    sequence=part.first,
                    floor=floor,
                )
        return parts

    def remember(self, publisher: str, first: int, end: int, offset: int) -> None:
        """The events of `[first, end)` are in the log from `offset` on. What is known already stays as it is."""
        known = self._publishers.get(publisher)
        if known is None:
            known = self._publishers[publisher] = _Publisher(self._floors.pop(publisher, 0))
        else:
            self._publishers.move_to_end(publisher)
        for part in known.find(first, end):
            if part.offset is None:
                self._count += known.insert(part.first, part.end, offset + part.first - first)
        if self._count > self._settings.window_ranges:
            self._shrink()
        while len(self._publishers) > self._settings.max_publishers:
            self._forget_quietest()

    def pass_time(self, now_us: int, log_end: int) -> None:
        """Move the window. To be called now and then."""
        window_us = self._settings.window_seconds * 1_000_000
        if self._marks and self._marks[-1][0] > now_us:
            self._marks = deque((min(at, now_us), offset) for at, offset in self._marks)
        if not self._marks or now_us - self._marks[-1][0] >= window_us // _WINDOW_STEPS:
            self._marks.append((now_us, log_end))
        before = None
        while self._marks[0][0] <= now_us - window_us:
            before = self._marks.popleft()[1]
        if before is not None:
            for name, known in list(self._publishers.items()):
                self._forget(name, known, known.count_below(before))

    def content(self, position: int) -> MemoryContent:
        """A copy of everything, for the next start."""
        ranges = [
            StoredRanges(name, each.floor, each.firsts.tobytes(), each.ends.tobytes(), each.offsets.tobytes())
            for name, each in self._publishers.items()
        ]
        return MemoryContent(position, list(self._marks), ranges, dict(self._floors))

    def drop_from(self, offset: int) -> None:
        """The log ends there: forget what should be behind, as if it had never been stored."""
        self._marks = deque((at, min(end, offset)) for at, end in self._marks)
        for name, known in list(self._publishers.items()):
            self._count -= len(known)
            known.drop_from(offset)
            self._count += len(known)
            self._drop_if_empty(name, known)

    def _shrink(self) -> None:
        """Take ranges from those who have the most. Only where each has one at most, some lose their last one."""
        room = self._settings.window_ranges - self._settings.window_ranges // _SHRINK_SHARE
        level = max(1, _level([len(known) for known in self._publishers.values()], room))
        for name, known in list(self._publishers.items()):
            self._forget(name, known, len(known) - level)
        while len(self._publishers) > room:
            self._forget_quietest()

    def _forget_quietest(self) -> None:
        name, known = next(iter(self._publishers.items()))
        self._forget(name, known, len(known))

    def _forget(self, name: str, known: "_Publisher", count: int) -> None:
        """Forget so many ranges, those with the lowest sequences."""
        if count > 0:
            known.forget(count)
            self._count -= count
            self._drop_if_empty(name, known)

    def _drop_if_empty(self, name: str, known: "_Publisher") -> None:
        if not len(known):
            del self._publishers[name]
            if known.floor:
                self._floors[name] = known.floor
            while len(self._floors) > self._settings.max_publishers:
                self._floors.popitem(last=False)


def _level(counts: list[int], room: int) -> int:
    """How many ranges a publisher may keep, so that all of them together fit."""
    counts.sort()
    for place, count in enumerate(counts):
        share = room // (len(counts) - place)
        if count > share:
            return share
        room -= count
    return counts[-1]


class _Publisher:
    """The ranges of one publisher, ascending by sequence; they do not overlap."""

    __slots__ = ("ends", "firsts", "floor", "offsets")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.firsts = array("q")
        self.ends = array("q")
        self.offsets = array("q")

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self.firsts)

    def end_offset(self, row: int) -> int:
        return self.offsets[row] + self.ends[row] - self.firsts[row]

    def count_below(self, offset: int) -> int:
        """How many ranges, from the lowest sequences on, lie below an offset of the log."""
        rows = (row for row in range(len(self)) if self.end_offset(row) > offset)
        return next(rows, len(self))

    def find(self, first: int, end: int) -> list[StoredPart]:
        parts: list[StoredPart] = []
        row = bisect_right(self.ends, first)
        while first < end:
            if row == len(self.firsts) or self.firsts[row] >= end:
                parts.append(StoredPart(first, end, None))
                break
            begin, stop = self.firsts[row], min(self.ends[row], end)
            if begin > first:
                parts.append(StoredPart(first, begin, None))
                first = begin
            parts.append(StoredPart(first, stop, self.offsets[row] + first - begin))
            first, row = stop, row + 1
        return parts

    def insert(self, first: int, end: int, offset: int) -> int:
        """Insert a range that overlaps no other; returns how many ranges more there are."""
        row = bisect_left(self.firsts, first)
        more = 1
        if row and self.ends[row - 1] == first and self.end_offset(row - 1) == offset:
            row, more = row - 1, 0
            self.ends[row] = end
        else:
            self.firsts.insert(row, first)
            self.ends.insert(row, end)
            self.offsets.insert(row, offset)
        following = row + 1
        if (
            following < len(self.firsts)
            and self.firsts[following] == end
            and self.offsets[following] == self.end_offset(row)
        ):
            self.ends[row] = self.ends[following]
            for column in (self.firsts, self.ends, self.offsets):
                del column[following]
            more -= 1
        return more

    def forget(self, count: int) -> None:
        """Forget the ranges with the lowest sequences: the floor is above them."""
        self.floor = max(self.floor, self.ends[count - 1])
        for column in (self.firsts, self.ends, self.offsets):
            del column[:count]

    def drop_from(self, offset: int) -> None:
        """Cut the ranges where the log ends."""
        rows = [
            (first, min(end, first + offset - at), at)
            for first, end, at in zip(self.firsts, self.ends, self.offsets, strict=True)
            if at < offset
        ]
        self.firsts, self.ends, self.offsets = (array("q", [row[at] for row in rows]) for at in range(3))
