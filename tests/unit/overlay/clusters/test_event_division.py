from random import Random

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from culver.config import FilterSettings
from culver.model.language import matching_clause, parse
from culver.model.values import Timestamp, Value
from culver.overlay.clusters.layout.event_division import EventDivision
from support.events import NAMES, REALS, SMALL_INTEGERS, STRINGS, random_event
from support.filters import random_filter

SYMBOLS = EventDivision(1, 3, 2, "symbol", (("A", 0), ("B", 1), ("C", 0)))
PRICES = EventDivision(1, 3, 2, "price", (), (10, 20.5), (0, 1, 0))


def parts(division: EventDivision, text: str) -> set[int]:
    return division.parts_of(parse(text, FilterSettings()).clauses)


def drawn_division(random: Random) -> EventDivision:
    name = random.choice(NAMES)
    number = random.randrange(1, 4)
    if random.random() < 0.5:
        listed = sorted(random.sample(sorted(set(STRINGS)), random.randrange(1, 5)))
        values = tuple((text, random.randrange(number)) for text in listed)
        return EventDivision(0, number, random.randrange(number), name, values)
    bounds = sorted(random.sample(sorted({*REALS, *SMALL_INTEGERS}), random.randrange(1, 5)))
    intervals = tuple(random.randrange(number) for _ in range(len(bounds) + 1))
    return EventDivision(0, number, random.randrange(number), name, (), tuple(bounds), intervals)


@given(st.integers(0, 1 << 32))
@settings(max_examples=100, deadline=None)
def test_no_part_with_a_matching_event_is_missed(seed: int) -> None:
    random = Random(seed)
    division = drawn_division(random)
    events = [random_event(random) for _ in range(10)]
    for _ in range(3):
        predicate = parse(random_filter(random), FilterSettings())
        found = division.parts_of(predicate.clauses)
        for event in events:
            if matching_clause(predicate, event) is not None:
                assert division.part_of(event.value) in found


def test_an_event_is_in_the_part_of_its_value() -> None:
    values: tuple[dict[str, Value], ...] = (
        {"symbol": "A"},
        {"symbol": "B"},
        {"symbol": "D"},
        {"symbol": 7},
        {},
    )
    assert [SYMBOLS.part_of(value.get) for value in values] == [0, 1, 2, 2, 2]
    prices: tuple[Value, ...] = (9, 10, 20, 20.5, 2**53 + 1, True, "10", Timestamp(10))
    assert [PRICES.part_of({"price": value}.get) for value in prices] == [0, 1, 1, 0, 0, 2, 2, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symbol = 'A'", {0}),
        ("symbol IN ('A', 'C')", {0}),
        ("symbol = 'X'", {2}),
        ("symbol IN ('B', 'X')", {1, 2}),
        ("symbol LIKE 'B%'", {1, 2}),
        ("symbol <> 'B'", {0, 2}),
        ("symbol < 'B'", {0, 2}),
        ("symbol > 'A' AND symbol < 'C'", {1, 2}),
        ("symbol = 5", {2}),
        ("symbol IS NULL", {2}),
        ("symbol IS NOT NULL", {0, 1, 2}),
        ("price > 5", {0, 1, 2}),
        ("symbol = 'A' OR price > 5", {0, 1, 2}),
        ("symbol = other", {0, 1, 2}),
        ("symbol = 'A' AND price = 3", {0}),
    ],
)
def test_a_division_of_strings_knows_where_clauses_match(text: str, expected: set[int]) -> None:
    assert parts(SYMBOLS, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price < 10", {0}),
        ("price <= 10", {0, 1}),
        ("price = 10", {1}),
        ("price BETWEEN 11 AND 12", {1}),
        ("price > 20", {0, 1}),
        ("price >= 20.5", {0}),
        ("price <> 3", {0, 1}),
        ("price = 'x'", {2}),
        ("price IS NULL", {2}),
        ("price IS NOT NULL", {0, 1, 2}),
        ("'x' IN price", {2}),
    ],
)
def test_a_division_of_numbers_knows_where_clauses_match(text: str, expected: set[int]) -> None:
    assert parts(PRICES, text) == expected


def test_an_undivided_space_has_one_part() -> None:
    assert parts(EventDivision(), "price < 10") == {0}
    assert EventDivision().part_of({"price": 1}.get) == 0


def test_a_division_survives_the_wire() -> None:
    for division in (SYMBOLS, PRICES, EventDivision()):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(division), type=EventDivision) == division


@pytest.mark.parametrize(
    "fields",
    [
        [1, 0],
        [1, 99],
        [1, 2, 5],
        [1, 2, 0, "x", [["b", 0], ["a", 1]]],
        [1, 2, 0, "x", [["a", 0], ["a", 1]]],
        [1, 2, 0, "x", [["a", 7]]],
        [1, 2, 0, "x", [], [1, 2], [0, 1]],
        [1, 2, 0, "x", [], [2, 1], [0, 1, 0]],
        [1, 2, 0, "x", [], [float("nan")], [0, 1]],
        [1, 2, 0, "x", [], [float("inf")], [0, 1]],
        [1, 2, 0, "x", [["a", 0]], [1], [0, 1]],
        [-1],
    ],
)
def test_a_division_that_contradicts_itself_is_refused(fields: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=EventDivision)
