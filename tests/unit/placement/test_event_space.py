import random
from collections.abc import Sequence

import numpy as np
import pytest

from culver.bench.workloads import named
from culver.matching.index.bulk import compile_rows
from culver.matching.index.compiler import Entry, compile_entries
from culver.matching.index.table import ClauseTable
from culver.model.batch import concat, encode
from culver.model.event import Event
from culver.model.language import parse
from culver.model.prepared import prepare
from culver.model.values import Value
from culver.placement.event_space import EventSpace, selective_share
from culver.placement.placement import Way


def table_of(texts: Sequence[str], first: int = 0) -> ClauseTable:
    return compile_entries(Entry(number, parse(text)) for number, text in enumerate(texts, first))


def slices_of(placement: EventSpace, *events: dict[str, Value]) -> list[list[int]]:
    """The candidates of each event."""
    route = placement.route(concat(encode([Event({}, data, b"{}") for data in events], 0)))
    assert route.way is Way.ANY
    assert route.marked is not None
    return [np.flatnonzero(row).tolist() for row in route.marked]


def holders_of(placement: EventSpace, text: str) -> list[int]:
    return np.flatnonzero(placement.assign(table_of([text], 10**6))[0]).tolist()


@pytest.fixture
def by_price() -> EventSpace:
    """Cut at 250, 500 and 750, nearly: the prices of most are points among a thousand, with others beside."""
    placement = EventSpace(4)
    placement.assign(table_of([f"price BETWEEN {n} AND {n + 0.5} AND size > {n % 7}" for n in range(1000)]))
    return placement


def test_the_most_selective_dimension_is_cut(by_price: EventSpace) -> None:
    division = by_price.state()["division"]
    assert (division["attribute"], division["line"]) == ("price", "numbers")
    assert len(division["cuts"]) == 3


def test_an_event_goes_to_the_slice_of_its_value(by_price: EventSpace) -> None:
    assert slices_of(by_price, {"price": 100}, {"price": 400.5}, {"price": 600}, {"price": 1e9}) == [
        [0],
        [1],
        [2],
        [3],
    ]


def test_an_event_at_the_bounds_of_a_registration_goes_to_one_of_its_holders() -> None:
    placement = EventSpace(4)
    held = placement.assign(table_of([f"price BETWEEN {n} AND {n + 3}" for n in range(200)]))
    for end in (0, 3):
        events: list[dict[str, Value]] = [{"price": n + end} for n in range(200)]
        chosen = [row[0] for row in slices_of(placement, *events)]
        assert held[np.arange(200), chosen].all()


def test_without_a_value_of_the_right_type_any_slice_will_do(by_price: EventSpace) -> None:
    events: list[dict[str, Value]] = [{}, {"price": "100"}, {"price": True}, {"size": 3}]
    assert slices_of(by_price, *events) == [[0, 1, 2, 3]] * 4


@pytest.mark.parametrize(
    ("text", "slices"),
    [
        ("price < 100", [0]),
        ("price > 600 AND size = 3", [2, 3]),
        ("price = 300 OR price > 900", [1, 3]),
        ("price = 300 OR size > 900", [0, 1, 2, 3]),
        ("NOT price > 600", [0, 1, 2]),
        ("price <> 300", [0, 1, 2, 3]),
        ("price IS NULL", [0, 1, 2, 3]),
        ("price IS NOT NULL", [0, 1, 2, 3]),
        ("price IN (100, 900)", [0, 3]),
        ("price + 1 > 1000", [0, 1, 2, 3]),
        ("price = '300'", [0, 1, 2, 3]),
        ("price = 9007199254740993", [0, 1, 2, 3]),  # on another line
        ("TRUE", [0, 1, 2, 3]),
    ],
)
def test_a_registration_is_where_its_clauses_reach(
    by_price: EventSpace, text: str, slices: list[int]
) -> None:
    assert holders_of(by_price, text) == slices


def test_what_nothing_satisfies_is_in_one_slice_all_the_same(by_price: EventSpace) -> None:
    assert len(holders_of(by_price, "price > 0 AND price < 5e-324")) == 1


def test_equalities_are_dealt_out_evenly_in_buckets() -> None:
    workload = named("W2")
    placement = EventSpace(4)
    held = placement.assign(table_of(workload.filters(3000, 1)))
    division = placement.state()["division"]
    assert (division["attribute"], division["cuts"]) == ("symbol", None)
    sizes = held.sum(axis=0)
    assert sizes.max() < 1.03 * sizes.mean()
    assert 1.3 < held.sum() / 3000 < 1.6  # 15 % have no symbol


def test_values_that_come_later_are_spread_where_filters_are_equalities() -> None:
    prepared = prepare("order_number = ?")
    placement = EventSpace(4)
    placement.assign(compile_rows(prepared, np.arange(1000), [np.arange(1000)]))
    later = placement.assign(compile_rows(prepared, np.arange(1000), [np.arange(5000, 6000)]))
    assert later.sum() == 1000
    assert later.sum(axis=0).max() < 1.2 * 250


def test_strings_that_share_their_beginning_are_still_told_apart_by_equality() -> None:
    texts = [f"url = 'https://example.org/{n % 50}'" for n in range(200)]
    held = EventSpace(4).assign(table_of(texts))
    assert held.sum() == 200
    assert held.sum(axis=0).max() <= 60


def test_few_registrations_are_in_all_slices_until_there_are_enough() -> None:
    rng = random.Random(3)
    placement = EventSpace(3)
    copies = []
    for portion in range(20):
        texts = [f"x = {rng.randrange(1000)}" for _ in range(10)]
        copies.append(int(placement.assign(table_of(texts, portion * 10)).sum()))
    assert copies == [30] * 12 + [10] * 8


def test_without_a_dimension_that_tells_apart_it_is_replicated() -> None:
    table = table_of([f"text LIKE '%{n}%'" for n in range(200)])
    assert EventSpace(3).assign(table).all()
    assert selective_share(table, 3) == 0.0


def test_the_selective_share_counts_registrations_that_are_not_everywhere() -> None:
    texts = [f"x = {n}" for n in range(150)] + [f"text LIKE '%{n}%'" for n in range(50)]
    assert selective_share(table_of(texts), 4) == 0.75
    assert selective_share(table_of([]), 4) == 0.0
