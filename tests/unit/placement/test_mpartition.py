import json
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from culver.bench.workloads import named
from culver.matching.index.compile.bulk_compiler import compile_rows
from culver.matching.index.compile.clause_table import ClauseTable
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.matching.index.compile.key_lines import KeyLine, real_key
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.prepared_filter import prepare
from culver.model.values import Value
from culver.placement.divisions.dimension_choice import DivisionOptions
from culver.placement.divisions.range_division import shown
from culver.placement.expected_cost import estimate_cost, is_clearly_better
from culver.placement.mpartition import REST, EventSpace, MPartition, OneDimension
from culver.placement.placement import NOWHERE


def table_of(texts: Sequence[str], first: int = 0) -> ClauseTable:
    return compile_entries(Entry(number, parse(text)) for number, text in enumerate(texts, first))


def candidates_of(placement: MPartition, *events: dict[str, Value]) -> list[list[int]]:
    """The candidates of each event in the first layer."""
    choice = placement.route(concat(encode([Event({}, data, b"{}") for data in events], 0))).choices[0]
    return [row[row != NOWHERE].tolist() for row in choice]


def sets_of(placement: MPartition, text: str) -> list[int]:
    found: list[int] = np.flatnonzero(placement.assign(table_of([text], 10**6))[0]).tolist()
    return found


def dimensions_of(placement: MPartition) -> list[set[str]]:
    return [{division.dimension[0] for division in layer.divisions} for layer in placement.layers]


@pytest.fixture(scope="module")
def by_price() -> EventSpace:
    """Cut at 250, 500 and 750, nearly; slice i's set is i + 1."""
    texts = [f"price BETWEEN {n} AND {n + 0.5} AND size > {n % 7}" for n in range(1000)]
    return EventSpace.learnt(table_of(texts), 4)


@pytest.fixture(scope="module")
def boxes() -> MPartition:
    """Boxes of 20 x 20 on a square of 1000, both dimensions cut at 250, 500 and 750, nearly."""
    rng = random.Random(4)
    texts = []
    for _ in range(2000):
        x, y = rng.uniform(0, 980), rng.uniform(0, 980)
        texts.append(f"x BETWEEN {x} AND {x + 20} AND y BETWEEN {y} AND {y + 20}")
    return MPartition.learnt(table_of(texts), 4)


def test_an_event_goes_to_the_set_of_its_value(by_price: EventSpace) -> None:
    assert dimensions_of(by_price) == [{"price"}]
    events: list[dict[str, Value]] = [{"price": 100}, {"price": 400.5}, {"price": 600}, {"price": 1e9}]
    assert candidates_of(by_price, *events) == [[1], [2], [3], [4]]


def test_without_a_value_of_the_right_type_an_event_only_goes_to_the_rest(by_price: EventSpace) -> None:
    events: list[dict[str, Value]] = [{}, {"price": "100"}, {"price": True}, {"size": 3}]
    assert candidates_of(by_price, *events) == [[]] * 4


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("price < 100", [1]),
        ("price > 600 AND size = 3", [3, 4]),
        ("price = 300 OR price > 900", [2, 4]),
        ("price = 300 OR size > 900", [REST]),
        ("NOT price > 600", [REST]),  # more than half
        ("price BETWEEN 10 AND 800", [REST]),
        ("price <> 300", [REST]),
        ("price IS NULL", [REST]),
        ("price IS NOT NULL", [REST]),
        ("price IN (100, 900)", [1, 4]),
        ("price + 1 > 1000", [REST]),
        ("price = '300'", [REST]),
        ("price = 9007199254740993", [REST]),  # on another line
        ("TRUE", [REST]),
    ],
)
def test_a_registration_is_where_its_clauses_reach(by_price: EventSpace, text: str, sets: list[int]) -> None:
    assert sets_of(by_price, text) == sets


def test_what_nothing_satisfies_is_in_one_set_all_the_same(by_price: EventSpace) -> None:
    assert len(sets_of(by_price, "price > 0 AND price < 5e-324")) == 1


