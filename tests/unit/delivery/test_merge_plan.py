"""Few files, and few rewrites of each row."""

from culver.delivery.ranges.retained_ranges import MergeLevel, RetainedRange, merge, plan_merges
from culver.matching import Grouping, pooled_rows
from support.notifications import make_notifications


def range_of(start: int, end: int, events: int) -> RetainedRange:
    """A range whose content has a size that follows from `events`."""
    return RetainedRange(start, make_notifications(end - events, end, {}))


def test_nothing_is_merged_while_there_are_few_files() -> None:
    ranges = [range_of(start, start + 1, 1) for start in range(4)]
    assert plan_merges(ranges, [MergeLevel(1000, 4)]) == []
    ranges.append(range_of(4, 5, 1))
    assert plan_merges(ranges, [MergeLevel(1000, 4)]) == [ranges]


def test_large_files_and_holes_divide_what_is_merged() -> None:
    ranges = [range_of(start, start + 1, 1) for start in range(6)]
    ranges[2] = RetainedRange(2, make_notifications(0, 3, {1: list(range(3))}, [0] * 3))
    assert ranges[2].size > 30
    del ranges[4]
    groups = plan_merges(
        [*ranges, *(range_of(start, start + 1, 1) for start in range(6, 9))], [MergeLevel(30, 2)]
    )
    assert [[(item.start, item.end) for item in group] for group in groups] == [
        [(0, 1), (1, 2)],
        [(5, 6), (6, 7), (7, 8), (8, 9)],
    ]


def test_merging_level_by_level_bounds_both_the_files_and_the_rewriting() -> None:
    levels = (MergeLevel(400, 8), MergeLevel(4_000, 4), MergeLevel(40_000, 4))
    ranges: list[RetainedRange] = []
    rewritten = 0
    for offset in range(2_000):
        ranges.append(RetainedRange(offset, make_notifications(offset, offset + 1, {1: [offset]})))
        for group in plan_merges(ranges, levels):
            at = ranges.index(group[0])
            ranges[at : at + len(group)] = [
                RetainedRange(group[0].start, merge(group, Grouping(), pooled_rows))
            ]
            rewritten += sum(item.end - item.start for item in group)
        assert len(ranges) < 40
    assert rewritten < 10 * 2_000  # without levels: more than 200,000
