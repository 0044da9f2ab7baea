"""Grouping gives what sorting would give."""

import numpy as np
import pytest

from culver.matching.filter import Matches, matches_of
from culver.pipeline import grouping
from culver.pipeline.grouping import MOST_EVENTS, Grouping


def random_tiles(seed: int, events: int, low: int, high: int, most: int) -> list[Matches]:
    rng = np.random.default_rng(seed)
    tiles, left = [], events
    while left:
        size = int(rng.integers(1, left + 1))
        left -= size
        rows = [
            rng.permutation(np.unique(rng.integers(low, high + 1, rng.integers(0, most + 1)))).tolist()
            for _ in range(size)
        ]
        tiles.append(matches_of(rows))
    return tiles


def plainly(tiles: list[Matches]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    row = 0
    for tile in tiles:
        for begin, end in zip(tile.offsets[:-1].tolist(), tile.offsets[1:].tolist(), strict=True):
            for number in tile.numbers[begin:end].tolist():
                groups.setdefault(number, []).append(row)
            row += 1
    return groups


def as_lists(groups: grouping.Groups) -> dict[int, list[int]]:
    assert (np.diff(groups.numbers) > 0).all()
    parts = np.split(groups.rows, groups.bounds[1:-1]) if len(groups.numbers) else []
    return {int(n): part.tolist() for n, part in zip(groups.numbers, parts, strict=True)}


@pytest.mark.parametrize("few_pairs", [0, 100, 10**9], ids=["buckets", "some wait", "sorted"])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (5, 40), (1, 255), (1_000, 70_000), (0, 2**26), (7, 2**40)],
    ids=["one", "few", "a bucket", "many", "wide", "far apart"],
)
def test_groups_are_those_of_a_plain_loop(
    low: int, high: int, few_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "_FEW_PAIRS", few_pairs)
    reused = Grouping()
    for seed in range(5):
        tiles = random_tiles(seed, 300, low, high, 20)
        assert as_lists(reused.group(tiles, low, high)) == plainly(tiles)


def test_the_last_row_of_the_largest_block_is_kept() -> None:
    offsets = np.full(MOST_EVENTS + 1, 30_000)
    offsets[:-1] = 0  # all matches are the last event's
    groups = Grouping().group([Matches(offsets, np.arange(30_000))], 0, 29_999)
    assert groups.rows.tolist() == [MOST_EVENTS - 1] * 30_000
    with pytest.raises(ValueError, match="65537 events"):
        Grouping().group([Matches(np.zeros(MOST_EVENTS + 2, np.int64), np.empty(0, np.int64))], 0, 0)


def test_no_match_makes_no_group() -> None:
    groups = Grouping().group([matches_of([[], []])], 0, 0)
    assert (groups.numbers.tolist(), groups.bounds.tolist(), groups.rows.tolist()) == ([], [0], [])
