import random

import pytest

from culver.matching.index.storage.merge_policy import choose, choose_when_quiet


def test_one_segment_is_left_alone() -> None:
    assert choose([1], [0]) == []
    assert choose([1_000_000], [0]) == []
    assert choose([], []) == []


def test_small_segments_become_one() -> None:
    assert choose([40_000, 200, 1], [0, 0, 0]) == [1, 2]


def test_a_merge_may_fill_the_next_tier() -> None:
    assert choose([300, 300, 300, 200, 200], [0] * 5) == [0, 1, 2, 3, 4]


def test_a_segment_with_many_dead_registrations_is_rewritten() -> None:
    assert choose([10_000, 50_000], [2_501, 0]) == [0]
    assert choose([10_000, 50_000], [2_500, 0]) == []


def test_segments_that_are_large_enough_are_left_alone_unless_many_are_dead() -> None:
    large = [2_000_000, 1_500_000, 3_000_000, 1_100_000, 1_200_000]
    assert choose(large, [0] * 5) == []
    assert choose(large, [0, 400_000, 0, 0, 0]) == [1]
    assert choose([*large, 9, 9], [900_000, 400_000, 0, 0, 0, 0, 0]) == [0]  # one such at a time


def test_segments_stay_few_and_are_rewritten_rarely() -> None:
    rng = random.Random(11)
    sizes: list[int] = []
    added = written = 0
    for _ in range(3_000):
        size = rng.choice([1, 1, 1, 5, 100, 1_000])
        added += size
        sizes.append(size)
        while chosen := choose(sizes, [0] * len(sizes)):
            merged = sum(sizes[place] for place in chosen)
            written += merged
            sizes = [size for place, size in enumerate(sizes) if place not in chosen] + [merged]
        assert len(sizes) <= 25
    assert sum(sizes) == added
    assert written < 20 * added


@pytest.mark.parametrize(
    ("sizes", "dead", "chosen"),
    [
        ([], [], []),
        ([40_000], [0], []),
        ([40_000, 9_000, 9_000, 700, 3], [0] * 5, [0, 1, 2, 3, 4]),
        ([40_000, 700, 3], [0] * 3, [1, 2]),
        ([40_000, 703], [0] * 2, []),
        ([3_000, 1], [0] * 2, [0, 1]),
        ([150_000, 150_000], [0] * 2, []),
        ([160_000, 160_000, 90_000, 20_000], [0] * 4, [2, 3]),
        ([160_000, 160_000], [50_000, 0], [0]),
        ([40_000], [5_001], [0]),
        ([40_000], [5_000], []),
        ([2_000_000], [500_000], []),
    ],
)
def test_a_quiet_index_becomes_one_or_two_segments_where_that_is_worth_it(
    sizes: list[int], dead: list[int], chosen: list[int]
) -> None:
    assert choose_when_quiet(sizes, dead) == chosen


def test_a_quiet_index_comes_to_rest() -> None:
    rng = random.Random(12)
    for _ in range(2_000):
        first = [rng.choice([1, 300, 5_000, 40_000, 200_000]) * rng.randrange(1, 5) for _ in range(6)]
        sizes, dead = first, [rng.choice([0, 0, size // 20, size // 3]) for size in first]
        merges = 0
        while chosen := choose_when_quiet(sizes, dead):
            merges += 1
            assert merges <= 4, first
            merged = sum(sizes[place] - dead[place] for place in chosen)
            assert merged <= 262_144
            rest = [place for place in range(len(sizes)) if place not in chosen]
            sizes, dead = [sizes[place] for place in rest] + [merged], [dead[place] for place in rest] + [0]


def test_40_000_registrations_in_quiet_are_one_or_two_segments() -> None:
    rng = random.Random(13)
    for _ in range(300):
        sizes: list[int] = []
        while sum(sizes) < 40_000:
            sizes.append(rng.choice([1, 100, 1_000, 5_000]))
            while chosen := choose(sizes, [0] * len(sizes)):
                merged = sum(sizes[place] for place in chosen)
                sizes = [size for place, size in enumerate(sizes) if place not in chosen] + [merged]
        chosen = choose_when_quiet(sizes, [0] * len(sizes))
        assert len(sizes) - len(chosen) + bool(chosen) <= 2, sizes
