import random

import pytest
from hypothesis import given, strategies as st

from culver.channels.core.envelope import Envelope, EnvelopeKind
from culver.channels.core.message_order import HOLD_SECONDS, LostMessages, MessageOrder

C = b"news"


def message(sequence: int, publisher: int = 1, epoch: int = 1, previous: int | None = None) -> Envelope:
    before = sequence - 1 if previous is None else previous
    return Envelope(
        EnvelopeKind.MESSAGE, publisher, epoch, 0, sequence, before, b"%d" % sequence, forwarded=False
    )


def offer(
    order: MessageOrder, envelope: Envelope, now: float = 0.0, *, may_reorder: bool = False
) -> list[bytes | LostMessages]:
    return [shown(item) for item in order.offer(C, envelope, now, may_reorder=may_reorder)]


def shown(item: Envelope | LostMessages) -> bytes | LostMessages:
    return item if isinstance(item, LostMessages) else item.payload


def tick(order: MessageOrder, now: float) -> list[tuple[bytes, bytes | LostMessages]]:
    return [(channel, shown(item)) for channel, item in order.tick(now)]


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_shuffled_and_copied_messages_are_delivered_once_and_in_order(count: int, rng: random.Random) -> None:
    order = MessageOrder()
    order.begin(C, {})
    arrivals = [message(sequence) for sequence in range(1, count + 1) for _ in range(rng.randint(1, 3))]
    rng.shuffle(arrivals)
    delivered = [item for envelope in arrivals for item in offer(order, envelope, may_reorder=True)]
    assert delivered == [b"%d" % sequence for sequence in range(1, count + 1)]
    assert order.duplicates == len(arrivals) - count
    assert not order.waiting


@given(st.sets(st.integers(1, 30)), st.randoms(use_true_random=False))
def test_every_message_is_delivered_or_lies_in_a_gap(lost: set[int], rng: random.Random) -> None:
    order = MessageOrder()
    order.begin(C, {})
    arrivals = [sequence for sequence in range(1, 31) if sequence not in lost]
    rng.shuffle(arrivals)
    items = [item for sequence in arrivals for item in offer(order, message(sequence), may_reorder=True)]
    order.tell(C, 1, 1, 30, 0.0)
    items += [item for _, item in tick(order, HOLD_SECONDS + 0.01)]
    delivered = [int(item) for item in items if isinstance(item, bytes)]
    missing = {
        number for gap in items if isinstance(gap, LostMessages) for number in range(gap.first, gap.last + 1)
    }
    assert delivered == sorted(set(range(1, 31)) - lost)
    assert missing == lost
    assert not order.waiting


def test_a_hole_is_reported_when_it_is_overdue_and_not_before() -> None:
    order = MessageOrder()
    assert offer(order, message(1)) == [b"1"]
    assert offer(order, message(3), 10.0) == []
    assert tick(order, 10.0 + HOLD_SECONDS - 0.01) == []
    assert tick(order, 10.0 + HOLD_SECONDS) == [(C, LostMessages(C, 1, 1, 2, 2)), (C, b"3")]
    assert offer(order, message(2), 12.0) == []


def test_a_heartbeat_reveals_a_lost_last_message() -> None:
    order = MessageOrder()
    offer(order, message(1))
    order.tell(C, 1, 1, 2, 1.0)
    assert tick(order, 1.0 + HOLD_SECONDS) == [(C, LostMessages(C, 1, 1, 2, 2))]
    order.tell(C, 1, 1, 2, 3.0)
    assert not order.waiting


def test_a_subscriber_that_comes_in_the_middle_begins_with_what_it_hears_first() -> None:
    order = MessageOrder()
    assert offer(order, message(50)) == [b"50"]
    assert offer(order, message(51)) == [b"51"]


def test_first_messages_settle_where_they_may_arrive_in_any_order() -> None:
    order = MessageOrder()
    assert offer(order, message(51), may_reorder=True) == []
    assert offer(order, message(50), may_reorder=True) == []
    assert tick(order, 1.0) == [(C, b"50"), (C, b"51")]


def test_a_steady_subscriber_misses_the_lost_first_message_of_a_new_publisher() -> None:
    order = MessageOrder()
    order.begin(C, {9: (1, 4)})
    offer(order, message(2), 0.0)
    assert tick(order, HOLD_SECONDS) == [(C, LostMessages(C, 1, 1, 1, 1)), (C, b"2")]
    assert offer(order, message(5, publisher=9)) == [b"5"]


def test_a_new_epoch_begins_anew_and_old_messages_are_copies() -> None:
    order = MessageOrder()
    offer(order, message(7))
    offer(order, message(9))
    assert offer(order, message(1, epoch=2)) == [LostMessages(C, 1, 1, 8, 8), b"9", b"1"]
    assert offer(order, message(10, epoch=1)) == []


def test_chained_ids_have_holes_that_are_no_losses() -> None:
    order = MessageOrder()
    assert offer(order, message(10, previous=0)) == [b"10"]
    assert offer(order, message(25, previous=10)) == [b"25"]
    assert offer(order, message(40, previous=30)) == []
    assert tick(order, HOLD_SECONDS) == [(C, LostMessages(C, 1, 1, 26, 30)), (C, b"40")]


@pytest.mark.slow(seconds=2)
def test_what_waits_is_bounded() -> None:
    order = MessageOrder()
    offer(order, message(1))
    items = [item for sequence in range(3, 10_010) for item in offer(order, message(sequence))]
    assert items[0] == LostMessages(C, 1, 1, 2, 2)
    assert items[1] == b"3"


def test_a_channel_that_ends_leaves_nothing_behind() -> None:
    order = MessageOrder()
    offer(order, message(1))
    offer(order, message(3))
    order.end(C)
    assert not order.waiting
    assert offer(order, message(8)) == [b"8"]


def test_an_old_tail_of_a_publisher_that_was_never_heard_is_no_loss_before_the_channel_is_steady() -> None:
    order = MessageOrder()
    order.compare(C, {1: (1, 1)}, 0.0)
    assert offer(order, message(3), 0.1) == [b"3"]
    # From now on it is heard, so a tail counts.
    order.compare(C, {1: (1, 5)}, 0.2)
    assert tick(order, 0.2 + HOLD_SECONDS) == [(C, LostMessages(C, 1, 1, 4, 5))]


def test_a_tail_of_a_publisher_that_a_steady_channel_has_never_heard_is_a_loss() -> None:
    order = MessageOrder()
    order.begin(C, {})
    order.compare(C, {1: (1, 2)}, 0.0)
    assert tick(order, HOLD_SECONDS) == [(C, LostMessages(C, 1, 1, 1, 2))]
