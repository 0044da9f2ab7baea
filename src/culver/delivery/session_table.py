"""Who is connected to which subscription, and what waits for each live subscriber.

registration number   7  12  31      sorted: one intersection finds whom a range concerns
                      |   |   '----> live: a buffer from registration on, and a session once it is connected
                      '---'--------> durable: the set of sessions of one subscription, under each of its numbers

Connections with many subscriptions are in `merged.session_fanout`. Their live subscriptions have a buffer here, too,
which is filled until they are connected.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from culver.delivery.delivery_kernels import meet
from culver.delivery.live_buffer import LiveBuffer
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.merged.session_fanout import SessionFanout
from culver.delivery.ranges.retained_ranges import RetainedRange
from culver.delivery.subscriber_sessions import DurableSession, LiveSession, SubscriberSession
from culver.errors import CulverError, NotFound
from culver.jit import read_only
from culver.registry import Registration


class SessionTable:
    """Runs on the event loop's thread."""

    def __init__(self) -> None:
        self._buffers: dict[int, LiveBuffer] = {}
        self._live: dict[int, LiveSession] = {}
        self._durable: dict[str, set[DurableSession]] = {}
        self._durable_numbers: dict[int, set[DurableSession]] = {}  # the same sets
        self._connected: NDArray[np.int64] | None = None  # sorted; None where it must be made anew
        self.fanout = SessionFanout(self._changed)

    def _changed(self) -> None:
        self._connected = None

    @property
    def sessions(self) -> int:
        merged = sum(len(each.lanes) + len(each.groups) for each in self.fanout.sessions)
        return len(self._live) + sum(map(len, self._durable.values())) + merged

    @property
    def live_subscriptions(self) -> int:
        return len(self._buffers)

    def knows_live(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these registrations are live ones."""
        if not self._buffers:
            return np.zeros(len(numbers), np.bool_)
        return np.isin(numbers, list(self._buffers))

    def buffer(self, number: int) -> LiveBuffer | None:
        """The buffer of a live registration; None where there is no such registration, or it has ended."""
        return self._buffers.get(number)

    def is_connected(self, number: int) -> bool:
        return number in self._live or number in self.fanout.live

    def start_live(self, number: int, buffer: LiveBuffer) -> None:
        self._buffers[number] = buffer
        self._connected = None

    def end_live(self, registration: Registration) -> None:
        if self._buffers.pop(registration.number, None) is not None:
            self._connected = None
        session = self._live.pop(registration.number, None)
        if session is not None:
            session.end(ended(registration.id))
        self.fanout.end_subscription(registration.id)

    def close_live(self, number: int) -> None:
        """A connection that had a live subscription is gone."""
        if self._buffers.pop(number, None) is not None:
            self._connected = None

    def add_live(self, session: LiveSession) -> None:
        self._live[session.registration.number] = session

    def add_durable(self, session: DurableSession, numbers: Iterable[int]) -> None:
        """Add a session that receives what is for any of these registrations."""
        sessions = self._durable.setdefault(session.registration.id, set())
        sessions.add(session)
        for number in numbers:
            self._durable_numbers[number] = sessions
        self._connected = None

    def remove(self, session: SubscriberSession) -> None:
        """Remove a closed session, and with a live one its subscription. A second call changes nothing."""
        registration = session.registration
        if isinstance(session, LiveSession):
            if self._live.get(registration.number) is session:
                del self._live[registration.number]
                self._buffers.pop(registration.number, None)
                self._connected = None
            return
        assert isinstance(session, DurableSession)
        sessions = self._durable.get(registration.id)
        if sessions is None or session not in sessions:
            return
        sessions.remove(session)
        if not sessions:
            del self._durable[registration.id]
            for number in [number for number, same in self._durable_numbers.items() if same is sessions]:
                del self._durable_numbers[number]
            self._connected = None

    def replace(self, registration: Registration) -> None:
        """Tell the sessions of a durable subscription that it has a new registration."""
        sessions = self._durable.get(registration.id)
        if sessions:
            self._durable_numbers[registration.number] = sessions
            self._connected = None
            for session in sessions:
                session.replace(registration)
        self.fanout.replace(registration)

    def connected_subscriptions(self) -> tuple[str, ...]:
        return tuple({*self._durable, *self.fanout.connected()})

    def end_durable(self, subscription: str, numbers: range) -> None:
        """End the sessions of a subscription whose registration is one of these."""
        for session in tuple(self._durable.get(subscription, ())):
            if session.registration.number in numbers:
                session.end(ended(subscription))
                self.remove(session)
        self.fanout.end_subscription(subscription, numbers)

    def end_all(self, error: CulverError) -> None:
        for live in self._live.values():
            live.end(error)
        for sessions in self._durable.values():
            for durable in sessions:
                durable.end(error)
        self.fanout.end_all(error)

    def accept(self, item: RetainedRange, mailboxes: Mailboxes) -> None:
        """Fill the live buffers that a range concerns, and wake the sessions."""
        for number, place in self._concerned(item.notifications.numbers):
            buffer = self._buffers.get(number)
            if buffer is not None:
                buffer.push(_offsets(item, place))
                if number in self._live:
                    self._live[number].wake()
            for session in self._durable_numbers.get(number, ()):
                session.wake()
        self.fanout.accept(item, mailboxes)

    def wake(self, subscriptions: Sequence[str]) -> None:
        for subscription in subscriptions:
            for session in self._durable.get(subscription, ()):
                session.wake()
        if subscriptions:
            self.fanout.check_gaps()

    def waiting_live(self) -> Iterator[int]:
        """The lowest offset that each live subscriber still waits for."""
        for number, buffer in self._buffers.items():
            session = self._live.get(number)
            needed = session.needed_from if session is not None else buffer.first
            if needed is not None:
                yield needed
        yield from self.fanout.waiting_live()

    def _concerned(self, numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The numbers of a range that somebody is connected for, each with its place there."""
        connected = self._connected
        if connected is None:
            every = np.array(sorted({*self._buffers, *self._durable_numbers} - self.fanout.live), np.int64)
            self._connected = connected = read_only(every)
        places = np.empty(min(len(numbers), len(connected)), np.int64)
        found = places[: meet(read_only(numbers), connected, places)]
        return list(zip(numbers[found].tolist(), found.tolist(), strict=True))


def _offsets(item: RetainedRange, place: int) -> NDArray[np.int64]:
    """The offsets of the registration at a place of a range, as far as the range answers for them."""
    n = item.notifications
    offsets = n.rows[n.bounds[place] : n.bounds[place + 1]].astype(np.int64) + n.start
    return offsets[offsets.searchsorted(item.start) :] if item.start > n.start else offsets


def ended(subscription: str) -> NotFound:
    return NotFound(f"subscription {subscription!r} has ended")
