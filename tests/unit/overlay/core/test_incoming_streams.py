from itertools import permutations

import pytest

from culver.overlay.core.incoming_streams import AnswerNeeded, IncomingStreams, StreamPiece
from culver.overlay.core.overlay_messages import StreamPart
from support.linked_nodes import PARIS

MEGABYTE = bytes(1 << 20)


def events(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in offsets]


def piece(end: int, *offsets: int) -> StreamPiece:
    return StreamPiece(end, tuple(events(*offsets)))


def whole(
    streams: IncomingStreams, previous: int, *offsets: int, now: float = 0.0
) -> StreamPiece | AnswerNeeded | None:
    """Receive a window of one packet."""
    part = StreamPart(previous, offsets[-1] + 1, 1)
    return streams.receive(PARIS, offsets[-1] + 1000, part, events(*offsets), now)


@pytest.mark.parametrize("order", list(permutations([(3, 9), (5,), (8,)])))
def test_a_window_is_put_together_from_parts_in_any_order(order: tuple[tuple[int, ...], ...]) -> None:
    streams = IncomingStreams({})
    part = StreamPart(0, 10, 3)
    for offsets in order[:-1]:
        assert streams.receive(PARIS, 1, part, events(*offsets), 0.0) is None
    assert streams.receive(PARIS, 1, part, events(*order[-1]), 0.0) == piece(10, 3, 5, 8, 9)
    assert streams.durable(PARIS) == 0
    assert streams.appended(PARIS, 10) is None
    assert streams.positions() == {PARIS: 10}


def test_a_doubled_part_does_not_complete_a_window() -> None:
    streams = IncomingStreams({})
    for _ in range(3):
        assert streams.receive(PARIS, 1, StreamPart(0, 10, 2), events(9), 0.0) is None
    assert streams.receive(PARIS, 1, StreamPart(0, 10, 2), events(4), 0.0) == piece(10, 4, 9)


def test_a_hole_is_asked_for_five_times_a_second_at_most() -> None:
    streams = IncomingStreams({PARIS: 4})
    assert whole(streams, 7, 9, now=1.0) == AnswerNeeded(4, wants_more=True)
    assert whole(streams, 7, 9, now=1.1) is None
    assert whole(streams, 7, 9, now=1.25) == AnswerNeeded(4, wants_more=True)


def test_what_the_site_has_is_dropped_and_acknowledged_again() -> None:
    streams = IncomingStreams({PARIS: 10})
    assert whole(streams, 0, 3, 9) == AnswerNeeded(10, wants_more=False)
    assert whole(streams, 0, 3, 9, 12) == piece(13, 12)


def test_nothing_is_acknowledged_before_it_is_on_disk() -> None:
    streams = IncomingStreams({})
    assert whole(streams, 0, 1) == piece(2, 1)
    assert whole(streams, 0, 1) is None
    assert streams.durable(PARIS) == 0
    assert whole(streams, 9, 9) == AnswerNeeded(0, wants_more=True)


def test_the_log_gets_one_piece_at_a_time() -> None:
    streams = IncomingStreams({})
    assert whole(streams, 0, 1) == piece(2, 1)
    assert whole(streams, 2, 3) is None
    assert whole(streams, 4, 6) is None
    assert streams.appended(PARIS, 2) == piece(7, 3, 6)
    assert streams.durable(PARIS) == 2
    assert streams.appended(PARIS, 7) is None
    assert streams.durable(PARIS) == 7


def test_a_refusal_of_the_disk_gives_up_everything_behind_it() -> None:
    streams = IncomingStreams({PARIS: 1})
    assert whole(streams, 1, 1) == piece(2, 1)
    assert whole(streams, 2, 3) is None
    assert streams.receive(PARIS, 50, StreamPart(4, 9, 2), events(5), 0.0) is None
    streams.failed(PARIS)
    assert streams.receive(PARIS, 50, StreamPart(4, 9, 2), events(8), 0.0) == AnswerNeeded(1, wants_more=True)
    assert whole(streams, 1, 1, 3) == piece(4, 1, 3)
    assert streams.durable(PARIS) == 1


@pytest.mark.parametrize("offsets", [(), (3,), (12,), (3, 12)])
def test_a_window_that_does_not_end_as_it_says_is_asked_for_again(offsets: tuple[int, ...]) -> None:
    streams = IncomingStreams({})
    answer = streams.receive(PARIS, 1, StreamPart(0, 10, 1), events(*offsets), 0.0)
    assert answer == AnswerNeeded(0, wants_more=True)
    assert whole(streams, 0, 3, 9) == piece(10, 3, 9)


def test_events_beyond_the_end_of_their_window_are_dropped() -> None:
    streams = IncomingStreams({})
    assert streams.receive(PARIS, 1, StreamPart(0, 10, 1), events(9, 10, 11), 0.0) == piece(10, 9)


def test_a_stream_skips_what_its_origin_does_not_have() -> None:
    streams = IncomingStreams({PARIS: 4})
    assert streams.skip(PARIS, 0, 9) == (4, 9)
    assert streams.skip(PARIS, 0, 9) is None
    assert streams.durable(PARIS) == 9
    assert whole(streams, 9, 9) == piece(10, 9)


def test_nothing_is_skipped_while_the_disk_is_at_work() -> None:
    streams = IncomingStreams({})
    assert whole(streams, 0, 1) == piece(2, 1)
    assert streams.skip(PARIS, 2, 9) is None
    streams.appended(PARIS, 2)
    assert streams.skip(PARIS, 5, 9) == (5, 9)


def test_a_window_without_an_end_does_not_fill_the_memory() -> None:
    streams = IncomingStreams({})
    for offset in range(40):
        streams.receive(PARIS, 1, StreamPart(0, 1000, 999), [(offset, MEGABYTE)], 0.0)
        assert streams.held_bytes(PARIS) <= 16 << 20


def test_windows_that_wait_for_the_disk_do_not_fill_the_memory() -> None:
    streams = IncomingStreams({})
    for offset in range(40):
        streams.receive(PARIS, offset, StreamPart(offset, offset + 1, 1), [(offset, MEGABYTE)], 0.0)
        assert streams.held_bytes(PARIS) <= 16 << 20
    waiting = streams.appended(PARIS, 1)
    assert waiting is not None
    assert len(waiting.events) == 15
    streams.failed(PARIS)
    assert streams.held_bytes(PARIS) == 0


def test_a_forgotten_origin_begins_at_its_start() -> None:
    streams = IncomingStreams({PARIS: 4})
    streams.forget(PARIS)
    assert streams.durable(PARIS) == 0
    assert streams.appended(PARIS, 9) is None
    streams.failed(PARIS)
    assert streams.positions() == {}


def test_a_forgotten_stream_goes_on_from_where_it_was() -> None:
    streams = IncomingStreams({PARIS: 12})
    streams.forget(PARIS)
    assert (PARIS in streams, streams.positions()) == (False, {})
    streams.resume(PARIS)
    streams.resume(PARIS)
    assert streams.positions() == {PARIS: 12}
