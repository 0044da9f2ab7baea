from culver.delivery.deliveries import DeliveryGap
from culver.delivery.mailboxes.mailbox_columns import GapLedger


def unknown(start: int, end: int) -> None:
    return None


def length(start: int, end: int) -> int:
    return end - start


def test_gaps_of_one_reason_grow_together() -> None:
    gaps = GapLedger()
    gaps.add(4, DeliveryGap("a", 1, 3, 2, "overflow"))
    gaps.add(4, DeliveryGap("a", 5, 9, 3, "overflow"))
    gaps.add(4, DeliveryGap("a", 9, 10, 1, "expired"))
    assert gaps.of(4) == (DeliveryGap("a", 1, 9, 5, "overflow"), DeliveryGap("a", 9, 10, 1, "expired"))
    assert gaps.of(5) == ()


def test_the_number_of_gaps_is_bounded_and_nothing_of_them_lost() -> None:
    gaps = GapLedger()
    for start in range(100):
        gaps.add(0, DeliveryGap("a", start, start + 1, 1, "overflow" if start % 2 else "expired"))
    kept = gaps.of(0)
    assert len(kept) == 8
    assert (kept[0].start, kept[-1].end) == (0, 100)
    assert sum(gap.dropped or 0 for gap in kept) == 100


def test_a_gap_is_announced_until_its_end_is_acknowledged() -> None:
    gaps = GapLedger()
    gaps.add(0, DeliveryGap("a", 1, 9, 5, "overflow"))
    assert gaps.after(0, -1, unknown) == [DeliveryGap("a", 1, 9, 5, "overflow")]
    assert gaps.after(0, 3, length) == [DeliveryGap("a", 4, 9, 5, "overflow")]
    assert gaps.after(0, 8, length) == []
    gaps.acknowledge(0, 5, unknown)
    assert gaps.of(0) == (DeliveryGap("a", 6, 9, None, "overflow"),)
    gaps.acknowledge(0, 8, unknown)
    assert gaps.of(0) == ()
