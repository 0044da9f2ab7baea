"""Ranges give every registration its rows, however they are merged, cut and put together."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from culver.delivery.delivery_kernels import count, meet
from culver.delivery.mailboxes.mailbox_columns import NEVER, NONE
from culver.delivery.ranges.retained_ranges import RetainedRange, RetainedRanges, merge, select
from culver.jit import read_only
from culver.matching import MOST_EVENTS, Grouping, pooled_rows
from culver.pipeline.notifications import Notifications
from support.notifications import make_notifications, rows_by_number


def merged(ranges: Sequence[RetainedRange]) -> Notifications:
    return merge(ranges, Grouping(), pooled_rows)


def random_ranges(
    seed: int, count: int = 12
) -> tuple[list[RetainedRange], dict[int, list[int]], dict[int, int]]:
    """Adjacent ranges over overlapping files; the offsets of each number, and the size of each event."""
    choose = random.Random(seed)
    sizes = {offset: choose.randrange(100) for offset in range(200)}
    rows = {number: sorted(choose.sample(range(200), choose.randrange(60))) for number in range(1, 15)}
    ranges: list[RetainedRange] = []
    frontier = 0
    for _ in range(count):
        start = max(frontier - choose.choice((0, 0, 4)), 0)
        end = frontier + choose.randrange(1, 16)
        inside = {number: [o for o in offsets if start <= o < end] for number, offsets in rows.items()}
        content = make_notifications(start, end, inside, [sizes[o] for o in range(start, end)])
        ranges.append(RetainedRange(frontier, content))
        frontier = end
    return ranges, {n: [o for o in offsets if o < frontier] for n, offsets in rows.items()}, sizes


@pytest.mark.parametrize("seed", range(10))
def test_a_merged_file_has_the_same_rows_as_its_parts(seed: int) -> None:
    ranges, rows, sizes = random_ranges(seed)
    joined = merged(ranges[3:])
    assert (joined.start, joined.end) == (ranges[3].start, ranges[-1].end)
    expected = {n: [o for o in offsets if o >= joined.start] for n, offsets in rows.items()}
    assert rows_by_number(joined) == {n: offsets for n, offsets in expected.items() if offsets}
    assert joined.sizes.tolist() == [sizes[o] for o in range(joined.start, joined.end)]
    assert [array.dtype for array in (joined.numbers, joined.bounds, joined.rows, joined.sizes)] == [
        np.int64,
        np.int64,
        np.uint16,
        np.uint32,
    ]


def test_numbers_that_lie_far_apart_are_merged_as_well() -> None:
    far = 10**15
    parts = [make_notifications(0, 2, {7: [0, 1], far: [1]}), make_notifications(2, 4, {8: [3], far: [2]})]
    empty = RetainedRange(4, make_notifications(4, 5, {}))
    joined = merged([*(RetainedRange(part.start, part) for part in parts), empty])
    assert rows_by_number(joined) == {7: [0, 1], 8: [3], far: [1, 2]}
    assert rows_by_number(merged([empty])) == {}


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_found_among_fewer_and_among_more_others(seed: int) -> None:
    choose = random.Random(seed)
    numbers, others = (sorted(choose.sample(range(60), choose.randrange(60))) for _ in range(2))
    places = np.empty(min(len(numbers), len(others)), np.int64)
    found = meet(read_only(np.array(numbers, np.int64)), read_only(np.array(others, np.int64)), places)
    assert [numbers[place] for place in places[:found]] == [n for n in numbers if n in others]


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_counted_where_they_lie_at_or_above_the_floor_of_their_mailbox(seed: int) -> None:
    ranges, rows, sizes = random_ranges(seed)
    choose = random.Random(seed)
    for item in ranges:
        n = item.notifications
        slots = np.array([choose.choice((number // 2, NONE)) for number in n.numbers.tolist()], np.int64)
        counted = np.tile(np.array([0, 1, 1, NEVER]), (8, 1))
        floor, pending, size, oldest = counted.T
        floor[:] = [choose.choice((0, item.start, choose.randrange(220))) for _ in range(8)]
        known = slots != NONE
        arrays = read_only(n.bounds), read_only(n.rows), np.sort(n.sizes)
        count(read_only(n.numbers), n.numbers[known], slots[known], *arrays, n.start, item.start, counted)
        largest = sorted(n.sizes.tolist(), reverse=True)
        for slot in range(8):
            numbers = n.numbers[slots == slot].tolist()
            lowest = max(floor[slot], item.start)
            kept = [[o for o in rows[number] if lowest <= o < item.end] for number in numbers]
            assert pending[slot] == 1 + sum(map(len, kept))
            exact = 1 + sum(sizes[o] for offsets in kept for o in offsets)
            assert exact <= size[slot] == 1 + sum(sum(largest[: len(offsets)]) for offsets in kept)
            assert oldest[slot] == min((o for offsets in kept for o in offsets), default=NEVER)


def test_registrations_that_are_not_kept_are_left_out() -> None:
    content = make_notifications(5, 9, {1: [5, 8], 2: [6], 4: [5, 6, 7]})
    kept = select(content, np.array([True, False, True]), 5)
    assert rows_by_number(kept) == {1: [5, 8], 4: [5, 6, 7]}
    assert rows_by_number(select(content, np.zeros(3, bool), 5)) == {}


@pytest.mark.parametrize("seed", range(10))
def test_what_lies_before_a_start_is_left_out(seed: int) -> None:
    rng = random.Random(seed)
    rows = {number: [offset for offset in range(50) if rng.random() < 0.1] for number in range(20)}
    content = make_notifications(0, 50, rows, list(range(50)))
    keep, start = np.array([rng.random() < 0.6 for _ in content.numbers]), rng.randrange(50)
    kept = select(content, keep, start)
    expected = {number: [o for o in rows[number] if o >= start] for number in content.numbers[keep].tolist()}
    assert rows_by_number(kept) == {number: offsets for number, offsets in expected.items() if offsets}
    assert (kept.start, kept.end, kept.sizes.tolist()) == (start, 50, list(range(start, 50)))


def test_offsets_are_found_across_files_and_registrations() -> None:
    ranges = RetainedRanges()
    ranges.append(RetainedRange(0, make_notifications(0, 10, {1: [2, 4]})))
    ranges.append(RetainedRange(10, make_notifications(8, 20, {1: [9, 12], 3: [15, 16]})))
    ranges.append(RetainedRange(20, make_notifications(20, 30, {2: [21], 3: [25]})))
    assert ranges.offsets([1, 3], 0, 100) == [2, 4, 12, 15, 16, 25]
    assert ranges.offsets([1, 3], 5, 2) == [12, 15]
    assert ranges.offsets([7], 0, 5) == []
    assert ranges.offsets([1, 3], 30, 5) == []


def unstored(ranges: RetainedRanges, start: int, end: int) -> dict[int, list[int]]:
    """Append a range of one event for each offset; registration n gets every n-th."""
    expected: dict[int, list[int]] = {}
    for offset in range(start, end):
        own = {number: [offset] for number in (2, 3, 7) if offset % number == 0}
        for number in own:
            expected.setdefault(number, []).append(offset)
        ranges.append(RetainedRange(offset, make_notifications(offset, offset + 1, own), stored=False))
    return expected


def test_small_ranges_without_a_file_are_put_together_as_they_come() -> None:
    ranges = RetainedRanges()
    expected = unstored(ranges, 0, 1_000)
    assert len(ranges) < 70
    assert ranges.unstored_bytes == sum(item.size for item in ranges)
    assert not any(item.stored for item in ranges)
    for number, offsets in expected.items():
        assert ranges.offsets([number], 0, 2_000) == offsets


def test_ranges_that_are_being_stored_stay_apart_until_they_are_exchanged() -> None:
    ranges = RetainedRanges()
    expected = unstored(ranges, 0, 40)
    ranges.leave_as_is()
    group = list(ranges)
    more = unstored(ranges, 40, 90)
    assert list(ranges)[: len(group)] == group
    ranges.exchange(group, RetainedRange(0, merged(group)))
    for number, offsets in expected.items():
        assert ranges.offsets([number], 0, 100) == offsets + more[number]


def test_ranges_are_put_together_though_the_oldest_of_them_have_gone() -> None:
    ranges = RetainedRanges()
    unstored(ranges, 0, 20)
    ranges.drop_below(15)
    more = unstored(ranges, 20, 60)
    assert ranges.offsets([7], 20, 100) == more[7]
    assert ranges.unstored_bytes == sum(item.size for item in ranges)


def test_ranges_with_more_events_than_one_can_hold_are_not_put_together() -> None:
    ranges = RetainedRanges()
    expected = unstored(ranges, 0, 20)
    large = make_notifications(20, MOST_EVENTS + 1, {2: [20]}, [])
    ranges.append(RetainedRange(20, large, stored=False))
    more = unstored(ranges, MOST_EVENTS + 1, MOST_EVENTS + 60)
    assert ranges.offsets([2], 0, 1_000) == [*expected[2], 20, *more[2]]
    assert len(ranges) < 60
