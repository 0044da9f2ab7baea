"""Small ranges that become one, against plain lists."""

import random

import pytest

from culver.delivery.ranges.small_ranges import Loose
from culver.matching.groups import MOST_EVENTS
from support.notifications import make_notifications, rows_by_number


@pytest.mark.parametrize("highest", [3, 500, 2**20, 2**40], ids=["few", "some", "many", "far apart"])
@pytest.mark.parametrize("seed", range(5))
def test_what_becomes_one_has_the_rows_and_sizes_of_all(seed: int, highest: int) -> None:
    choose = random.Random(seed)
    loose = Loose()
    at = 1_000
    for _ in range(5):  # with the same memory
        expected: dict[int, list[int]] = {}
        sizes: list[int] = []
        start = at
        for _ in range(choose.randrange(1, 40)):
            end = at + choose.randrange(1, 9)
            numbers = {choose.randrange(1, highest) for _ in range(choose.randrange(12))}
            rows = {n: [o for o in range(at, end) if choose.random() < 0.5] for n in numbers}
            own = [choose.randrange(1_000) for _ in range(at, end)]
            for number, offsets in rows.items():
                expected.setdefault(number, []).extend(offsets)
            sizes += own
            loose.add(make_notifications(at, end, rows, own, version=at))
            at = end
        content = loose.together()
        assert len(loose) == 0
        assert (content.start, content.end) == (start, at)
        assert rows_by_number(content) == {n: offsets for n, offsets in expected.items() if offsets}
        assert content.numbers.tolist() == sorted(content.numbers.tolist())
        assert content.sizes.tolist() == sizes
        assert content.index_version > 0


def test_it_begins_anew_where_one_range_could_not_hold_all_events() -> None:
    loose = Loose()
    loose.add(make_notifications(0, 10, {1: [3]}))
    loose.add(make_notifications(10, MOST_EVENTS + 1, {2: [20]}))
    assert len(loose) == 1
    assert rows_by_number(loose.together()) == {2: [20]}
