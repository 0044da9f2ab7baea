"""Grouping gives what a plain loop gives, whatever the parts are and however they overlap."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from culver.matching.filter import MOST_EVENTS, Groups, Matched, MatchList, matches_of
from culver.matching.index.results.grouping import Grouping

Plain = dict[int, list[int]]
"""The rows of each registration, ascending."""


def listed(numbers: Sequence[Sequence[int]], span: tuple[int, int], first_row: int = 0) -> MatchList:
    matches = matches_of(numbers)
    return MatchList(first_row, span, matches.offsets, matches.numbers)


def grouped(rows_of: Mapping[int, Sequence[int]]) -> Groups:
    numbers = sorted(rows_of)
    bounds = np.cumsum([0, *(len(rows_of[number]) for number in numbers)], dtype=np.int64)
    rows = [row for number in numbers for row in rows_of[number]]
    return Groups(np.array(numbers, np.int64), bounds, np.array(rows, np.uint16))


def random_numbers(seed: int, events: int, low: int, high: int, most: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [
        rng.permutation(np.unique(rng.integers(low, high + 1, rng.integers(0, most + 1)))).tolist()
        for _ in range(events)
    ]


def plainly(numbers: Sequence[Sequence[int]], first_row: int = 0) -> Plain:
    groups: Plain = {}
    for row, of_row in enumerate(numbers):
        for number in of_row:
            groups.setdefault(number, []).append(first_row + row)
    return groups


def as_lists(groups: Groups) -> Plain:
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
    ids=["one", "few", "some", "many", "wide", "high", "far apart", "farther apart"],
)
@pytest.mark.parametrize("first_row", [0, 60_000])
def test_groups_are_those_of_a_plain_loop(low: int, high: int, first_row: int) -> None:
    reused = Grouping()
    for seed in range(5):
        numbers = random_numbers(seed, 300, low, high, 20)
        assert as_lists(reused.group([listed(numbers, (low, high), first_row)])) == plainly(
            numbers, first_row
        )


@pytest.mark.parametrize("high", [400, 2**26, 2**40], ids=["few", "wide", "far apart"])
def test_parts_of_the_same_events_are_grouped_together(high: int) -> None:
    """Every part has some of the pairs of each event; one of them has only the later half of the events."""
    reused = Grouping()
    for seed in range(5):
        whole = random_numbers(seed, 300, 0, high, 30)
        parts: list[list[list[int]]] = [[], [], []]
        for row, numbers in enumerate(whole):
            for own, each in enumerate(parts):
                if row >= 150 or own < 2:
                    each.append([n for n in numbers if (n + row) % (3 if row >= 150 else 2) == own])
        found: list[Matched] = [listed(each, (0, high), 300 - len(each)) for each in parts]
        assert as_lists(reused.group(found)) == plainly(whole)
        found[0] = reused.group(found[:1])
        assert as_lists(reused.group(found)) == plainly(whole), "one of them is grouped already"
        found[1] = reused.group(found[1:2])
        assert as_lists(reused.group(found[1::-1])) == as_lists(reused.group(found[:2])), "in any order"


def test_rows_dealt_out_to_several_parts_come_together_again() -> None:
    reused = Grouping()
    for seed in range(200):
        rng = random.Random(seed)
        parts: list[Plain] = [{} for _ in range(rng.randint(1, 6))]
        whole: Plain = {}
        for number in rng.sample(range(100), rng.randint(0, 20)):
            apart = rng.random() < 0.5  # all in one part, as the segments of an index have them
            own = rng.choice(parts)
            whole[number] = sorted(rng.sample(range(MOST_EVENTS), rng.choice((1, 2, 3, 50, 500))))
            for row in whole[number]:
                (own if apart else rng.choice(parts)).setdefault(number, []).append(row)
        assert as_lists(reused.group([grouped(part) for part in parts])) == whole, seed


@pytest.mark.parametrize("highest", [3, 500, 2**20, 2**40], ids=["few", "some", "many", "far apart"])
def test_parts_of_later_events_follow_those_of_earlier_ones(highest: int) -> None:
    reused = Grouping()
    for seed in range(20):
        rng = random.Random(seed)
        parts: list[Matched] = []
        first_rows: list[int] = []
        whole: Plain = {}
        for first in range(0, 40, 8):
            of_part = {
                rng.randrange(highest): sorted(rng.sample(range(8), rng.choice((1, 1, 5))))
                for _ in range(rng.randrange(12))
            }
            for number, rows in of_part.items():
                whole.setdefault(number, []).extend(first + row for row in rows)
            by_event = [[n for n, rows in of_part.items() if row in rows] for row in range(8)]
            parts.append(grouped(of_part) if rng.random() < 0.7 else listed(by_event, (0, highest)))
            first_rows.append(first)
        assert as_lists(reused.group(parts, first_rows)) == dict(sorted(whole.items())), seed


def test_registrations_without_rows_are_left_out() -> None:
    parts = [grouped({3: [], 5: [1], 9: []}), grouped({3: [], 7: [0]})]
    assert as_lists(Grouping().group(parts)) == {5: [1], 7: [0]}


def test_parts_whose_numbers_follow_one_another_are_put_in_order() -> None:
    later, earlier = {7: [0, 65_535], 9: [3]}, {1: [2], 5: [0, 1]}
    assert as_lists(Grouping().group([grouped(later), grouped({}), grouped(earlier)])) == earlier | later


@pytest.mark.parametrize("high", [29_999, 2**30], ids=["narrow", "wide"])
def test_the_last_row_of_the_largest_block_is_kept(high: int) -> None:
    offsets = np.full(MOST_EVENTS + 1, 30_000)
    offsets[:-1] = 0  # all matches are the last event's
    groups = Grouping().group([MatchList(0, (0, high), offsets, np.arange(30_000))])
    assert groups.rows.tolist() == [MOST_EVENTS - 1] * 30_000


@pytest.mark.parametrize("parts", [[], [listed([[], []], (0, 0))], [grouped({}), grouped({})]])
def test_no_match_makes_no_group(parts: list[Matched]) -> None:
    groups = Grouping().group(parts)
    assert (groups.numbers.tolist(), groups.bounds.tolist(), groups.rows.tolist()) == ([], [0], [])


def test_parts_with_lowest_numbers_of_their_own_are_grouped_together() -> None:
    """Several sets hold other registrations."""
    low, high = random_numbers(1, 200, 10, 90, 9), random_numbers(2, 200, 2**33, 2**33 + 5_000, 9)
    parts: list[Matched] = [
        listed(low, (10, 90)),
        listed(high, (2**33, 2**33 + 5_000)),
        grouped({95: [3, 199]}),
    ]
    assert as_lists(Grouping().group(parts)) == {**plainly(low), **plainly(high), 95: [3, 199]}


def test_many_rows_of_one_registration_from_several_parts_are_in_order() -> None:
    events = 5_000
    owner = np.random.default_rng(3).integers(0, 3, events)  # each event was matched in one of three places
    parts = [listed([[7, 9] if each == own else [] for each in owner], (0, 100)) for own in range(3)]
    assert as_lists(Grouping().group(parts)) == {7: list(range(events)), 9: list(range(events))}


def test_an_earlier_grouping_leaves_nothing_behind() -> None:
    grouping = Grouping()
    grouping.group([listed([[0, 900_000], [5]], (0, 1_000_000))])
    grouping.group([listed([[0, 900_000], [5]], (0, 1_000_000)), grouped({5: [0]})])
    assert as_lists(grouping.group([listed([[3], [3, 70]], (0, 100))])) == {3: [0, 1], 70: [1]}
    assert as_lists(grouping.group([listed([[900_000]], (0, 1_000_000))])) == {900_000: [0]}
