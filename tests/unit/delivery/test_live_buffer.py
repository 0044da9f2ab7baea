import random

import numpy as np
import pytest

from culver.delivery.deliveries import DeliveryGap
from culver.delivery.live_buffer import LiveBuffer
from culver.delivery.ranges.lost_events import LostEvents


def buffer_of(capacity: int, since: int = 0, lost: LostEvents | None = None) -> LiveBuffer:
    return LiveBuffer("live-1", capacity, since, lost or LostEvents())


def push(buffer: LiveBuffer, *offsets: int) -> None:
    buffer.push(np.array(offsets, np.int64))


def test_offsets_come_out_in_order() -> None:
    buffer = buffer_of(10)
    push(buffer, 1, 2)
    push(buffer, 5)
    assert buffer.first == 1
    assert buffer.take(2) == ([], [1, 2])
    assert buffer.take(2) == ([], [5])
    assert buffer.take(2) == ([], [])
    assert buffer.first is None


def test_gaps_of_one_overflow_are_counted_together_until_they_are_taken() -> None:
    buffer = buffer_of(2)
    push(buffer, 1, 2, 3)
    push(buffer, 7)
    assert buffer.take(1) == ([DeliveryGap("live-1", 1, 3, 2, "overflow")], [])
    push(buffer, 9)
    assert buffer.take(5) == ([DeliveryGap("live-1", 3, 4, 1, "overflow")], [7, 9])


def test_what_is_put_back_comes_again() -> None:
    buffer = buffer_of(2, since=10)
    buffer.start_after(3)
    push(buffer, 10, 11, 12)
    taken = buffer.take(10)
    assert taken == (
        [DeliveryGap("live-1", 4, 10, None, "disconnected"), DeliveryGap("live-1", 10, 11, 1, "overflow")],
        [11, 12],
    )
    buffer.put_back(*taken)
    assert buffer.take(10) == taken


def test_what_is_put_back_after_an_overflow_is_part_of_the_gap() -> None:
    buffer = buffer_of(2)
    push(buffer, 1, 2)
    gaps, offsets = buffer.take(10)
    push(buffer, 3, 4, 5)
    buffer.put_back(gaps, offsets)
    assert buffer.take(10) == ([DeliveryGap("live-1", 1, 4, 3, "overflow")], [4, 5])


def test_what_does_not_fit_any_more_when_put_back_is_dropped() -> None:
    buffer = buffer_of(2)
    push(buffer, 1, 2)
    gaps, offsets = buffer.take(10)
    push(buffer, 3)
    buffer.put_back(gaps, offsets)
    assert buffer.take(10) == ([DeliveryGap("live-1", 1, 2, 1, "overflow")], [2, 3])


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_is_delivered_or_counted_as_dropped_exactly_once(seed: int) -> None:
    choose = random.Random(seed)
    buffer = buffer_of(choose.choice((1, 3, 10)))
    position, delivered, dropped, last = 0, 0, 0, -1
    for _ in range(500):
        count = choose.choice((0, 1, 2, 20))
        push(buffer, *range(position, position + count))
        position += count
        gaps, offsets = buffer.take(choose.randrange(1, 6))
        if choose.random() < 0.3:
            push(buffer, position)
            position += 1
            buffer.put_back(gaps, offsets)
            continue
        for gap in gaps:
            assert gap.start == last + 1
            assert gap.dropped == gap.end - gap.start
            dropped += gap.dropped
            last = gap.end - 1
        for offset in offsets:
            assert offset == last + 1
            delivered += 1
            last = offset
    gaps, offsets = buffer.take(1000)
    assert delivered + dropped + len(offsets) + sum(gap.dropped or 0 for gap in gaps) == position
