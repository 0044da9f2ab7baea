"""Joining gives every registration all its rows, in order, whichever parts had them."""

import random

import numpy as np

from culver.matching.groups import Groups
from culver.pipeline.result_join import join


def groups_of(rows_of: dict[int, list[int]]) -> Groups:
    numbers = sorted(rows_of)
    bounds = np.cumsum([0, *(len(rows_of[number]) for number in numbers)])
    rows = [row for number in numbers for row in rows_of[number]]
    return Groups(np.array(numbers, np.int64), bounds.astype(np.int64), np.array(rows, np.uint16))


def as_lists(groups: Groups) -> dict[int, list[int]]:
    assert (np.diff(groups.numbers) > 0).all()
    parts = np.split(groups.rows, groups.bounds[1:-1]) if len(groups.numbers) else []
    return {int(number): part.tolist() for number, part in zip(groups.numbers, parts, strict=True)}


def test_rows_dealt_out_to_several_parts_come_together_again() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        parts: list[dict[int, list[int]]] = [{} for _ in range(rng.randint(1, 4))]
        whole: dict[int, list[int]] = {}
        for number in rng.sample(range(100), rng.randint(0, 20)):
            apart = rng.random() < 0.5  # all in one part, as the segments of an index have them
            own = rng.choice(parts)
            whole[number] = sorted(rng.sample(range(65_536), rng.choice((1, 2, 3, 50))))
            for row in whole[number]:
                (own if apart else rng.choice(parts)).setdefault(number, []).append(row)
        assert as_lists(join([groups_of(part) for part in parts])) == whole, seed


def test_parts_whose_numbers_follow_one_another_are_put_in_order() -> None:
    later, earlier = {7: [0, 65_535], 9: [3]}, {1: [2], 5: [0, 1]}
    assert as_lists(join([groups_of(later), groups_of({}), groups_of(earlier)])) == earlier | later


def test_joining_nothing_gives_nothing() -> None:
    joined = join([groups_of({}), groups_of({})])
    assert (joined.numbers.tolist(), joined.bounds.tolist(), joined.rows.tolist()) == ([], [0], [])
