"""Publications on their way to the site. Those of one event that wait at the same time share a message.

    add ──> waiting ──take──> a message in flight ──settle──> a receipt or an error for each
                                 ^             │
                                 └── repeats <─┘  the connection is lost, or too many events

The order is kept: messages are sent in the order of the calls, and the site publishes in the order of messages. A
publication gets its number when it is first taken, and keeps it when it is sent again: the site stores it once.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from culver.client.error_boundary import refusal
from culver.errors import ConnectionFailed, CulverError, RequestRefused
from culver.messages import Published, PublishedEach, Receipt, ServerMessage

# Several messages under way keep both sides busy, where one large message would have them wait for each other. With
# 256 callers, 64 events in a message are faster than 128.
MESSAGE_EVENTS = 64
MESSAGE_BYTES = 64 * 1024
# While so many messages are in flight, an event waits for company: a message costs as much as some thirty events.
MESSAGES_AT_ONCE = 8

# An event with more brackets has a message of its own: nesting that the site cannot read must not harm others.
_MOST_BRACKETS = 64


class Publication:
    """Events that are stored together, JSON text each. Without events, it is only a turn: see `take`."""

    __slots__ = ("answer", "events", "sent_at", "sequence")

    def __init__(self, events: Sequence[bytes], answer: "asyncio.Future[Any]") -> None:
        self.events = events
        self.answer = answer
        self.sequence = -1
        """The number of its first event, once it is taken."""
        self.sent_at: float | None = None
        """When it was sent, or was to be sent, for the first time; for its owner."""

    @property
    def end(self) -> int:
        return self.sequence + len(self.events)


class PublicationQueue:
    """Decides what the next message holds and who gets which answer. It does no I/O and has no clock.

    At most `max_in_flight` publications are in flight; further ones wait here."""

    def __init__(self, max_in_flight: int, max_events: int = MESSAGE_EVENTS) -> None:
        self._max_in_flight = max_in_flight
        self._max_events = max_events
        self._waiting: deque[Publication] = deque()
        # Those to be sent again, by their numbers.
        self._repeats: deque[Publication] = deque()
        self._next_sequence = 0
        self._in_flight = 0
        self._messages = 0

    def add(self, publication: Publication) -> None:
        self._waiting.append(publication)

    def take(self) -> list[Publication] | None:
        """The publications of the next message, several only where each is one event; None while all must wait. It
        grants the turns that come before them, and leaves out what its caller has given up."""
        while self._in_flight < self._max_in_flight:
            waiting = self._repeats or self._waiting
            if not waiting:
                return None
            head = waiting[0]
            if head.answer.done():
                waiting.popleft()
            elif not head.events:
                waiting.popleft().answer.set_result(None)
                self._in_flight += 1
            elif not _may_share(head):
                self._in_flight += 1
                self._messages += 1
                return [self._numbered(waiting.popleft())]
            elif self._messages >= MESSAGES_AT_ONCE and len(self._waiting) < self._max_events:
                return None
            else:
                return self._take_shared(waiting)
        return None

    def number(self, count: int) -> int:
        """The first of so many numbers, for a publication that goes another way."""
        first = self._next_sequence
        self._next_sequence += count
        return first

    def put_back(self, message: Sequence[Publication]) -> None:
        """Have the publications of a message sent again, before those that come later."""
        self._in_flight -= len(message)
        self._messages -= 1
        self._repeat(message)

    def release(self) -> None:
        """End a turn that `take` granted."""
        self._in_flight -= 1

    def settle(self, message: Sequence[Publication], answer: ServerMessage | CulverError) -> None:
        """Give the publications of a message their receipts or errors."""
        self._in_flight -= len(message)
        self._messages -= 1
        if isinstance(answer, RequestRefused) and self._has_too_many(message, answer):
            self._repeat(message)
        elif isinstance(answer, CulverError):
            fail(message, answer)
        elif isinstance(answer, Published) and len(message) == 1:
            _resolve(message[0], Receipt(answer.first_offset, answer.next_offset))
        elif isinstance(answer, PublishedEach) and (outcomes := _outcomes(answer, len(message))):
            for publication, outcome in zip(message, outcomes, strict=True):
                _resolve(publication, outcome)
        else:
            fail(message, ConnectionFailed("the site does not speak Culver's protocol"))

    def fail_waiting(self, error: CulverError) -> None:
        """Fail everything that is not in flight."""
        waiting = [*self._repeats, *self._waiting]
        self._repeats, self._waiting = deque(), deque()
        fail(waiting, error)

    def _repeat(self, message: Sequence[Publication]) -> None:
        for publication in message:
            insort(self._repeats, publication, key=attrgetter("sequence"))

    def _numbered(self, publication: Publication) -> Publication:
        if publication.sequence < 0:
            publication.sequence = self.number(len(publication.events))
        return publication

    def _take_shared(self, waiting: deque[Publication]) -> list[Publication]:
        room = min(self._max_events, self._max_in_flight - self._in_flight)
        message: list[Publication] = []
        size = 0
        while waiting and len(message) < room:
            head = waiting[0]
            if head.answer.done():
                waiting.popleft()
                continue
            if not _may_share(head):
                break
            size += len(head.events[0])
            if message and size > MESSAGE_BYTES:
                break
            # The numbers of a message are consecutive, but what was sent before keeps its own.
            if message and head.sequence not in (-1, message[-1].end):
                break
            message.append(self._numbered(waiting.popleft()))
        self._in_flight += len(message)
        self._messages += 1
        return message

    def _has_too_many(self, message: Sequence[Publication], error: RequestRefused) -> bool:
        """Whether the site takes fewer events in a message, and has stored none of these; learns how many."""
        limit = error.details.get("limit")
        if error.details.get("code") != "too_large" or error.field != "events" or not isinstance(limit, int):
            return False
        self._max_events = max(1, min(limit, self._max_events))
        return self._max_events < len(message)


def encode_publications(message: Sequence[Publication], publisher: str | None, reference: int) -> bytes:
    """The text of the message that `PublicationQueue.take` put together, with its numbers if it has a publisher."""
    number = b""
    if publisher is not None:
        number = b'"publisher":"%b","sequence":%d,' % (publisher.encode(), message[0].sequence)
    if len(message) == 1:
        return b'{"op":"publish","ref":%d,%b"events":[%b]}' % (
            reference,
            number,
            b",".join(message[0].events),
        )
    events = b",".join([each.events[0] for each in message])
    return b'{"op":"publish_each","ref":%d,%b"events":[%b]}' % (reference, number, events)


def fail(publications: Sequence[Publication], error: CulverError) -> None:
    """Fail each with an error of its own: a raised exception collects a traceback."""
    for publication in publications:
        if not publication.answer.done():
            copy = type(error)(error.message, field=error.field, **error.details)
            copy.__cause__ = error.__cause__
            publication.answer.set_exception(copy)


def _may_share(publication: Publication) -> bool:
    if len(publication.events) != 1:
        return False
    text = publication.events[0]
    return text.count(b"{") + text.count(b"[") <= _MOST_BRACKETS


def _resolve(publication: Publication, outcome: Receipt | CulverError) -> None:
    if publication.answer.done():
        return
    if isinstance(outcome, Receipt):
        publication.answer.set_result(outcome)
    else:
        publication.answer.set_exception(outcome)


def _outcomes(answer: PublishedEach, count: int) -> list[Receipt | CulverError] | None:
    """The outcome of each of `count` events; None where the answer does not say it for exactly these."""
    accepted = sum([following - first for first, following in answer.ranges])
    refused = {each.index: each.problem for each in answer.refused if each.index < count}
    is_strange = any(following < first for first, following in answer.ranges)
    if is_strange or accepted + len(refused) != count or len(refused) != len(answer.refused):
        return None
    offsets = _offsets(answer)
    if not refused:
        return [Receipt(offset, offset + 1) for offset in offsets]
    outcomes: list[Receipt | CulverError] = []
    for index in range(count):
        if index in refused:
            outcomes.append(refusal(_alone(refused[index])))
        else:
            offset = next(offsets)
            outcomes.append(Receipt(offset, offset + 1))
    return outcomes


def _offsets(answer: PublishedEach) -> Iterator[int]:
    for first, following in answer.ranges:
        yield from range(first, following)


def _alone(problem: dict[str, Any]) -> dict[str, Any]:
    """The problem that the event would get in a message of its own."""
    field = problem.get("field")
    return {**problem, "field": f"events[0].{field}" if field else "events[0]"}