def test_dimensions_start_at_different_slices_and_give_two_candidates(boxes: MPartition) -> None:
    assert dimensions_of(boxes) == [{"x", "y"}]
    firsts = [division.owners[0] for division in boxes.layers[0].divisions]
    assert firsts == [0, 2]
    (at_a_corner,) = candidates_of(boxes, {"x": 10, "y": 10})
    assert boxes.homes[at_a_corner].tolist() == [0, 2]


def test_where_both_candidates_are_of_one_slice_its_neighbour_has_a_backup(boxes: MPartition) -> None:
    first, second = (division.dimension[0] for division in boxes.layers[0].divisions)
    (candidates,) = candidates_of(boxes, {first: 10, second: 600})
    assert boxes.homes[candidates].tolist() == [0, 0, 1]
    both = sets_of(boxes, f"{first} BETWEEN 5 AND 15 AND {second} BETWEEN 590 AND 610")
    assert both == candidates
    only_one = sets_of(boxes, f"{first} BETWEEN 5 AND 15 AND {second} BETWEEN 10 AND 20")
    assert len(only_one) == 2


def test_without_a_value_in_one_dimension_an_event_has_no_candidate(boxes: MPartition) -> None:
    assert candidates_of(boxes, {"x": 10}, {"y": 10}, {"x": 10, "y": "10"}) == [[], [], []]


def test_one_slice_has_nothing_to_divide() -> None:
    texts = [f"x = {n} AND y = {n * 7 % 1000}" for n in range(1000)]
    alone = MPartition.learnt(table_of(texts), 1)
    assert not alone.layers
    assert alone.homes.tolist() == [-1]


def test_applications_have_layers_of_their_own() -> None:
    trades = [f"symbol = 's{n % 60}' AND qty > {n}" for n in range(400)]
    cars = [
        f"lat BETWEEN {n} AND {n + 5} AND long BETWEEN {n * 3 % 360} AND {n * 3 % 360 + 5}"
        for n in range(360)
    ]
    placement = MPartition.learnt(table_of([*trades, *cars, "TRUE"]), 4)
    assert sorted(map(sorted, dimensions_of(placement))) == [["lat", "long"], ["symbol"]]
    assert placement.assign(table_of([*trades, *cars, "TRUE"]))[:, REST].sum() == 1


def test_equalities_are_dealt_out_evenly_in_buckets() -> None:
    table = table_of(named("W2").filters(3000, 1))
    placement = EventSpace.learnt(table, 4)
    (division,) = placement.layers[0].divisions
    assert (division.dimension[0], division.kind) == ("symbol", "buckets")
    sizes = placement.assign(table).sum(axis=0)
    assert sizes[1:].max() < 1.03 * sizes[1:].mean()
    assert 0.1 < sizes[REST] / 3000 < 0.2  # 15 % have no symbol


def test_values_that_come_later_are_spread_where_filters_are_equalities() -> None:
    prepared = prepare("order_number = ?")
    placement = EventSpace.learnt(compile_rows(prepared, np.arange(1000), [np.arange(1000)]), 4)
    later = placement.assign(compile_rows(prepared, np.arange(1000), [np.arange(5000, 6000)]))
    assert later.sum() == 1000
    assert later.sum(axis=0).max() < 1.2 * 250


def test_strings_that_share_their_beginning_are_still_told_apart_by_equality() -> None:
    table = table_of([f"url = 'https://example.org/{n % 50}'" for n in range(200)])
    held = EventSpace.learnt(table, 4).assign(table)
    assert held.sum() == 200
    assert held.sum(axis=0).max() <= 60


def test_a_few_registrations_and_what_no_dimension_tells_apart_are_in_the_rest() -> None:
    few = table_of([f"x = {n}" for n in range(100)])
    patterns = table_of([f"text LIKE '%{n}%'" for n in range(200)])
    for table in (few, patterns):
        assert MPartition.learnt(table, 3).layers == ()
        assert MPartition.learnt(table, 3).assign(table)[:, REST].all()


