"""Compiling, laying out and merging: what a segment says is what went in."""

import random
from collections.abc import Sequence

import numpy as np

from culver.matching.index.compiler import Entry, compile_entries
from culver.matching.index.matcher import FOREVER, Part, merge_parts
from culver.matching.index.order import block_order
from culver.matching.index.segment import encode, from_chunks
from culver.model.language import parse
from support.clauses import described
from support.filters import random_filter

SEED = 4


def random_entries(rng: random.Random, count: int, step: int = 1, first: int = 0) -> list[Entry]:
    return [Entry(first + step * n, parse(random_filter(rng)), rng.randrange(100)) for n in range(count)]


def part_of(entries: Sequence[Entry]) -> Part:
    return Part(from_chunks(encode(compile_entries(entries))))


def test_a_segment_gives_back_the_table_it_was_made_from() -> None:
    rng = random.Random(SEED)
    boxes = [Entry(1000 + n, parse(f"a >= {n} AND c < {n + 1} AND d LIKE '%{n % 3}'"), n) for n in range(150)]
    for entries in ([], random_entries(rng, 1), random_entries(rng, 400) + boxes):
        table = compile_entries(entries)
        assert described(from_chunks(encode(table)).table()) == described(table)


def test_a_merge_is_the_same_as_compiling_everything_at_once() -> None:
    rng = random.Random(SEED)
    even, odd = random_entries(rng, 200, 2), random_entries(rng, 200, 2, 1)
    merged, ended = merge_parts([part_of(even), part_of(odd)], 0)
    assert ended is None
    assert merged.numbers.tolist() == list(range(400))
    assert described(merged) == described(compile_entries(even + odd))


def test_a_merge_drops_what_ended_and_everything_only_that_used() -> None:
    entries = [
        Entry(1, parse("gone = 'old literal' AND x LIKE '%old'")),
        Entry(2, parse("x = 'new' AND x LIKE '%new%w'")),
        Entry(3, parse("y > 5")),
    ]
    part = part_of(entries)
    merged, ended = merge_parts([Part(part.segment, np.array([10, 11, FOREVER]))], 10)
    assert merged.numbers.tolist() == [2, 3]
    assert ended is not None
    assert ended.tolist() == [11, FOREVER]
    assert {name for name, _ in merged.dimensions} <= {"x", "y"}
    assert b"old literal" not in merged.literals
    assert not any("old" in text for text in merged.pool)


def test_an_in_list_becomes_clauses_up_to_a_limit() -> None:
    few = compile_entries([Entry(1, parse("x IN (1, 2, 3) AND y IN ('a', 'b')"))])
    assert (len(few.clause_registration), len(few.pool)) == (6, 0)
    many = compile_entries([Entry(1, parse(f"x IN ({', '.join(map(str, range(17)))})"))])
    assert (len(many.clause_registration), len(many.pool)) == (1, 1)


def test_equal_constraints_are_stored_once() -> None:
    table = compile_entries([Entry(n, parse("s LIKE '%x%y'")) for n in range(50)])
    assert len(table.pool) == 1


def test_the_order_of_boxes_is_a_permutation_that_puts_near_ones_together() -> None:
    rng = np.random.default_rng(SEED)
    low = rng.integers(0, 1_000_000, (2_000, 3))
    bounds = np.concatenate([low, low + 1_000], axis=1)
    order = block_order(bounds, 64)
    assert sorted(order.tolist()) == list(range(2_000))

    def extent(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        return float(np.mean([np.ptp(low[rows[at : at + 64]], axis=0).mean() for at in range(0, 1_984, 64)]))

    assert extent(order) < extent(np.arange(2_000)) / 2
