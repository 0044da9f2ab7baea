import numpy as np

from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.prepared_filter import prepare
from culver.model.values import Value
from culver.placement.kmeans import KMeans
from culver.placement.placement import NOWHERE

BOX = prepare("x BETWEEN ? AND ? AND y BETWEEN ? AND ?")


def boxes(seed: int, count: int, first: int = 0) -> ClauseTable:
    """Small boxes around (0, 0), (100, 0), (0, 100) and (100, 100), in no order."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(4, size=count)
    x, y = 100.0 * (corner % 2) + rng.normal(0, 5, count), 100.0 * (corner // 2) + rng.normal(0, 5, count)
    return compile_rows(BOX, np.arange(first, first + count), [x - 1, x + 1, y - 1, y + 1])


def marked(placement: KMeans, *events: dict[str, Value]) -> list[int]:
    """How many slices each event goes to."""
    route = placement.route(concat(encode([Event({}, data, b"{}") for data in events], 0)))
    counts: list[int] = (np.hstack(route.choices) != NOWHERE).sum(axis=1).tolist()
    return counts


def test_what_falls_apart_is_kept_apart() -> None:
    placement = KMeans(4)
    placement.assign(boxes(1, 4000))
    corners: list[dict[str, Value]] = [{"x": 100 * x, "y": 100 * y} for x in (0, 1) for y in (0, 1)]
    assert marked(placement, *corners) == [1, 1, 1, 1]
    assert marked(placement, {"x": 50, "y": 50}, {"x": 0}, {"x": "0", "y": 0}, {}) == [0, 0, 0, 0]


def test_a_clause_without_a_term_takes_the_bounds_of_one_slice_only() -> None:
    placement = KMeans(4)
    placement.assign(boxes(1, 4000))
    for number in range(50):
        placement.assign(compile_entries([Entry(5000 + number, parse(f"z = {number}"))]))
    assert marked(placement, {"x": 50, "y": 50}, {"z": 3}) == [1, 1]


def test_registrations_that_are_all_alike_are_spread_all_the_same() -> None:
    placement = KMeans(3)
    same = compile_rows(BOX, np.arange(3000), [np.full(3000, value) for value in (1.0, 2.0, 1.0, 2.0)])
    sizes = placement.assign(same).sum(axis=0)
    assert sizes.max() <= 1.25 * 1000 + 4


def test_far_apart_values_still_find_a_slice() -> None:
    values = np.array([-1.7e308, 1.7e308, 5e-324, -5e-324, 0.0, 2.0**52] * 50)
    table = compile_rows(prepare("x = ?"), np.arange(len(values)), [values])
    assert (KMeans(4).assign(table).sum(axis=1) == 1).all()


def test_of_very_many_attributes_the_first_tell_registrations_apart() -> None:
    placement = KMeans(2)
    texts = [f"a{n} = {n % 5} AND b = {n}" for n in range(300)]
    held = placement.assign(compile_entries(Entry(n, parse(text)) for n, text in enumerate(texts)))
    assert (held.sum(axis=1) == 1).all()
    assert len(placement.state()["dimensions"]) == 64
    assert all(count >= 1 for count in marked(placement, {"a299": 4, "b": 299}, {"a3": 3, "b": 3}))


def test_no_event_goes_to_a_slice_that_holds_nothing() -> None:
    placement = KMeans(4)
    assert marked(placement, {"x": 1}) == [0]
    placement.assign(compile_entries([Entry(1, parse("TRUE"))]))
    assert marked(placement, {"x": 1}) == [1]
