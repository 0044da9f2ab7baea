"""The mailboxes against a model that keeps plain lists, over random histories."""

import random
from dataclasses import dataclass, field, replace

import pytest

from culver.config import DeliverySettings
from culver.delivery.deliveries import DeliveryGap
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes, StoredMailbox
from culver.delivery.ranges.retained_ranges import (
    MergeLevel,
    RetainedRange,
    last_offsets,
    merge,
    plan_merges,
    select,
)
from culver.matching import Grouping, pooled_rows
from culver.registry.registration import Registration
from support.notifications import make_notifications, registration, removed

SETTINGS = DeliverySettings(mailbox_count=30, mailbox_bytes=600, mailbox_age_seconds=50)
IDS = ("a", "b", "c", "d", "e")


@dataclass
class Box:
    """What the model knows of one subscription: each row as (offset, bytes), and what it has lost."""

    registrations: list[Registration]
    rows: list[tuple[int, int]] = field(default_factory=list)
    cursor: int = -1
    dropped: list[tuple[int, str]] = field(default_factory=list)

    @property
    def current(self) -> Registration:
        return self.registrations[-1]


class History:
    """Makes the same random moves on the mailboxes and on the model. Time is the offset: one per second."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.mailboxes = Mailboxes(SETTINGS, {})
        self.mailboxes.register([])
        self.boxes: dict[str, Box] = {}
        self.ended: list[Registration] = []  # not yet forgotten
        self.next_number = 1
        self.stored: dict[str, StoredMailbox] = {}
        self.counts_are_exact = True

    def step(self) -> None:
        moves = [
            (self.accept, 8),
            (self.acknowledge, 5),
            (self.enforce, 4),
            (self.expire, 2),
            (self.add, 3),
            (self.replace, 2),
            (self.remove, 1),
            (self.merge, 2),
            (self.tidy, 2),
            (self.restart, 1),
        ]
        move = self.random.choices([move for move, _ in moves], [weight for _, weight in moves])[0]
        move()
        self.check()

    def accept(self) -> None:
        start = self.mailboxes.frontier
        end = start + self.random.choice((1, 1, 2, 10))
        early = self.random.choice((0, 0, 3))  # overlaps what is known
        begin = max(start - early, 0)
        rows: dict[int, list[int]] = {}
        sizes = [self.random.randrange(50) for _ in range(begin, end)]
        for box in self.boxes.values():
            for one in box.registrations:
                low, high = max(begin, one.since), min(end, one.until if one.until is not None else end)
                hits = [offset for offset in range(low, high) if self.random.random() < 0.5]
                rows[one.number] = hits
                box.rows += [
                    (offset, sizes[offset - begin])
                    for offset in hits
                    if offset >= start and offset > box.cursor
                ]
            box.rows.sort()
        rows[10_000] = [start]  # nobody knows this registration
        assert self.mailboxes.accept(make_notifications(begin, end, rows, sizes)) is not None

    def acknowledge(self) -> None:
        if not self.boxes:
            return
        name, box = self.random.choice(list(self.boxes.items()))
        offset = self.random.randrange(-1, self.mailboxes.frontier + 2)
        self.mailboxes.acknowledge(self.mailboxes.slot_of(name), offset)
        box.cursor = max(box.cursor, offset)
        box.rows = [row for row in box.rows if row[0] > box.cursor]
        box.dropped = [row for row in box.dropped if row[0] > box.cursor]

    def enforce(self) -> None:
        for slot in self.mailboxes.columns.overflowing():
            self.mailboxes.drop_overflow(slot)
        for box in self.boxes.values():
            count = min(SETTINGS.mailbox_count, box.current.mailbox_count or SETTINGS.mailbox_count)
            size = min(SETTINGS.mailbox_bytes, box.current.mailbox_bytes or SETTINGS.mailbox_bytes)
            while len(box.rows) > count or sum(row[1] for row in box.rows) > size:
                box.dropped.append((box.rows.pop(0)[0], "overflow"))

    def expire(self) -> None:
        now = self.mailboxes.frontier
        shortest = self.mailboxes.columns.shortest_age()
        if shortest is not None:
            ages = self.mailboxes.columns.ages(max(now - shortest // 1_000_000, 0))
            bounds = {age: max(now - age // 1_000_000, 0) for age in ages}
            for slot, end in self.mailboxes.columns.expiring(bounds):
                self.mailboxes.drop(slot, end, "expired")
        for box in self.boxes.values():
            oldest = now - min(50, box.current.mailbox_age_seconds or 50)
            while box.rows and box.rows[0][0] < oldest:
                box.dropped.append((box.rows.pop(0)[0], "expired"))

    def add(self) -> None:
        free = [name for name in IDS if name not in self.boxes]
        if free:
            made = self.make(self.random.choice(free))
            self.boxes[made.id] = Box([made])
            self.mailboxes.register([made])

    def replace(self) -> None:
        if not self.boxes:
            return
        box = self.random.choice(list(self.boxes.values()))
        made = self.make(box.current.id)
        ended = replace(box.current, until=made.since)
        box.registrations[-1:] = [ended, made]
        self.ended.append(ended)
        batch = [made, ended]
        self.mailboxes.register(batch if self.random.random() < 0.5 else [made])

    def remove(self) -> None:
        if not self.boxes:
            return
        name = self.random.choice(list(self.boxes))
        box = self.boxes.pop(name)
        gone = removed(box.current, self.mailboxes.frontier)
        self.ended.append(gone)
        assert self.mailboxes.register([gone]) == [(name, gone.number)]
        assert self.mailboxes.slot_of(name) == NONE

    def merge(self) -> None:
        groups = plan_merges(self.mailboxes.ranges, (MergeLevel(2_000, 4), MergeLevel(20_000, 3)))
        for group in groups:
            content = merge(group, Grouping(), pooled_rows)
            wanted = self.mailboxes.wanted(content.numbers, last_offsets(content))
            if not wanted.all() and self.random.random() < 0.5:
                kept = select(content, wanted, content.start)
                self.mailboxes.exchange(group, RetainedRange(kept.start, kept), pruned=True)
                self.counts_are_exact = False
            else:
                self.mailboxes.exchange(group, RetainedRange(content.start, content))

    def tidy(self) -> None:
        """Let go of files and registrations, as far as the mailboxes say nobody needs them."""
        if self.mailboxes.retire(self.mailboxes.needed_from()):
            self.counts_are_exact = False
        for number in self.mailboxes.consumed():
            (one,) = [one for one in self.ended if one.number == number]
            self.ended.remove(one)
            self.counts_are_exact = False
            for box in self.boxes.values():
                if one in box.registrations:
                    assert not any(offset < (one.until or 0) for offset, _ in box.rows)
                    box.registrations.remove(one)

    def restart(self) -> None:
        stored = {}
        for name in self.boxes:
            stored[name] = self.mailboxes.stored(self.mailboxes.slot_of(name))
        before = self.mailboxes
        self.mailboxes = Mailboxes(SETTINGS, stored)
        self.mailboxes.restore(before.ranges, before.frontier)
        self.counts_are_exact = False
        everything = [one for box in self.boxes.values() for one in box.registrations] + self.ended
        unique = list({one.number: one for one in everything}.values())
        self.random.shuffle(unique)
        self.mailboxes.register(unique)

    def make(self, name: str) -> Registration:
        number = self.next_number
        self.next_number += self.random.choice((1, 5))
        return registration(
            number,
            name,
            since=self.mailboxes.frontier,
            mailbox_count=self.random.choice((None, 5, 1_000)),
            mailbox_bytes=self.random.choice((None, 100)),
            mailbox_age_seconds=self.random.choice((None, 10, 1_000)),
        )

    def check(self) -> None:
        mailboxes = self.mailboxes
        for name, box in self.boxes.items():
            slot = mailboxes.slot_of(name)
            offsets = [offset for offset, _ in box.rows]
            assert mailboxes.pending(slot) == len(offsets)
            assert mailboxes.pending_bytes(slot) == sum(size for _, size in box.rows)
            assert mailboxes.cursor(slot) == box.cursor
            assert mailboxes.offsets(slot, -1, 10_000) == offsets
            after = self.random.randrange(-1, mailboxes.frontier + 1)
            assert mailboxes.offsets(slot, after, 3) == [offset for offset in offsets if offset > after][:3]
            self.check_gaps(box, mailboxes.gaps(slot, -1), -1)
            self.check_gaps(box, mailboxes.gaps(slot, after), after)
        oldest = [box.rows[0][0] for box in self.boxes.values() if box.rows]
        assert mailboxes.needed_from() == min([*oldest, mailboxes.frontier])

    def check_gaps(self, box: Box, gaps: list[DeliveryGap], after: int) -> None:
        missed = [row for row in box.dropped if row[0] > after]
        for offset, _ in missed:
            assert any(gap.start <= offset < gap.end for gap in gaps)
        for gap in gaps:
            inside = [offset for offset, _ in missed if gap.start <= offset < gap.end]
            assert inside
            assert inside[-1] == gap.end - 1
            if gap.dropped is None:
                assert not self.counts_are_exact
            else:
                assert gap.dropped == len(inside)
        assert [gap.start for gap in gaps] == sorted(gap.start for gap in gaps)
        if gaps and box.rows:
            assert gaps[-1].end <= box.rows[0][0]


@pytest.mark.slow(seconds=0.1)
@pytest.mark.parametrize("seed", range(40))
def test_mailboxes_agree_with_plain_lists_over_a_random_history(seed: int) -> None:
    history = History(seed)
    for _ in range(250):
        history.step()
    assert history.mailboxes.frontier > 100
