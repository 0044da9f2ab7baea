"""A lane of a connection: what catches up, and is acknowledged, together. It is one subscription, or one group.

    behind    reads its mailboxes from a position of its own, until it has reached the frontier
    tailing   gets what is new from the queue of the connection, from `tail_from` on

A live subscription has no mailbox: it is always tailing.
"""

from collections.abc import Sequence

import numpy as np

from culver.delivery.delivery_kernels import gather
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.merged.event_queue import EventRun, event_run
from culver.delivery.merged.selection import Selection
from culver.jit import Integers, read_only
from culver.registry import Registration

# How many offsets a group looks at first, room for so many pairs, and how many it takes at once, unless one event has
# more.
_WINDOW = 512
_ROOM = 8_192
_MOST_PAIRS = 131_072


class Lane:
    """`position` is the offset up to which a lane that is behind has everything. `numbers` are the registrations that
    it gets events for, ascending."""

    def __init__(self, index: int, numbers: Integers, position: int) -> None:
        self.index = index
        self.numbers = numbers
        self.position = position
        self.tail_from: int = NEVER
        self.announced: dict[int, int] = {}
        """By slot, the last offset of the newest gap that was announced."""

    @property
    def is_tailing(self) -> bool:
        return self.tail_from < NEVER

    def fall_behind(self, position: int) -> None:
        self.position, self.tail_from = position, NEVER

    def catch_up(self, frontier: int) -> None:
        """Everything below the frontier is handed out."""
        self.position, self.tail_from = frontier - 1, frontier


class LiveLane(Lane):
    def __init__(self, index: int, registration: Registration, tail_from: int) -> None:
        super().__init__(index, np.array([registration.number], np.int64), tail_from - 1)
        self.registration = registration
        self.tail_from = tail_from
        self.overflow: tuple[int, int, int | None] | None = None
        """Start, end and number of the events that did not fit and are not announced yet."""


class DurableLane(Lane):
    def __init__(
        self, index: int, registration: Registration, slot: int, mailboxes: Mailboxes, after: int
    ) -> None:
        position = max(min(after, mailboxes.frontier - 1), mailboxes.cursor(slot))
        super().__init__(index, np.array(mailboxes.numbers_of(slot), np.int64), position)
        self.registration = registration
        self.slot = slot

    def next_run(self, mailboxes: Mailboxes, limit: int) -> EventRun | None:
        offsets = mailboxes.offsets(self.slot, self.position, limit)
        if not offsets:
            return None
        count = len(offsets)
        return EventRun(offsets, list(range(count + 1)), [self.index] * count, [])


class GroupLane(Lane):
    def __init__(
        self, index: int, group: int, selection: Selection, mailboxes: Mailboxes, after: int
    ) -> None:
        super().__init__(index, mailboxes.members(selection), -1)
        self.group = group
        self.selection = selection
        self.slots = mailboxes.slots_of(self.numbers)
        floors = mailboxes.columns.floor[self.slots]
        lowest = int(floors.min(initial=mailboxes.frontier)) - 1
        self.position = max(min(after, mailboxes.frontier - 1), lowest)
        self.count = len(np.unique(self.slots))
        # A member joined behind the position of the group, at `late_since`. Until the group is at `late_until` again,
        # an acknowledgement does not count for what the member has not got.
        self.late_since = self.late_until = -1

    def refresh(self, mailboxes: Mailboxes) -> None:
        """Take note that members came or went."""
        self.numbers = mailboxes.members(self.selection)
        self.slots = mailboxes.slots_of(self.numbers)
        self.count = len(np.unique(self.slots))

    def joined_late(self, since: int, done: int) -> None:
        if done >= self.late_until:
            self.late_since = since
        self.late_since, self.late_until = min(self.late_since, since), max(self.late_until, done)

    def next_run(self, mailboxes: Mailboxes, limit: int) -> EventRun | None:
        """The next events behind the position, whoever of the group they are for; None at the frontier. Moves the
        position over events that nobody gets."""
        window = min(_WINDOW, limit)
        floors = mailboxes.columns.floor[self.slots]
        while self.position + 1 < mailboxes.frontier:
            start = self.position + 1
            end = min(start + window, mailboxes.frontier)
            parts = self._parts(mailboxes, floors, start, end, _MOST_PAIRS if end - start > 1 else NEVER)
            if parts is None:
                window = (end - start) // 2
                continue
            offsets = np.concatenate([np.empty(0, np.int64), *(offsets for offsets, _ in parts)])
            if len(offsets):
                at = np.concatenate([at for _, at in parts])
                run = event_run(offsets, np.full(len(at), self.index), self.numbers[at])
                return run.cut(limit)[0] if len(run.offsets) > limit else run
            self.position = end - 1
            window *= 2
        return None

    def _parts(
        self, mailboxes: Mailboxes, floors: Integers, start: int, end: int, most: int
    ) -> Sequence[tuple[Integers, Integers]] | None:
        """For each range, the offsets in `[start, end)` and the places of the members who get them; None where there
        are more than `most`."""
        parts: list[tuple[Integers, Integers]] = []
        for item in mailboxes.ranges.overlapping(start, end):
            n = item.notifications
            low, high = max(start, item.start) - n.start, min(end, n.end) - n.start
            arrays = read_only(n.numbers), read_only(n.bounds), read_only(n.rows)
            rows, at = np.empty(_ROOM, np.uint16), np.empty(_ROOM, np.int64)
            needed = gather(*arrays, self.numbers, floors, n.start, low, high, rows, at)
            most -= needed
            if most < 0:
                return None
            if needed > len(rows):
                rows, at = np.empty(needed, np.uint16), np.empty(needed, np.int64)
                gather(*arrays, self.numbers, floors, n.start, low, high, rows, at)
            parts.append((rows[:needed].astype(np.int64) + n.start, at[:needed]))
        return parts
