"""Grouping gives what a plain loop gives."""

from collections.abc import Sequence

import numpy as np
import pytest

from culver.matching.filter import Matches, matches_of
from culver.matching.groups import MOST_EVENTS, Groups
from culver.matching.index.results.grouping import Grouping
from culver.matching.index.results.listed_matches import Listed


def random_matches(seed: int, events: int, low: int, high: int, most: int) -> Matches:
    rng = np.random.default_rng(seed)
    return matches_of(
        [
            rng.permutation(np.unique(rng.integers(low, high + 1, rng.integers(0, most + 1)))).tolist()
            for _ in range(events)
        ]
    )


def plainly(matches: Matches, first_row: int) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    bounds = zip(matches.offsets[:-1].tolist(), matches.offsets[1:].tolist(), strict=True)
    for row, (begin, end) in enumerate(bounds):
        for number in matches.numbers[begin:end].tolist():
            groups.setdefault(number, []).append(first_row + row)
    return groups


def grouped(
    grouping: Grouping,
    lists: list[tuple[Matches, int]],
    numbers: tuple[int, int],
    others: Sequence[Groups] = (),
) -> Groups:
    """Of events from a first row on; `numbers`: the lowest and the highest."""
    listed = [Listed(matches, numbers, first_row) for matches, first_row in lists]
    apart = [each.groups() for each in listed if not each.is_narrow]
    return grouping.group([each.runs() for each in listed if each.is_narrow], [*apart, *others])


def as_lists(groups: Groups) -> dict[int, list[int]]:
    assert (np.diff(groups.numbers) > 0).all()
    parts = np.split(groups.rows, groups.bounds[1:-1]) if len(groups.numbers) else []
    return {int(n): part.tolist() for n, part in zip(groups.numbers, parts, strict=True)}


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 0),
        (5, 40),
        (1, 255),
        (1_000, 70_000),
        (0, 2**26),
        (2**40, 2**40 + 2**26),
        (9, 2**32 + 8),
        (7, 2**40),
    ],
    ids=["one", "few", "some", "many", "wide", "high", "as far apart as fits", "farther apart"],
)
@pytest.mark.parametrize("first_row", [0, 60_000])
def test_groups_are_those_of_a_plain_loop(low: int, high: int, first_row: int) -> None:
    reused = Grouping()
    for seed in range(5):
        matches = random_matches(seed, 300, low, high, 20)
        assert as_lists(grouped(reused, [(matches, first_row)], (low, high))) == plainly(matches, first_row)
        alone = Listed(matches, (low, high), first_row)
        assert as_lists(alone.groups(reused)) == as_lists(alone.groups()) == plainly(matches, first_row)


@pytest.mark.parametrize("high", [400, 2**26, 2**40], ids=["few", "wide", "far apart"])
def test_lists_of_the_same_events_are_grouped_together(high: int) -> None:
    """Of each event, every list has some of the pairs; one of them has only the later half of the events."""
    reused = Grouping()
    for seed in range(5):
        whole = random_matches(seed, 300, 0, high, 30)
        lists: list[list[list[int]]] = [[], [], []]
        for row, (begin, end) in enumerate(zip(whole.offsets[:-1], whole.offsets[1:], strict=True)):
            numbers = whole.numbers[begin:end].tolist()
            for own, each in enumerate(lists):
                of_own = [n for n in numbers if (n + row) % (3 if row >= 150 else 2) == own]
                if row >= 150 or own < 2:
                    each.append(of_own)
        found = [(matches_of(each), 300 - len(each)) for each in lists]
        assert as_lists(grouped(reused, found, (0, high))) == plainly(whole, 0)
        first = grouped(reused, found[:1], (0, high))
        assert as_lists(grouped(reused, found[1:], (0, high), [first])) == plainly(whole, 0)


@pytest.mark.parametrize("high", [29_999, 2**30], ids=["narrow", "wide"])
def test_the_last_row_of_the_largest_block_is_kept(high: int) -> None:
    offsets = np.full(MOST_EVENTS + 1, 30_000)
    offsets[:-1] = 0  # all matches are the last event's
    groups = grouped(Grouping(), [(Matches(offsets, np.arange(30_000)), 0)], (0, high))
    assert groups.rows.tolist() == [MOST_EVENTS - 1] * 30_000
    with pytest.raises(ValueError, match="65537 events"):
        Listed(Matches(np.zeros(2, np.int64), np.empty(0, np.int64)), (0, 0), MOST_EVENTS)


def test_no_match_makes_no_group() -> None:
    groups = grouped(Grouping(), [(matches_of([[], []]), 0)], (0, 0))
    assert (groups.numbers.tolist(), groups.bounds.tolist(), groups.rows.tolist()) == ([], [0], [])


def test_lists_with_lowest_numbers_of_their_own_are_grouped_together() -> None:
    """As those of several sets are, which hold other registrations."""
    low, high = random_matches(1, 200, 10, 90, 9), random_matches(2, 200, 2**33, 2**33 + 5_000, 9)
    between = Groups(np.array([95]), np.array([0, 2]), np.array([3, 199], np.uint16))
    lists = [Listed(low, (10, 90), 0).runs(), Listed(high, (2**33, 2**33 + 5_000), 0).runs()]
    found = Grouping().group(lists, [between])
    assert as_lists(found) == {**plainly(low, 0), **plainly(high, 0), 95: [3, 199]}


def test_runs_are_of_events_that_match_something() -> None:
    runs = Listed(matches_of([[1_007, 1_002], [], [], [1_002, 1_005]]), (1_002, 1_009), 40).runs()
    assert (runs.low, runs.rows.tolist(), runs.lengths.tolist()) == (1_002, [40, 43], [2, 2])
    assert runs.numbers.tolist() == [5, 0, 0, 3]


def test_many_rows_of_one_registration_from_several_lists_are_in_order() -> None:
    events = 5_000
    owner = np.random.default_rng(3).integers(0, 3, events)  # each event was matched in one of three places
    lists = [(matches_of([[7, 9] if each == own else [] for each in owner]), 0) for own in range(3)]
    result = grouped(Grouping(), lists, (0, 100))
    assert as_lists(result) == {7: list(range(events)), 9: list(range(events))}


def test_what_was_grouped_before_leaves_nothing_behind() -> None:
    grouping = Grouping()
    grouped(grouping, [(matches_of([[0, 900_000], [5]]), 0)], (0, 1_000_000))
    assert as_lists(grouped(grouping, [(matches_of([[3], [3, 70]]), 0)], (0, 100))) == {3: [0, 1], 70: [1]}
    result = grouped(grouping, [(matches_of([[900_000]]), 0)], (0, 1_000_000))
    assert as_lists(result) == {900_000: [0]}
