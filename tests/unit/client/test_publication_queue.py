"""The queue of publications: what a message holds, and who gets which answer."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from culver.client.publication_queue import (
    MESSAGE_BYTES,
    MESSAGES_AT_ONCE,
    Publication,
    PublicationQueue,
    encode_publications,
)
from culver.errors import ConnectionFailed, RequestRefused
from culver.messages import Pong, Published, PublishedEach, Receipt, RefusedEvent

PROBLEM = {"code": "invalid_event", "title": "An event is invalid", "detail": "no", "field": "price"}

Make = Callable[..., Publication]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes publications of events, each of which is a number."""
    loop = asyncio.new_event_loop()

    def publication(*numbers: int, padding: int = 0) -> Publication:
        events = [b'{"n":%d%b}' % (number, b" " * padding) for number in numbers]
        return Publication(events, loop.create_future())

    yield publication
    loop.close()


def queue_of(publications: list[Publication], max_in_flight: int = 1000, **options: int) -> PublicationQueue:
    queue = PublicationQueue(max_in_flight, **options)
    for publication in publications:
        queue.add(publication)
    return queue


def taken(queue: PublicationQueue) -> list[list[list[int]]]:
    """The numbers of the events in all the messages that may be sent now."""
    messages = []
    while (message := queue.take()) is not None:
        messages.append([[msgspec.json.decode(text)["n"] for text in each.events] for each in message])
    return messages


def outcome(publication: Publication) -> Any:
    error = publication.answer.exception()
    return publication.answer.result() if error is None else error


def test_events_that_wait_together_share_messages_in_their_order(make: Make) -> None:
    queue = queue_of([make(n) for n in range(7)], max_events=3)
    assert taken(queue) == [[[0], [1], [2]], [[3], [4], [5]], [[6]]]


def test_publication_of_several_events_has_its_own_message_in_its_place(make: Make) -> None:
    queue = queue_of([make(0), make(1), make(2, 3), make(4, 5), make(6)])
    assert taken(queue) == [[[0], [1]], [[2, 3]], [[4, 5]], [[6]]]


def test_message_has_a_bounded_size(make: Make) -> None:
    third = MESSAGE_BYTES // 3
    queue = queue_of([make(0, padding=third), make(1, padding=third), make(2, padding=third), make(3)])
    assert taken(queue) == [[[0], [1]], [[2], [3]]]
    assert taken(queue_of([make(0, padding=2 * MESSAGE_BYTES), make(1)])) == [[[0]], [[1]]]


def test_deeply_nested_event_has_a_message_of_its_own(make: Make) -> None:
    deep = make(1)
    deep.events = [b'{"n":1,"a":' + b"[" * 100 + b"]" * 100 + b"}"]
    assert taken(queue_of([make(0), deep, make(2)])) == [[[0]], [[1]], [[2]]]


def test_no_more_publications_are_in_flight_than_allowed(make: Make) -> None:
    queue = queue_of([make(n) for n in range(5)], max_in_flight=3)
    message = queue.take()
    assert message is not None
    assert len(message) == 3
    assert queue.take() is None
    queue.settle(message, PublishedEach(ranges=[(10, 13)]))
    assert taken(queue) == [[[3], [4]]]


def test_event_waits_for_company_while_many_messages_are_in_flight(make: Make) -> None:
    queue = queue_of([], max_events=4)
    first = make(0)
    queue.add(first)
    message = queue.take()
    assert message == [first]
    for number in range(1, MESSAGES_AT_ONCE):
        queue.add(make(number))
        assert len(taken(queue)) == 1
    queue.add(make(100))
    queue.add(make(101))
    assert taken(queue) == []
    queue.settle(message, Published(0, 1))
    assert taken(queue) == [[[100], [101]]]
    for number in range(4):
        queue.add(make(number))
    assert taken(queue) == [[[0], [1], [2], [3]]]  # a full message need not wait


def test_publication_whose_caller_gave_up_is_not_sent(make: Make) -> None:
    publications = [make(n) for n in range(4)]
    publications[0].answer.cancel()
    publications[2].answer.cancel()
    assert taken(queue_of(publications)) == [[[1], [3]]]


