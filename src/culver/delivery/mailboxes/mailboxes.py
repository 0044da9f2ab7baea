"""The mailboxes of all durable subscriptions, as pure bookkeeping: no clock, no disk, no event loop.

A mailbox is not a copy of anything. It is the rows of its subscription's registrations in the notification files,
from a floor upward. Memory holds a handful of counters for each subscription:

    rows      3   8   9  14  15  21  33        offsets of matching events
              `-acked-'   `-- pending 4 --'    cursor 9, floor 10, oldest 14
              `-dropped--'                     or: a gap [3, 10) of 3 rows, cursor -1, floor 10

The floor lies behind the cursor and behind every gap. `accept` counts a whole file in bulk. Acknowledging and
dropping look only at the rows of one subscription.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from culver.config import DeliverySettings
from culver.delivery.deliveries import DeliveryGap, GapReason
from culver.delivery.delivery_kernels import count, take_out
from culver.delivery.mailboxes.mailbox_columns import NEVER, NONE, GapLedger, MailboxColumns, SlotTable
from culver.delivery.mailboxes.subscription_names import SubscriptionNames
from culver.delivery.ranges.lost_events import LostEvents
from culver.delivery.ranges.retained_ranges import RetainedRange, RetainedRanges
from culver.delivery.shares import Share
from culver.jit import Integers, read_only
from culver.pipeline import Notifications
from culver.registry import Block, Registration, split_member

if TYPE_CHECKING:
    from culver.delivery.merged.selection import Selection


@dataclass(frozen=True, slots=True)
class StoredMailbox:
    """The state of a mailbox that outlives the process. `number` is one of the subscription's registrations, so that
    a new subscription of the same id does not inherit the state."""

    number: int
    cursor: int
    gaps: tuple[DeliveryGap, ...]


@dataclass(frozen=True, slots=True)
class SetCursor:
    """How far the members of a set are acknowledged together: those of one gateway, out of so many."""

    name: str
    share: Share
    cursor: int


class Mailboxes:
    """Each subscription has a slot, see `mailbox_columns`. Deterministic; not thread-safe."""

    def __init__(
        self,
        settings: DeliverySettings,
        stored: Mapping[str, StoredMailbox],
        set_cursors: Iterable[SetCursor] = (),
    ) -> None:
        self._settings = settings
        self._stored = dict(stored)  # until the subscription is registered
        self._stored_by_number = sorted(
            (mailbox.number, subscription) for subscription, mailbox in stored.items()
        )
        self._set_cursors: dict[str, list[SetCursor]] = {}
        for each in set_cursors:
            self._set_cursors.setdefault(each.name, []).append(each)
        self._numbers = SlotTable()
        self._names = SubscriptionNames()
        self._replaced: dict[int, list[int]] = {}  # slot -> earlier numbers, ascending
        self._gaps = GapLedger()
        self._ending: dict[int, tuple[int, int]] = {}  # ended number -> slot, until
        self._ended_blocks: dict[int, int] = {}  # first number -> until
        self._exact_from = 0  # below, dropped rows can no longer be counted
        self.columns = MailboxColumns()
        self.ranges = RetainedRanges()
        self.lost = LostEvents()
        self.frontier = 0
        self.highest_floor = 0  # of all mailboxes; beyond the frontier, acknowledged events are matched again
        self.index_version = 0  # of the newest accepted notifications; 0 if there are none

    def restore(self, ranges: Iterable[RetainedRange], frontier: int) -> None:
        """Begin with the ranges found on disk. Call it before anything is registered."""
        for item in ranges:
            self.ranges.append(item)
            self.lost.note(item.notifications, item.start)
            self.index_version = item.notifications.index_version
        self.frontier = frontier
        self._exact_from = frontier

    def accept(self, notifications: Notifications, *, stored: bool = True) -> RetainedRange | None:
        """Count the deliveries of the next range of the log. `stored` says whether its file is on disk. Returns None
        where all of it is known already. Raises ValueError where it leaves a hole."""
        if notifications.start > self.frontier:
            raise ValueError(f"notifications from {notifications.start} leave a hole at {self.frontier}")
        if notifications.end <= self.frontier:
            return None
        item = RetainedRange(self.frontier, notifications, stored=stored)
        self.ranges.append(item)
        self.lost.note(notifications, item.start)
        self.frontier = notifications.end
        self.index_version = notifications.index_version
        self._count(item, *self._numbers.known())
        return item

    def stored_frontier(self) -> int:
        """The start of the first range that has no file."""
        return next((item.start for item in self.ranges if not item.stored), self.frontier)

    def register(self, registrations: Iterable[Registration]) -> list[tuple[str, int]]:
        """Take note of durable registrations that began, changed or ended, in any order.

        Returns (subscription, number) of every mailbox that is gone, for the disk to forget."""
        batch = sorted(registrations, key=lambda registration: registration.number)
        gone: dict[str, int] = {}
        for registration in batch:
            if registration.removed:
                gone[registration.id] = registration.number
        for subscription, number in gone.items():
            self._remove(subscription, number)
        added: dict[int, int] = {}
        since = NEVER
        for registration in batch:
            number = registration.number
            if number <= gone.get(registration.id, NONE):
                self._ending[number] = (NONE, registration.until or 0)
                continue
            slot = self._numbers.slot_of(number)
            if slot == NONE:
                slot = self._place(registration)
                added[number] = slot
                since = min(since, registration.since)
            if registration.until is not None:
                self._ending[number] = (slot, registration.until)
            if number == self.columns.newest_number[slot]:
                self._limit(slot, registration)
        self._numbers.add(list(added), list(added.values()))
        if added and since < self.frontier:
            self._recount(np.array(list(added), np.int64), since)
        return list(gone.items())

    def register_block(self, block: Block) -> None:
        """Take note of a block that began or ended. With its end, the mailboxes of its members are gone."""
        numbers = block.numbers()
        slots = self._numbers.slots_of(numbers)
        if block.until is not None:
            known = slots != NONE
            self.columns.release(np.sort(slots[known]))
            self._gaps.clear_all(slots[known])
            self._numbers.remove(numbers)
            self._names.remove_block(block)
            for _, subscription in self._stored_in(block):
                self._stored.pop(subscription, None)
            self._ended_blocks[block.number] = block.until
            return
        if not len(numbers) or slots[0] != NONE:
            return
        columns = self.columns
        first = columns.take(len(numbers))
        slots = np.arange(first, first + len(numbers))
        columns.newest_number[slots] = numbers
        self._names.add_block(block)
        self._numbers.add(numbers, slots)
        self._limit(slice(first, first + len(numbers)), block)
        for number, subscription in self._stored_in(block):
            self._resume(self._numbers.slot_of(number), self._stored.pop(subscription))
        for each in self._set_cursors.get(block.name, ()):
            slots = self.slots_of(each.share.part_of(block).numbers())
            self._resume_at(slots[slots != NONE], each.cursor)
        if block.since < self.frontier:
            self._recount(numbers, block.since)

    def slot_of(self, subscription: str) -> int:
        slot = self._names.slot(subscription)
        if slot is not None:
            return slot
        number = self._names.number(subscription)
        return NONE if number is None else self._numbers.slot_of(number)

    def subscription(self, slot: int) -> str:
        return self._names.subscription(slot, int(self.columns.newest_number[slot]))

    def subscription_of(self, number: int) -> str | None:
        """The subscription that a registration is one of; None where its mailbox is gone."""
        if (member := self._names.member(number)) is not None:
            return member
        slot = self._numbers.slot_of(number)
        return self.subscription(slot) if slot != NONE else None

    def forget_set(self, name: str) -> bool:
        """Forget how far a set was acknowledged as a whole, if no block of it is left. Returns whether that is so."""
        is_gone = not self._names.has_set(name)
        if is_gone:
            self._set_cursors.pop(name, None)
        return is_gone

    def numbers_of(self, slot: int) -> list[int]:
        """All registrations of a subscription that may have rows, ascending."""
        return [*self._replaced.get(slot, ()), int(self.columns.newest_number[slot])]

    def cursor(self, slot: int) -> int:
        return int(self.columns.cursor[slot])

    def pending(self, slot: int) -> int:
        return int(self.columns.pending[slot])

    def knows(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these registrations, ascending, have a mailbox."""
        known: NDArray[np.bool_] = self._numbers.slots_of(numbers) != NONE
        return known

    def pending_bytes(self, slot: int) -> int:
        """How many payload bytes wait, counted row by row."""
        segments = self.ranges.segments(self.numbers_of(slot), int(self.columns.floor[slot]))
        size = sum(int(n.sizes[rows].sum(dtype=np.int64)) for n, rows in segments)
        self.columns.size[slot] = size
        return size

    def needed_from(self) -> int:
        """The lowest offset that waits in a mailbox; the frontier if none does."""
        return min(self.columns.lowest_pending(), self.frontier)

    def offsets(self, slot: int, after: int, limit: int) -> list[int]:
        """The next deliveries behind `after`, ascending."""
        start = max(after + 1, int(self.columns.floor[slot]))
        return self.ranges.offsets(self.numbers_of(slot), start, limit)

    def gaps(self, slot: int, after: int) -> list[DeliveryGap]:
        """The gaps behind `after`, ascending. All of them lie before the next delivery."""
        return self._gaps.after(slot, after, partial(self._count_dropped, slot))

    def members(self, selection: "Selection") -> Integers:
        """All registrations of the selected subscriptions that may have rows, ascending."""
        found = [np.empty(0, np.int64)]
        singles: list[int] = []
        if selection.subscriptions is not None:
            for slot in map(self.slot_of, filter(selection.includes, selection.subscriptions)):
                singles += self.numbers_of(slot) if slot != NONE else []
        else:
            for subscription, slot in self._names.singles():
                if selection.includes(subscription):
                    singles += self.numbers_of(slot)
            for name, first, count, number in self._names.blocks():
                found.append(selection.rows(name, first, count) + number)
        numbers: Integers = np.unique(np.concatenate([np.array(singles, np.int64), *found]))
        present: Integers = numbers[self.slots_of(numbers) != NONE]
        return present

    def slots_of(self, numbers: Integers) -> Integers:
        """The slot of each registration, or NONE. The registrations ascend."""
        return self._numbers.slots_of(numbers)

    def slots_with_gaps(self) -> list[int]:
        return self._gaps.slots()

    def acknowledge_all(self, slots: Integers, offset: int) -> None:
        """As `acknowledge`, for many mailboxes at once. `oldest` is no more than a lower bound from there on: looking
        for the next row of each would read everything that waits."""
        columns = self.columns
        columns.cursor[slots] = np.maximum(columns.cursor[slots], offset)
        chosen = np.zeros(columns.used, np.bool_)
        chosen[slots] = True
        for slot in self._gaps.slots():
            if chosen[slot]:
                self._gaps.acknowledge(slot, offset, partial(self._count_dropped, slot))
        oldest = columns.oldest[slots]
        if (lowest := int(oldest.min(initial=NEVER))) <= offset:
            for item in self.ranges.overlapping(lowest, offset + 1):
                n = item.notifications
                take_out(
                    read_only(n.numbers), read_only(n.bounds), read_only(n.rows), read_only(n.sizes),
                    *self._numbers.known(), chosen, n.start, item.start, offset + 1, columns.counted,
                )  # fmt: skip
        columns.floor[slots] = np.maximum(columns.floor[slots], offset + 1)
        self.highest_floor = max(self.highest_floor, offset + 1)
        waiting = columns.pending[slots] > 0
        columns.size[slots] = np.where(waiting, columns.size[slots], 0)
        columns.oldest[slots] = np.where(waiting, np.maximum(oldest, offset + 1), NEVER)

    def acknowledge(self, slot: int, offset: int) -> None:
        """Note that the subscriber is done with everything up to and including `offset`. Going backwards changes
        nothing. The offset may lie beyond the frontier: an event delivered before a crash may be matched again."""
        columns = self.columns
        if offset <= columns.cursor[slot]:
            return
        columns.cursor[slot] = offset
        self._gaps.acknowledge(slot, offset, partial(self._count_dropped, slot))
        if offset >= columns.floor[slot]:
            self._take_out(slot, offset + 1)

    def drop_overflow(self, slot: int) -> DeliveryGap | None:
        """Drop the oldest rows until the mailbox is within its limits in count and bytes."""
        columns = self.columns
        count = int(columns.pending[slot] - columns.most_count[slot])
        size = int(self.pending_bytes(slot) - columns.most_bytes[slot])
        end = int(columns.floor[slot])
        for n, rows in self.ranges.segments(self.numbers_of(slot), end):
            if count <= 0 and size <= 0:
                break
            running = np.cumsum(n.sizes[rows], dtype=np.int64)
            drop = max(count, int(running.searchsorted(size)) + 1 if size > 0 else 0)
            drop = min(drop, len(rows))
            end = int(rows[drop - 1]) + n.start + 1
            count -= drop
            size -= int(running[drop - 1])
        return self.drop(slot, end, "overflow")

    def drop(self, slot: int, end: int, reason: GapReason) -> DeliveryGap | None:
        """Drop the rows below `end` and remember the gap. Returns None where there are none."""
        before = int(self.columns.floor[slot])
        if self.columns.oldest[slot] >= end:
            return None
        rows = self.ranges.offsets(self.numbers_of(slot), before, 1)
        first = self.columns.oldest[slot] = rows[0] if rows else NEVER
        if first >= end:
            return None
        count, last = self._take_out(slot, end)
        floor = self.columns.floor[slot] = last + 1
        if (lost := self.lost.start_of(first)) is not None:
            first = max(lost, before)
        dropped = None if self.lost.any_within(first, floor) else count
        gap = DeliveryGap(self.subscription(slot), first, floor, dropped, reason)
        self._gaps.add(slot, gap)
        return gap

    def stored(self, slot: int) -> StoredMailbox:
        """The state of a mailbox that goes to disk."""
        return StoredMailbox(self.numbers_of(slot)[-1], self.cursor(slot), self._gaps.of(slot))

    def consumed(self) -> list[int]:
        """Registrations that have ended and have nothing left to deliver, each once."""
        done: list[int] = []
        for number, (slot, until) in list(self._ending.items()):
            if until > self.frontier or (slot != NONE and self.columns.oldest[slot] < until):
                continue
            if slot != NONE and number != self.columns.newest_number[slot]:
                self._numbers.remove([number])
                self._replaced[slot].remove(number)
                self._exact_from = max(self._exact_from, until)
            del self._ending[number]
            done.append(number)
        return done

    def consumed_blocks(self) -> list[int]:
        """The first numbers of blocks that have ended, each once. Nothing of them is left to deliver."""
        done = [number for number, until in self._ended_blocks.items() if until <= self.frontier]
        for number in done:
            del self._ended_blocks[number]
        return done

    def retire(self, below: int) -> list[RetainedRange]:
        """Let go of the ranges that end at or below an offset, except the newest."""
        retired = self.ranges.drop_below(below)
        if retired:
            self._exact_from = max(self._exact_from, retired[-1].end)
        return retired

    def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which registrations of a range still have something to deliver there, by their `last_offsets`."""
        slots = self._numbers.slots_of(numbers)
        wanted: NDArray[np.bool_] = (slots != NONE) & (last >= self.columns.floor[slots])
        return wanted

    def exchange(self, old: Sequence[RetainedRange], new: RetainedRange, *, pruned: bool = False) -> None:
        """Put one range in the place of adjacent ones. With `pruned`, it lacks the rows that nobody wants, and
        dropped ones can no longer be counted."""
        self.ranges.exchange(old, new)
        if pruned:
            self._exact_from = max(self._exact_from, new.end)

    def _place(self, registration: Registration) -> int:
        """Give a new registration the slot of its subscription, which may be new too."""
        subscription, number = registration.id, registration.number
        columns = self.columns
        slot = self.slot_of(subscription)
        if slot == NONE:
            slot = columns.take()
            self._names.add(subscription, slot)
            columns.newest_number[slot] = number
            stored = self._stored.pop(subscription, None)
            if stored is not None:
                self._resume(slot, stored)
            member = split_member(subscription)
            for each in self._set_cursors.get(member[0], ()) if member is not None else ():
                if each.share.owns(subscription):
                    self._resume_at(np.array([slot]), each.cursor)
            return slot
        self._names.add(subscription, slot)
        newest = int(columns.newest_number[slot])
        earlier = self._replaced.setdefault(slot, [])
        earlier.append(min(newest, number))
        earlier.sort()
        if number > newest:
            columns.newest_number[slot] = number
            self._ending.setdefault(newest, (slot, registration.since))
        return slot

    def _resume(self, slot: int, stored: StoredMailbox) -> None:
        columns = self.columns
        columns.cursor[slot] = stored.cursor
        columns.floor[slot] = stored.cursor + 1
        gaps = [gap for gap in stored.gaps if gap.end - 1 > stored.cursor]
        if gaps:
            self._gaps.resume(slot, gaps)
            columns.floor[slot] = gaps[-1].end
        self.highest_floor = max(self.highest_floor, int(columns.floor[slot]))

    def _resume_at(self, slots: Integers, cursor: int) -> None:
        """Mailboxes that have just been resumed are acknowledged up to `cursor` at least."""
        columns = self.columns
        columns.cursor[slots] = np.maximum(columns.cursor[slots], cursor)
        columns.floor[slots] = np.maximum(columns.floor[slots], cursor + 1)
        self.highest_floor = max(self.highest_floor, cursor + 1)
        for slot in set(self._gaps.slots()).intersection(slots.tolist()):
            self._gaps.acknowledge(slot, cursor, partial(self._count_dropped, slot))

    def _stored_in(self, block: Block) -> list[tuple[int, str]]:
        """The members of a block that have a stored mailbox, as number and subscription."""
        stored = self._stored_by_number
        start, end = (
            bisect_left(stored, (number, "")) for number in (block.number, block.number + block.count)
        )
        holes = set(block.holes.tolist())
        return [pair for pair in stored[start:end] if pair[0] not in holes and pair[1] in self._stored]

    def _limit(self, slot: int | slice, registration: Registration | Block) -> None:
        settings, columns = self._settings, self.columns
        columns.most_count[slot] = _lower(settings.mailbox_count, registration.mailbox_count)
        columns.most_bytes[slot] = _lower(settings.mailbox_bytes, registration.mailbox_bytes)
        age = _lower(settings.mailbox_age_seconds, registration.mailbox_age_seconds)
        columns.most_age_us[slot] = min(age, NEVER // 1_000_000) * 1_000_000

    def _remove(self, subscription: str, number: int) -> None:
        stored = self._stored.get(subscription)
        if stored is not None and stored.number <= number:
            del self._stored[subscription]
        slot = self.slot_of(subscription)
        if slot == NONE or self.columns.newest_number[slot] > number:
            return
        numbers = self.numbers_of(slot)
        self._numbers.remove(numbers)
        for ended in numbers:
            if ended in self._ending:
                self._ending[ended] = (NONE, self._ending[ended][1])
        self._names.remove(slot)
        self._replaced.pop(slot, None)
        self._gaps.clear(slot)
        self.columns.release(np.array([slot]))

    def _count(self, item: RetainedRange, known: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Add a range's rows to the mailboxes. `known` registrations ascend, and `slots` has the slot of each."""
        n = item.notifications
        sizes = n.sizes.copy()
        sizes.sort()
        count(
            read_only(n.numbers), known, slots, read_only(n.bounds), read_only(n.rows), sizes, n.start, item.start,
            self.columns.counted,
        )  # fmt: skip

    def _recount(self, numbers: NDArray[np.int64], since: int) -> None:
        """Count the rows that the ranges hold for registrations, ascending, that have only now become known."""
        slots = self._numbers.slots_of(numbers)
        for item in self.ranges:
            if item.end > since:
                present = item.notifications.numbers
                if len(present) and present[-1] >= numbers[0] and present[0] <= numbers[-1]:
                    self._count(item, numbers, slots)

    def _take_out(self, slot: int, end: int) -> tuple[int, int]:
        """Raise the floor to `end`. Returns how many rows lay below, and the last of them."""
        columns = self.columns
        numbers = self.numbers_of(slot)
        count, last = 0, NONE
        if columns.oldest[slot] < end:
            for n, rows in self.ranges.segments(numbers, int(columns.oldest[slot]), end):
                count += len(rows)
                columns.size[slot] -= int(n.sizes[rows].sum(dtype=np.int64))
                last = int(rows[-1]) + n.start
            columns.pending[slot] -= count
            following = self.ranges.offsets(numbers, end, 1) if columns.pending[slot] else []
            columns.oldest[slot] = following[0] if following else NEVER
        columns.floor[slot] = max(int(columns.floor[slot]), end)
        self.highest_floor = max(self.highest_floor, end)
        return count, last

    def _count_dropped(self, slot: int, start: int, end: int) -> int | None:
        if start < self._exact_from or self.lost.any_within(start, end):
            return None
        return sum(len(rows) for _, rows in self.ranges.segments(self.numbers_of(slot), start, end))


def _lower(default: int, wish: int | None) -> int:
    return default if wish is None else min(default, wish)
