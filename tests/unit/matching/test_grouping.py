"""Grouping gives what a plain loop gives."""

import numpy as np
import pytest

from culver.matching.filter import Matches, matches_of
from culver.matching.groups import MOST_EVENTS, Groups
from culver.matching.index.grouping import Grouping


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


def as_lists(groups: Groups) -> dict[int, list[int]]:
    assert (np.diff(groups.numbers) > 0).all()
    parts = np.split(groups.rows, groups.bounds[1:-1]) if len(groups.numbers) else []
    return {int(n): part.tolist() for n, part in zip(groups.numbers, parts, strict=True)}


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (5, 40), (1, 255), (1_000, 70_000), (0, 2**26), (7, 2**40)],
    ids=["one", "few", "some", "many", "wide", "far apart"],
)
@pytest.mark.parametrize("first_row", [0, 60_000])
def test_groups_are_those_of_a_plain_loop(low: int, high: int, first_row: int) -> None:
    reused = Grouping()
    for seed in range(5):
        matches = random_matches(seed, 300, low, high, 20)
        assert as_lists(reused.group(matches, low, high, first_row)) == plainly(matches, first_row)


@pytest.mark.parametrize("high", [29_999, 2**30], ids=["narrow", "wide"])
def test_the_last_row_of_the_largest_block_is_kept(high: int) -> None:
    offsets = np.full(MOST_EVENTS + 1, 30_000)
    offsets[:-1] = 0  # all matches are the last event's
    groups = Grouping().group(Matches(offsets, np.arange(30_000)), 0, high)
    assert groups.rows.tolist() == [MOST_EVENTS - 1] * 30_000
    with pytest.raises(ValueError, match="65537 events"):
        Grouping().group(Matches(np.zeros(2, np.int64), np.empty(0, np.int64)), 0, 0, MOST_EVENTS)


def test_no_match_makes_no_group() -> None:
    groups = Grouping().group(matches_of([[], []]), 0, 0)
    assert (groups.numbers.tolist(), groups.bounds.tolist(), groups.rows.tolist()) == ([], [0], [])