def test_equal_widths_are_of_values_and_not_of_keys() -> None:
    rng = random.Random(8)
    ends = [0.001, 1000.0, *(rng.uniform(0.001, 1000) for _ in range(300))]
    table = table_of([f"x BETWEEN {low} AND {low + 0.0001}" for low in ends])
    (dimension,) = OneDimension.learnt(table, 4).describe()[0]
    assert [each["below"] for each in dimension["segments"][:-1]] == pytest.approx([250, 500, 750], abs=0.01)


def test_segments_are_described_in_values(by_price: EventSpace) -> None:
    (dimension,) = by_price.describe()[0]
    assert json.loads(json.dumps(dimension)) == dimension
    assert (dimension["attribute"], dimension["type"], dimension["divided_by"]) == (
        "price",
        "numbers",
        "ranges",
    )
    first, *_, last = dimension["segments"]
    assert (first["slice"], first["from"], last["slice"], last["below"]) == (0, None, 3, None)
    assert first["below"] == pytest.approx(250, abs=5)


@pytest.mark.parametrize(
    ("key", "line", "value"),
    [
        (real_key(math.nextafter(10.0, 11.0)), KeyLine.NUMBERS, 10.0),
        (real_key(-0.5), KeyLine.REALS, -0.5),
        (9007199254740993, KeyLine.INTEGERS, 9007199254740993),
        (1, KeyLine.BOOLEANS, True),
        (1_700_000_000_000_000, KeyLine.TIMESTAMPS, "2023-11-14T22:13:20+00:00"),
        (int.from_bytes(b"northern") - 2**63, KeyLine.STRINGS, "northern"),
        (int.from_bytes("h\u00e9".encode().ljust(8, b"\0")) - 2**63, KeyLine.STRINGS, "h\u00e9"),
    ],
)
def test_every_type_of_boundary_can_be_shown(key: int, line: KeyLine, value: Value) -> None:
    assert shown(key, line) == value


def test_sets_that_are_uneven_are_worth_more_where_events_can_choose() -> None:
    workload = named("W1")
    table, events = table_of(workload.filters(1500, 3)), workload.event_batch(1000, 4)
    blind, seeing = MPartition.learnt(table, 8), MPartition.learnt(table, 8, events)
    one, baseline = EventSpace.learnt(table, 8, events), OneDimension.learnt(table, 8, events)
    paces = [estimate_cost(each, table, events).busiest for each in (seeing, blind, one, baseline)]
    assert paces == sorted(paces)
    assert paces[0] < 0.7 * paces[1] < 0.7 * paces[3]
    assert is_clearly_better(seeing, blind, table, events)
    assert not is_clearly_better(blind, seeing, table, events)


def test_dimensions_are_limited_as_asked() -> None:
    table = table_of(named("W1").filters(500, 3))
    sizes = [
        len(MPartition.learnt(table, 4, None, DivisionOptions(most)).layers[0].divisions)
        for most in (1, 2, 3, 4)
    ]
    assert sizes == [1, 2, 3, 4]


def test_dimensions_are_not_added_beyond_what_a_slice_may_hold() -> None:
    table = table_of(named("W1").filters(1000, 3))
    held = [
        estimate_cost(MPartition.learnt(table, 4, None, DivisionOptions(fullest=most)), table).fullest
        for most in (0.1, 1.3, 9)
    ]
    assert held == sorted(held)
    assert held[0] < 1 < held[1] < 1.5 < held[2]  # one dimension, two, all four; backups are extra


@pytest.mark.parametrize("key", [-(2**63), 2**63 - 1, 253_402_300_800_000_000])
def test_cuts_beyond_what_a_date_can_be_are_shown(key: int) -> None:
    assert str(shown(key, KeyLine.TIMESTAMPS)).startswith(("0001-01-01T", "9999-12-31T23:59:59"))
