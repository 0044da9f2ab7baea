import random

from culver.matching.index.tiers import choose


def test_one_segment_is_left_alone() -> None:
    assert choose([1], [0]) == []
    assert choose([1_000_000], [0]) == []
    assert choose([], []) == []


def test_small_segments_become_one() -> None:
    assert choose([40_000, 200, 1], [0, 0, 0]) == [1, 2]


def test_a_merge_may_fill_the_next_tier() -> None:
    assert choose([300, 300, 300, 200, 200], [0] * 5) == [0, 1, 2, 3, 4]


def test_a_segment_with_mostly_dead_registrations_is_rewritten() -> None:
    assert choose([10_000, 50_000], [5_001, 0]) == [0]
    assert choose([10_000, 50_000], [5_000, 0]) == []


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