def test_turn_is_granted_in_its_place_and_counts_until_it_ends(make: Make) -> None:
    before, turn, after = make(0), make(), make(1)
    queue = queue_of([before, turn, after], max_in_flight=1)
    message = queue.take()
    assert message == [before]
    assert not turn.answer.done()
    queue.settle(message, Published(5, 6))
    assert queue.take() is None
    assert turn.answer.done()
    queue.release()
    assert queue.take() == [after]


def test_each_gets_its_own_receipt_or_refusal(make: Make) -> None:
    publications = [make(n) for n in range(5)]
    queue = queue_of(publications)
    message = queue.take()
    assert message is not None
    publications[4].answer.cancel()
    refused = [RefusedEvent(1, PROBLEM), RefusedEvent(2, {"code": "too_large", "title": "too large"})]
    queue.settle(message, PublishedEach(ranges=[(100, 101), (200, 202)], refused=refused))
    assert outcome(publications[0]) == Receipt(100, 101)
    assert outcome(publications[3]) == Receipt(200, 201)
    first, second = outcome(publications[1]), outcome(publications[2])
    assert isinstance(first, RequestRefused)
    assert (first.message, first.field, first.details["code"]) == ("no", "events[0].price", "invalid_event")
    assert (second.field, second.details["code"]) == ("events[0]", "too_large")


def test_failure_of_a_message_fails_each_with_an_error_of_its_own(make: Make) -> None:
    publications = [make(0), make(1)]
    queue = queue_of(publications)
    message = queue.take()
    assert message is not None
    cause = OSError("gone")
    error = ConnectionFailed("lost", url="http://site")
    error.__cause__ = cause
    queue.settle(message, error)
    first, second = map(outcome, publications)
    assert first is not second
    assert (str(first), first.__cause__, first.details) == ("lost", cause, {"url": "http://site"})
    assert isinstance(second, ConnectionFailed)


@pytest.mark.parametrize(
    "answer",
    [
        Pong(),
        Published(0, 2),
        PublishedEach(ranges=[(0, 1)]),
        PublishedEach(ranges=[(0, 3)]),
        PublishedEach(ranges=[(5, 1), (0, 6)]),
        PublishedEach(ranges=[(0, 1)], refused=[RefusedEvent(7, PROBLEM)]),
        PublishedEach(ranges=[], refused=[RefusedEvent(0, PROBLEM), RefusedEvent(0, PROBLEM)]),
    ],
)
def test_answer_that_does_not_fit_is_a_failed_connection(make: Make, answer: Any) -> None:
    publications = [make(0), make(1)]
    queue = queue_of(publications)
    message = queue.take()
    assert message is not None
    queue.settle(message, answer)
    assert all(isinstance(outcome(each), ConnectionFailed) for each in publications)


def test_site_that_takes_fewer_events_gets_them_in_smaller_messages(make: Make) -> None:
    queue = queue_of([make(n) for n in range(5)])
    message = queue.take()
    assert message is not None
    queue.settle(message, RequestRefused("at most 2", field="events", code="too_large", limit=2))
    assert taken(queue) == [[[0], [1]], [[2], [3]], [[4]]]


def test_what_waits_fails_on_demand(make: Make) -> None:
    publications = [make(n) for n in range(3)]
    queue = queue_of(publications, max_in_flight=1)
    assert queue.take() == publications[:1]
    queue.fail_waiting(ConnectionFailed("refused"))
    assert not publications[0].answer.done()
    assert all(isinstance(outcome(each), ConnectionFailed) for each in publications[1:])
    assert queue.take() is None


def test_one_publication_is_a_publish_and_several_are_a_publish_each(make: Make) -> None:
    one = msgspec.json.decode(encode_publications([make(1, 2)], None, 7))
    assert one == {"op": "publish", "ref": 7, "events": [{"n": 1}, {"n": 2}]}
    several = msgspec.json.decode(encode_publications([make(1), make(2)], None, 8))
    assert several == {"op": "publish_each", "ref": 8, "events": [{"n": 1}, {"n": 2}]}
