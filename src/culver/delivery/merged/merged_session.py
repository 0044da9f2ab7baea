"""One connection with many subscriptions. It joins its lanes, so that an event comes once:

    session_fanout --push--> queue ---------------.
                                             +--> receive
    lanes that are behind, each from its ----'
    mailboxes, in turn

A lane that has read everything up to the frontier gets its events from the queue from then on. Where the queue is
full, the oldest events go: a live subscription has a gap, and a durable one falls behind and reads its mailbox.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from culver.delivery.deliveries import DeliveryGap, GapReason
from culver.delivery.mailboxes.mailbox_columns import NEVER, NONE
from culver.delivery.merged.event_queue import EventQueue, EventRun
from culver.delivery.merged.lane import DurableLane, GroupLane, Lane, LiveLane
from culver.delivery.merged.merged_items import MergedEnd, MergedEvent, MergedGap, MergedItem
from culver.delivery.merged.selection import Selection
from culver.delivery.waiting_session import WaitingSession
from culver.errors import NotFound, Unavailable
from culver.jit import Integers
from culver.registry import Block, Registration

if TYPE_CHECKING:
    from culver.delivery.hub import Hub

_MOST_PAIRS = 1_000_000


class MergedSession(WaitingSession[MergedItem]):
    def __init__(self, hub: "Hub", live_buffer: int, on_change: Callable[[], None]) -> None:
        """`on_change` is called when there are other lanes of single subscriptions than before."""
        super().__init__()
        self._hub = hub
        self._on_change = on_change
        self._queue = EventQueue(live_buffer, _MOST_PAIRS)
        self._lanes: dict[int, Lane] = {}
        self._singles: dict[str, DurableLane | LiveLane] = {}
        self._groups: dict[int, GroupLane] = {}
        self._behind: deque[DurableLane | GroupLane] = deque()
        self._notices: deque[MergedItem] = deque()
        self._overflowed: dict[int, LiveLane] = {}
        self._gaps_to_check = False
        self._is_queues_turn = False
        self._next_index = 0
        self._epoch = 0
        # Everything that came from the queue is handed out up to here.
        self._position = -1
        self._taken: Sequence[EventRun] = ()

    # --- lanes ------------------------------------------------------------------------------------------

    def add(self, registration: Registration, after: int | None = None) -> None:
        """Receive what is for a subscription, too. `after` is as `roles.Sessions.open` has it. Raises NotFound."""
        index = self._new_index()
        lane: DurableLane | LiveLane
        if registration.durable:
            mailboxes = self._hub.mailboxes
            slot = mailboxes.slot_of(registration.id)
            if slot == NONE:
                raise NotFound(f"subscription {registration.id!r} has ended")
            lane = DurableLane(index, registration, slot, mailboxes, -1 if after is None else after)
            self._behind.append(lane)
            self._gaps_to_check = True
        else:
            lane = self._new_live(index, registration, after)
        self._singles[registration.id] = self._lanes[index] = lane
        self._changed(lane)
        self._wake.set()

    def follow(self, group: int, selection: Selection, after: int | None = None) -> int:
        """Receive what is for all subscriptions of a selection, as group `group`; returns how many there are. `after`
        skips what lies at or below it, without acknowledging it."""
        index = self._new_index()
        lane = GroupLane(index, group, selection, self._hub.mailboxes, -1 if after is None else after)
        self._groups[group] = self._lanes[index] = lane
        self._behind.append(lane)
        self._gaps_to_check = True
        self._wake.set()
        return lane.count

    def remove(self, key: str | int) -> None:
        """Receive nothing more for a subscription or a group. One that is not there is ignored."""
        lane = self._singles.pop(key, None) if isinstance(key, str) else self._groups.pop(key, None)
        if lane is None:
            return
        del self._lanes[lane.index]
        self._overflowed.pop(lane.index, None)
        if not isinstance(lane, LiveLane) and lane in self._behind:
            self._behind.remove(lane)
        self._epoch += 1
        self._changed(lane)

    def _new_index(self) -> int:
        self._next_index += 1
        return self._next_index

    def _changed(self, lane: Lane) -> None:
        """A lane is new, gone, or begins to tail or to be behind. The table of `SessionFanout` has no groups."""
        if not isinstance(lane, GroupLane):
            self._on_change()

    def _new_live(self, index: int, registration: Registration, after: int | None) -> LiveLane:
        """Take over what the buffer of the subscription has received since it was registered."""
        buffer = self._hub.take_buffer(registration)
        if after is not None:
            buffer.start_after(after)
        gaps, offsets = buffer.take_all()
        lane = LiveLane(index, registration, 0 if after is None else after + 1)
        self._notices += [_notice(gap) for gap in gaps]
        if offsets:
            count = len(offsets)
            run = EventRun(offsets, list(range(count + 1)), [index] * count, [registration.number] * count)
            self._put(run)
        return lane

    # --- what happens -----------------------------------------------------------------------------------

    @property
    def lanes(self) -> Sequence[DurableLane | LiveLane]:
        """Those of single subscriptions."""
        return tuple(self._singles.values())

    @property
    def groups(self) -> Sequence[GroupLane]:
        return tuple(self._groups.values())

    @property
    def needed_from(self) -> int | None:
        """The lowest offset still to be read from the log for a live subscription."""
        first = [run.offsets[0] for run in self._taken]
        if self._queue.first is not None:
            first.append(self._queue.first)
        return min(first, default=None)

    def push(self, run: EventRun) -> None:
        """Take events of the next range for lanes that are tailing."""
        self._put(run)
        self._wake.set()

    def _put(self, run: EventRun) -> None:
        run.epoch = self._epoch
        for dropped in self._queue.push(run):
            self._drop(dropped)

    def _drop(self, run: EventRun) -> None:
        """Events do not fit the queue."""
        counts: dict[int, list[int]] = {}
        for offset, lanes, _ in self._rows(run):
            for index in lanes:
                counts.setdefault(index, []).append(offset)
        for index, offsets in counts.items():
            lane = self._lanes[index]
            if isinstance(lane, LiveLane):
                self._note_overflow(lane, offsets)
            elif isinstance(lane, DurableLane | GroupLane):
                self._rewind(lane, self.done(lane))

    def _rewind(self, lane: DurableLane | GroupLane, position: int) -> None:
        """Have a lane read its mailboxes from an earlier position, or from where it is."""
        if lane.is_tailing:
            self._behind.append(lane)
        lane.fall_behind(min(position, self.done(lane)))
        self._epoch += 1
        self._changed(lane)

    def _note_overflow(self, lane: LiveLane, offsets: Sequence[int]) -> None:
        lost = self._hub.mailboxes.lost
        start, end, dropped = offsets[0], offsets[-1] + 1, len(offsets)
        if (first := lost.start_of(start)) is not None:
            start = max(first, lane.registration.since)
        known: int | None = None if lost.any_within(start, end) else dropped
        if lane.overflow is not None:
            earlier = lane.overflow[2]
            start, end = min(start, lane.overflow[0]), max(end, lane.overflow[1])
            known = None if known is None or earlier is None else known + earlier
        lane.overflow = start, end, known
        self._overflowed[lane.index] = lane

    def check_gaps(self) -> None:
        """Mailboxes may have lost something."""
        self._gaps_to_check = True
        self._wake.set()

    def replace(self, registration: Registration) -> None:
        """A durable subscription has a new registration."""
        lane = self._singles.get(registration.id)
        if isinstance(lane, DurableLane):
            mailboxes = self._hub.mailboxes
            lane.registration = registration
            lane.numbers = np.array(mailboxes.numbers_of(lane.slot), np.int64)
            if registration.since <= self._read_to(lane):
                self._rewind(lane, registration.since - 1)
            self._on_change()

    def registered(self, changes: Sequence[Registration | Block]) -> None:
        """Members of groups may have come or gone."""
        for lane in list(self._groups.values()):
            concerned = [
                each
                for each in changes
                if (
                    lane.selection.concerns(each.name)
                    if isinstance(each, Block)
                    else each.durable and lane.selection.includes(each.id)
                )
            ]
            if not concerned:
                continue
            before, numbers, done = lane.count, lane.numbers, self.done(lane)
            lane.refresh(self._hub.mailboxes)
            joined = np.setdiff1d(lane.numbers, numbers, assume_unique=True)
            since = min((each.since for each in concerned if _is_of(joined, each)), default=done + 1)
            if since <= done:
                lane.joined_late(since, done)
            if since <= self._read_to(lane):
                self._rewind(lane, since - 1)
            if before and not lane.count and lane.selection.prefix is None:
                self.remove(lane.group)
                self._notices.append(MergedEnd(group=lane.group))
            self._wake.set()

    def end_subscription(self, subscription: str) -> None:
        if subscription in self._singles:
            self.remove(subscription)
            self._notices.append(MergedEnd(subscription=subscription))
            self._wake.set()

    # --- receiving --------------------------------------------------------------------------------------

    async def close(self) -> None:
        self.end(Unavailable("the session is closed"))
        self._hub.detach_merged(self)

    async def _next(self, limit: int) -> list[MergedItem]:
        if self._gaps_to_check:
            self._gaps_to_check = False
            self._find_gaps()
        while True:
            self._announce_overflows()
            if self._notices:
                return [self._notices.popleft() for _ in range(min(limit, len(self._notices)))]
            if not self._behind and not self._queue:
                return []
            # In turn, so that nobody waits for one who has much to catch up with.
            self._is_queues_turn = not self._is_queues_turn
            if self._queue and (self._is_queues_turn or not self._behind):
                items = await self._read_queue(limit)
            else:
                items = await self._read_behind(self._behind[0], limit)
            if items:
                return items

    def _announce_overflows(self) -> None:
        """What an answer of the log was too short for comes before a gap that arose meanwhile."""
        for live in list(self._overflowed.values()):
            assert live.overflow is not None
            if self._queue.first is None or live.overflow[0] <= self._queue.first:
                self._notices.append(MergedGap(*live.overflow, "overflow", [live.registration.id], {}))
                del self._overflowed[live.index]
                live.overflow = None

    async def _read_behind(self, lane: DurableLane | GroupLane, limit: int) -> list[MergedItem]:
        run = lane.next_run(self._hub.mailboxes, limit)
        if run is None:
            lane.catch_up(self._hub.frontier)
            self._behind.popleft()
            self._changed(lane)
            return []
        self._behind.rotate(-1)
        begin, numbers = lane.position + 1, lane.numbers
        payloads = await self._hub.payloads.read(run.offsets)
        is_same = lane.position + 1 == begin and lane.numbers is numbers
        if self._lanes.get(lane.index) is not lane or not is_same:
            return []  # it is gone or rewound, or it has other members; the next call sees to it
        lane.position = run.offsets[len(payloads) - 1]
        return list(self._items(run, payloads, begin, checked=True))

    async def _read_queue(self, limit: int) -> list[MergedItem]:
        gaps = [lane.overflow[0] for lane in self._overflowed.values() if lane.overflow is not None]
        taken = self._taken = self._queue.take(limit, min(gaps, default=NEVER))
        if not taken:
            return []
        offsets = [offset for run in taken for offset in run.offsets]
        try:
            payloads = await self._hub.payloads.read(offsets)
        except BaseException:
            self._queue.put_back(taken)
            raise
        finally:
            self._taken = ()
        items: list[MergedItem] = []
        at = 0
        for place, run in enumerate(taken):
            count = len(run.offsets)
            if at + count > len(payloads):
                run, rest = run.cut(len(payloads) - at)
                self._queue.put_back([rest, *taken[place + 1 :]])
            if run.offsets:
                items += self._items(run, payloads[at : at + count], self._position + 1)
                self._position = max(self._position, run.offsets[-1])
            if at + count > len(payloads):
                break
            at += count
        return items

    def _rows(self, run: EventRun) -> Iterator[tuple[int, list[int], list[int]]]:
        """The offset, the lanes and the registrations of each event that still concerns somebody."""
        bounds, lanes, numbers = run.bounds, run.lanes, run.numbers
        is_current = run.epoch == self._epoch
        for place, offset in enumerate(run.offsets):
            start, end = bounds[place], bounds[place + 1]
            here, those = lanes[start:end], numbers[start:end]
            if not is_current:
                kept = [
                    at
                    for at, index in enumerate(here)
                    if (lane := self._lanes.get(index)) is not None and offset >= lane.tail_from
                ]
                here = [here[at] for at in kept]
                those = [those[at] for at in kept] if those else those
            if here:
                yield offset, here, those

    def _items(
        self, run: EventRun, payloads: Sequence[bytes | None], begin: int, *, checked: bool = False
    ) -> Iterator[MergedItem]:
        lost = self._hub.mailboxes.lost
        found = dict(zip(run.offsets, payloads, strict=False))
        if checked:
            run.epoch = self._epoch
        for offset, lanes, numbers in self._rows(run):
            if offset not in found:
                return
            to, groups = self._names(lanes, numbers)
            if not to and not groups:
                continue
            payload, start = found[offset], lost.start_of(offset)
            if start is None and payload is not None:
                yield MergedEvent(offset, payload, to, groups)
            elif start is None:
                yield MergedGap(offset, offset + 1, 1, "unavailable", to, groups)
            else:
                yield from self._losses(max(start, begin), offset + 1, lanes, groups)

    def _losses(
        self, start: int, end: int, lanes: Sequence[int], groups: dict[int, list[str]]
    ) -> Iterator[MergedItem]:
        """Nobody could match these events, so each subscription has a gap from its beginning on."""
        reason: GapReason = "unavailable"
        for index in lanes:
            lane = self._lanes[index]
            if isinstance(lane, DurableLane | LiveLane):
                since = lane.registration.since if end > lane.registration.since else 0
                yield MergedGap(max(start, since), end, None, reason, [lane.registration.id], {})
        if groups:
            yield MergedGap(start, end, None, reason, [], groups)

    def _names(self, lanes: Sequence[int], numbers: Sequence[int]) -> tuple[list[str], dict[int, list[str]]]:
        to: list[str] = []
        groups: dict[int, list[str]] = {}
        name_of = self._hub.mailboxes.subscription_of
        for at, index in enumerate(lanes):
            lane = self._lanes[index]
            if isinstance(lane, GroupLane):
                # A member may have left while its events waited in the queue.
                if (name := name_of(numbers[at])) is not None:
                    groups.setdefault(lane.group, []).append(name)
            else:
                assert isinstance(lane, DurableLane | LiveLane)
                to.append(lane.registration.id)
        return to, groups

    # --- gaps and acknowledgements ----------------------------------------------------------------------

    def done(self, lane: Lane) -> int:
        """The offset up to which a lane has been handed out."""
        return max(self._position, lane.tail_from - 1) if lane.is_tailing else lane.position

    def _read_to(self, lane: Lane) -> int:
        """The offset up to which a lane has been handed out, or waits in the queue."""
        return self._hub.frontier - 1 if lane.is_tailing else lane.position

    def _find_gaps(self) -> None:
        mailboxes = self._hub.mailboxes
        gapped = mailboxes.slots_with_gaps()
        if not gapped:
            return
        for lane in self._lanes.values():
            if isinstance(lane, DurableLane):
                for gap in self._new_gaps(lane, lane.slot):
                    self._notices.append(_notice(gap))
                    if not lane.is_tailing:
                        lane.position = max(lane.position, gap.end - 1)
            elif isinstance(lane, GroupLane):
                members = set(lane.slots.tolist())
                for slot in members.intersection(gapped):
                    for gap in self._new_gaps(lane, slot):
                        self._notices.append(_notice(gap, lane.group))

    def _new_gaps(self, lane: Lane, slot: int) -> Sequence[DeliveryGap]:
        after = max(self.done(lane), lane.announced.get(slot, -1))
        gaps = self._hub.mailboxes.gaps(slot, after)
        if gaps:
            lane.announced[slot] = gaps[-1].end - 1
        return gaps

    async def acknowledge(self, subscription: str, offset: int) -> None:
        """Mark everything of a subscription up to and including `offset` as done; durable on return. A no-op for a
        live one. Raises InvalidRequest for an offset not reached yet."""
        if not isinstance(self._singles.get(subscription), LiveLane):
            await self._hub.acknowledge(subscription, offset)

    async def acknowledge_group(self, group: int, offset: int) -> None:
        """The same for all members of a group, in one transaction. Raises NotFound, too."""
        lane = self._groups.get(group)
        if lane is None:
            raise NotFound(f"there is no group {group} on this connection", field="group")
        if self.done(lane) < lane.late_until:
            offset = min(offset, lane.late_since - 1)
        await self._hub.acknowledge_members(lane.selection, lane.numbers, offset)


def _is_of(numbers: Integers, change: Registration | Block) -> bool:
    """Whether any of the numbers, which ascend, belongs to a registration or a block."""
    count = change.count if isinstance(change, Block) else 1
    first, end = np.searchsorted(numbers, [change.number, change.number + count])
    return bool(first < end)


def _notice(gap: DeliveryGap, group: int | None = None) -> MergedGap:
    name = [gap.subscription]
    to, groups = (name, {}) if group is None else ([], {group: name})
    return MergedGap(gap.start, gap.end, gap.dropped, gap.reason, to, groups)
