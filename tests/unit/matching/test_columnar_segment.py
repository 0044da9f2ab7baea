"""Compiling, laying out and merging: what a segment says is what went in."""

import random
from collections.abc import Sequence

import numpy as np

from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import HIGHEST_KEY, LOWEST_KEY
from culver.matching.index.intrinsics.vectors import WINDOW
from culver.matching.index.layout import chunks
from culver.matching.index.layout.box_order import leaf_order, split
from culver.matching.index.search.columnar_matcher import ColumnarView
from culver.matching.index.segments.columnar_segment import encode
from culver.matching.index.segments.segment_file import FOREVER, SegmentView
from culver.matching.index.storage.compaction import merge_columnar
from culver.model.language.parser import parse
from support.clauses import described, from_chunks
from support.filters import random_filter

SEED = 4

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def random_entries(rng: random.Random, count: int, step: int = 1, first: int = 0) -> list[Entry]:
    return [Entry(first + step * n, parse(random_filter(rng)), rng.randrange(100)) for n in range(count)]


def part_of(entries: Sequence[Entry]) -> ColumnarView:
    return SegmentView(from_chunks(encode(compile_entries(entries))))


def test_a_segment_gives_back_the_table_it_was_made_from() -> None:
    rng = random.Random(SEED)
    boxes = [Entry(1000 + n, parse(f"a >= {n} AND c < {n + 1} AND d LIKE '%{n % 3}'"), n) for n in range(150)]
    for entries in ([], random_entries(rng, 1), random_entries(rng, 400) + boxes):
        table = compile_entries(entries)
        assert described(from_chunks(encode(table)).table()) == described(table)


def test_a_merge_is_the_same_as_compiling_everything_at_once() -> None:
    rng = random.Random(SEED)
    even, odd = random_entries(rng, 200, 2), random_entries(rng, 200, 2, 1)
    merged, ended = merge_columnar([part_of(even), part_of(odd)], 0)
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
    merged, ended = merge_columnar([SegmentView(part.segment, np.array([10, 11, FOREVER]))], 10)
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


def extent(low: Integers, order: Integers) -> float:
    """How wide the leaves of 64 are on average."""
    leaves = range(0, len(order) - 63, 64)
    return float(np.mean([np.ptp(low[order[at : at + 64]], axis=0).mean() for at in leaves]))


def test_the_order_of_boxes_is_a_permutation_that_puts_near_ones_together() -> None:
    rng = np.random.default_rng(SEED)
    low = rng.integers(0, 60_000, (2_000, 3))
    order = leaf_order(np.concatenate([low, low + 1_000], axis=1).astype(np.uint16), 64)
    assert sorted(order.tolist()) == list(range(2_000))
    assert extent(low, order) < extent(low, np.arange(2_000)) / 2


def test_a_split_gives_every_box_to_one_set_and_near_ones_to_the_same() -> None:
    rng = np.random.default_rng(SEED)
    low = rng.integers(0, 2**40, (5_000, 2))
    sets = split(np.concatenate([low, low + 1_000], axis=1), 700, 64)
    assert sorted(np.concatenate(sets).tolist()) == list(range(5_000))
    assert max(map(len, sets)) <= 700
    assert sum(len(members) % 64 != 0 for members in sets) == 1
    spans = [np.ptp(low[members], axis=0).min() for members in sets]
    assert max(spans) < 2**39


def test_a_chunk_gives_back_its_boxes_and_knows_the_rank_of_every_key() -> None:
    rng = np.random.default_rng(SEED)
    for count in (1, 64, 65, 4_096, 5_000):
        lows = rng.integers(-(2**50), 2**50, (count, 2))
        highs = lows + rng.integers(0, 2**45, (count, 2))
        lows[::7, 0] = LOWEST_KEY
        highs[::5, 1] = HIGHEST_KEY
        chunk = chunks.build(np.stack([lows, highs], axis=2).reshape(len(lows), -1), np.array([True, False]))
        restored = chunks.bounds_of(chunk.nodes, chunk.leaves, [axis.edges for axis in chunk.axes])
        assert (restored[0][:count] == lows[chunk.order]).all()
        assert (restored[1][:count] == highs[chunk.order]).all()
        assert [axis.low for axis in chunk.axes] == lows.min(axis=0).tolist()
        assert [axis.high for axis in chunk.axes] == highs.max(axis=0).tolist()
        for _, _, edges, cells in chunk.axes:
            assert cells.before[-1] == len(edges)
            assert (np.diff(cells.before.astype(int)) < WINDOW << cells.steps).all()
