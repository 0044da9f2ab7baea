"""All connections with many subscriptions: finds who gets what of a new range, in one pass over its arrays.

registration   7        7        12        31        ascending; one may be there for several connections
session        0        2        0         1
lane           1        1        4         1

Groups have many members and change seldom: each has its own array, and a pass of its own.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from culver.delivery.delivery_kernels import gather
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.merged.event_queue import event_run
from culver.delivery.merged.lane import LiveLane
from culver.delivery.merged.merged_session import MergedSession
from culver.delivery.ranges.retained_ranges import RetainedRange
from culver.errors import CulverError
from culver.jit import Integers, read_only
from culver.registry import Block, Registration

_ROOM = 16_384


class SessionFanout:
    """Runs on the event loop's thread."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called when other registrations are followed than before."""
        self._on_change = on_change
        self.sessions: list[MergedSession] = []
        self._is_current = False
        self._numbers = self._sessions = self._lanes = self._floors = np.empty(0, np.int64)
        self._live: frozenset[int] = frozenset()
        self._rows = np.empty(_ROOM, np.uint16)
        self._at = np.empty(_ROOM, np.int64)

    def changed(self) -> None:
        """Some session has other lanes."""
        self._is_current = False
        self._on_change()

    def add(self, session: MergedSession) -> None:
        self.sessions.append(session)

    def remove(self, session: MergedSession) -> None:
        """A second call changes nothing."""
        if session not in self.sessions:
            return
        place = self.sessions.index(session)
        del self.sessions[place]
        if session.lanes:
            self.changed()
        else:
            # The table is made anew only where it has entries of the session: a poll of a group is a short session.
            self._sessions = self._sessions - (self._sessions > place)

    @property
    def live(self) -> frozenset[int]:
        """The live registrations among them."""
        self._refresh()
        return self._live

    def waiting_live(self) -> Iterator[int]:
        for session in self.sessions:
            if (needed := session.needed_from) is not None:
                yield needed

    def registered(self, changes: Sequence[Registration | Block]) -> None:
        for session in self.sessions:
            session.registered(changes)

    def replace(self, registration: Registration) -> None:
        for session in self.sessions:
            session.replace(registration)

    def end_subscription(self, subscription: str, numbers: range | None = None) -> None:
        """End a subscription's lanes, if its registration is one of `numbers`."""
        for session in self.sessions:
            for lane in session.lanes:
                registration = lane.registration
                if registration.id == subscription and (numbers is None or registration.number in numbers):
                    session.end_subscription(subscription)

    def connected(self) -> set[str]:
        """The durable subscriptions that were added one by one."""
        return {
            lane.registration.id
            for session in self.sessions
            for lane in session.lanes
            if lane.registration.durable
        }

    def end_all(self, error: CulverError) -> None:
        for session in self.sessions:
            session.end(error)

    def check_gaps(self) -> None:
        for session in self.sessions:
            session.check_gaps()

    def accept(self, item: RetainedRange, mailboxes: Mailboxes) -> None:
        """Tell every session what a new range has for its lanes that are tailing."""
        if not self.sessions:
            return
        self._refresh()
        # Mostly nothing of a new range is acknowledged, and there is no need to look at the floor of each member.
        is_new = mailboxes.highest_floor <= item.start
        parts: dict[int, list[tuple[Integers, Integers, Integers]]] = {}
        if len(self._numbers):
            floors = self._floors
            if not is_new:
                floors = np.maximum(floors, _floors_of(self._numbers, mailboxes))
            rows, at = self._gather(item, self._numbers, floors)
            if len(rows):
                owners = self._sessions[at]
                order = np.argsort(owners, kind="stable")
                owners, rows, at = owners[order], rows[order], at[order]
                starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
                for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
                    mine = at[start:end]
                    part = rows[start:end], self._lanes[mine], self._numbers[mine]
                    parts.setdefault(int(owners[start]), []).append(part)
        for place, session in enumerate(self.sessions):
            for lane in session.groups:
                if lane.is_tailing and len(lane.numbers):
                    numbers = lane.numbers
                    floors = np.zeros_like(numbers) if is_new else _floors_of(numbers, mailboxes)
                    rows, at = self._gather(item, numbers, floors)
                    if len(rows):
                        part = rows, np.full(len(rows), lane.index), lane.numbers[at]
                        parts.setdefault(place, []).append(part)
        for place, pieces in parts.items():
            session = self.sessions[place]
            rows, lanes, numbers = (
                pieces[0] if len(pieces) == 1 else map(np.concatenate, zip(*pieces, strict=True))
            )
            offsets = rows + item.notifications.start
            session.push(event_run(offsets, lanes, numbers if session.groups else None))

    def _gather(self, item: RetainedRange, numbers: Integers, floors: Integers) -> tuple[Integers, Integers]:
        n = item.notifications
        arrays = read_only(n.numbers), read_only(n.bounds), read_only(n.rows)
        window = n.start, item.start - n.start, n.end - n.start
        found = gather(*arrays, numbers, floors, *window, self._rows, self._at)
        if found > len(self._rows):
            self._rows, self._at = np.empty(found, np.uint16), np.empty(found, np.int64)
            gather(*arrays, numbers, floors, *window, self._rows, self._at)
        return self._rows[:found].astype(np.int64), self._at[:found].copy()

    def _refresh(self) -> None:
        if self._is_current:
            return
        self._is_current = True
        entries = [
            (number, place, lane.index, lane.tail_from)
            for place, session in enumerate(self.sessions)
            for lane in session.lanes
            if lane.is_tailing
            for number in lane.numbers.tolist()
        ]
        columns = np.array(sorted(entries), np.int64).reshape(-1, 4).T.copy()
        self._numbers, self._sessions, self._lanes, self._floors = columns
        self._live = frozenset(
            lane.registration.number
            for session in self.sessions
            for lane in session.lanes
            if isinstance(lane, LiveLane)
        )


def _floors_of(numbers: Integers, mailboxes: Mailboxes) -> Integers:
    """The lowest offset that each registration can still deliver; 0 where it has no mailbox."""
    slots = mailboxes.slots_of(numbers)
    floors: Integers = np.where(slots == NONE, 0, mailboxes.columns.floor[slots])
    return floors
