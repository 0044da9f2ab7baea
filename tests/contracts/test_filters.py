"""What every filter promises, run on all of them but `encoded`, which promises less (see `test_encoded_filter`)."""

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from culver.matching.filter import Filter, Matches
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import Constant, Predicate, evaluate
from culver.model.values import Timestamp, Value
from culver.plugins import EXACT_FILTERS, filter_named
from support.events import random_event
from support.filters import random_filter

MakeFilter = Callable[[], Filter]
SEED = 20_240_607


@pytest.fixture(params=EXACT_FILTERS)
def make_filter(request: pytest.FixtureRequest) -> MakeFilter:
    name: str = request.param
    return filter_named(name)


def batch_of(*events: dict[str, Value]) -> pa.RecordBatch:
    return concat(encode([Event({}, data, b"{}") for data in events], 0))


def rows(matches: Matches) -> list[list[int]]:
    bounds = matches.offsets.tolist()
    return [sorted(matches.numbers[begin:end].tolist()) for begin, end in itertools.pairwise(bounds)]


def filter_with(make_filter: MakeFilter, *texts: str) -> Filter:
    """A filter with these subscriptions, numbered from 1."""
    made = make_filter()
    made.add((number, parse(text)) for number, text in enumerate(texts, 1))
    return made


def matched(make_filter: MakeFilter, text: str, values: Sequence[Value | None]) -> list[bool]:
    """Whether `text`, a filter on x, matches an event with x = value, for each of them."""
    made = filter_with(make_filter, text)
    events: list[dict[str, Value]] = [{} if value is None else {"x": value} for value in values]
    return [row == [1] for row in rows(made.match(batch_of(*events)))]


def test_the_greatest_integer_lies_above_every_bound(make_filter: MakeFilter) -> None:
    texts = [f"x > {2**53 + 2 + n}" for n in range(40)]
    made = filter_with(make_filter, *texts)
    assert rows(made.match(batch_of({"x": 2**63 - 1}, {"x": -(2**63)}))) == [list(range(1, 41)), []]


def test_without_subscriptions_nothing_matches(make_filter: MakeFilter) -> None:
    made = make_filter()
    matches = made.match(batch_of({"x": 1}, {"x": 2}))
    assert len(made) == 0
    assert matches.offsets.tolist() == [0, 0, 0]
    assert matches.numbers.tolist() == []


def test_matches_are_arrays_of_64_bit_integers(make_filter: MakeFilter) -> None:
    for matches in (
        make_filter().match(batch_of({"x": 1})),
        filter_with(make_filter, "x = 1").match(batch_of({"x": 1})),
    ):
        assert matches.offsets.dtype == np.int64
        assert matches.numbers.dtype == np.int64


def test_an_empty_batch_gives_one_offset(make_filter: MakeFilter) -> None:
    matches = filter_with(make_filter, "x = 1").match(batch_of({"x": 1}).slice(0, 0))
    assert matches.offsets.tolist() == [0]
    assert matches.numbers.tolist() == []


def test_each_event_gets_its_own_numbers(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x > 1", "x > 2", "x > 3")
    assert rows(made.match(batch_of({"x": 1}, {"x": 4}, {"x": 2}))) == [[], [1, 2, 3], [1]]


def test_numbers_ascend_in_whatever_order_they_were_added(make_filter: MakeFilter) -> None:
    made = make_filter()
    for number in (70_000, 3, 900, 1, 2**40):
        made.add([(number, parse("x = 1"))])
    assert rows(made.match(batch_of({"x": 1}))) == [[1, 3, 900, 70_000, 2**40]]


def test_a_subscription_that_matches_by_two_clauses_is_named_once(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x > 1 OR y > 1 OR z = 'a' OR x IN (1, 2, 3)")
    assert rows(made.match(batch_of({"x": 2, "y": 2, "z": "a"}))) == [[1]]


def test_always_true_matches_every_event_and_always_false_none(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "TRUE", "FALSE", "x IS NULL OR x IS NOT NULL")
    assert rows(made.match(batch_of({"x": 1}, {"y": 1}, {}))) == [[1, 3], [1, 3], [1, 3]]


def test_a_predicate_without_clauses_counts_but_never_matches(make_filter: MakeFilter) -> None:
    made = make_filter()
    made.add([(4, Predicate("FALSE", Constant(False), ()))])
    assert len(made) == 1
    assert rows(made.match(batch_of({"x": 1}))) == [[]]


def test_adding_a_number_again_replaces_it(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x = 1")
    assert rows(made.match(batch_of({"x": 1}, {"x": 2}))) == [[1], []]
    made.add([(1, parse("x = 2"))])
    assert len(made) == 1
    assert rows(made.match(batch_of({"x": 1}, {"x": 2}))) == [[], [1]]


def test_of_one_number_added_twice_at_once_the_last_stays(make_filter: MakeFilter) -> None:
    made = make_filter()
    made.add([(1, parse("x = 1")), (1, parse("x = 2"))])
    assert len(made) == 1
    assert rows(made.match(batch_of({"x": 1}, {"x": 2}))) == [[], [1]]


def test_removed_subscriptions_no_longer_match(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x > 0", "x > 0 AND y = 'a'", "x LIKE 'a%'", "y = 'a'")
    made.match(batch_of({"x": 1}))
    made.remove([1, 3])
    assert len(made) == 2
    assert rows(made.match(batch_of({"x": 1, "y": "a"}, {"x": "ab"}))) == [[2, 4], []]


def test_removing_an_unknown_number_changes_nothing(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x = 1")
    made.remove([2, 17])
    assert len(made) == 1
    assert rows(made.match(batch_of({"x": 1}))) == [[1]]


def test_what_was_removed_can_be_added_again(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x = 1", "x = 1")
    made.match(batch_of({"x": 1}))
    made.remove([1])
    made.add([(1, parse("x = 3"))])
    assert rows(made.match(batch_of({"x": 1}, {"x": 3}))) == [[2], [1]]
    made.remove([1, 2])
    assert len(made) == 0
    assert rows(made.match(batch_of({"x": 1}, {"x": 3}))) == [[], []]


def test_a_slice_of_a_batch_is_matched_by_its_own_rows(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x = 2", "s = 'c'", "f = TRUE", "s LIKE '%c'", "'k' IN l")
    whole = batch_of(
        {"x": 2, "s": "c", "f": True, "l": ("k",)},
        {"x": 1.5, "s": "b", "f": False},
        {"x": 2.0, "s": "c", "f": True, "l": ("j", "k")},
        {"s": "a"},
    )
    assert rows(made.match(whole.slice(1, 2))) == [[], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 9007199254740993", [False, True, False, False]),
        ("x > 9007199254740992", [False, True, True, False]),
        ("x >= 9007199254740993", [False, True, True, False]),
        ("x < 9007199254740993", [True, False, False, True]),
        ("x <> 9007199254740992", [False, True, True, False]),
        ("x IN (9007199254740993, 9007199254740994)", [False, True, True, False]),
    ],
)
def test_integers_beyond_2_to_53_stay_apart(make_filter: MakeFilter, text: str, expected: list[bool]) -> None:
    values = [2**53, 2**53 + 1, 2**53 + 2, float(2**53)]
    assert matched(make_filter, text, values) == expected


def test_integer_and_real_compare_exactly(make_filter: MakeFilter) -> None:
    assert matched(make_filter, "x = 5", [5, 5.0, 5.5, True, "5", None]) == [True, True] + [False] * 4
    assert matched(make_filter, "x > 4.5", [4, 5, 4.5, 4.6]) == [False, True, False, True]
    assert matched(make_filter, "x = 0", [0.0, -0.0, 0, 5e-324]) == [True, True, True, False]
    assert matched(make_filter, "x > 0", [-0.0, 5e-324, 0]) == [False, True, False]


def test_missing_and_mistyped_attributes_are_unknown_also_under_not(make_filter: MakeFilter) -> None:
    values: list[Value | None] = [None, "a", 6, True, ("a",), Timestamp(6)]
    assert matched(make_filter, "x > 5", values) == [False, False, True, False, False, False]
    assert matched(make_filter, "NOT x > 5", values) == [False] * 6
    assert matched(make_filter, "NOT (x = 'b')", values) == [False, True, False, False, False, False]


def test_presence_is_of_any_type(make_filter: MakeFilter) -> None:
    values: list[Value | None] = [None, "a", 6, 0.5, False, ("a",), Timestamp(6)]
    assert matched(make_filter, "x IS NULL", values) == [True] + [False] * 6
    assert matched(make_filter, "x IS NOT NULL", values) == [False] + [True] * 6


def test_strings_are_ordered_by_code_point(make_filter: MakeFilter) -> None:
    values = ["", "Z", "a", "ab", "b", "é", "\U0001f600"]
    assert matched(make_filter, "x >= 'a' AND x < 'b'", values) == [False] * 2 + [True] * 2 + [False] * 3
    assert matched(make_filter, "x > 'b'", values) == [False] * 5 + [True] * 2
    assert matched(make_filter, "x LIKE 'a%'", values) == [False] * 2 + [True] * 2 + [False] * 3
    assert matched(make_filter, "x LIKE 'é%' OR x LIKE '%\U0001f600'", values) == [False] * 5 + [True] * 2
    assert matched(make_filter, "x <= ''", values) == [True] + [False] * 6


def test_large_sets_and_negated_sets_hold(make_filter: MakeFilter) -> None:
    members = ", ".join(str(n) for n in range(0, 200, 2))
    assert matched(make_filter, f"x IN ({members})", [4, 5, 4.0, 4.5]) == [True, False, True, False]
    assert matched(make_filter, f"x NOT IN ({members})", [4, 5, 4.0, 4.5]) == [False, True, False, True]


def test_lists_booleans_timestamps_and_arithmetic_match(make_filter: MakeFilter) -> None:
    made = filter_with(
        make_filter,
        "'red' IN tags",
        "NOT ('red' IN tags)",
        "flag = TRUE",
        "at > TIMESTAMP '1970-01-01T00:00:01Z'",
        "a + b > 10",
        "a < b",
    )
    batch = batch_of(
        {"tags": ("blue", "red"), "flag": True, "at": Timestamp(1_000_001), "a": 5, "b": 6},
        {"tags": (), "flag": False, "at": Timestamp(1_000_000), "a": 6, "b": 4.5},
        {"tags": "red", "flag": 1, "at": 2_000_000, "a": 5},
    )
    assert rows(made.match(batch)) == [[1, 3, 4, 5, 6], [2, 5], []]


def test_remainders_agree_with_the_reference_in_long_and_short_batches(make_filter: MakeFilter) -> None:
    rng = random.Random(SEED)
    numbers: tuple[int | float, ...] = (
        *range(-7, 8),
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        0.5,
        -2.5,
        1e300,
        5e-324,
        -0.0,
    )

    def number() -> int | float:
        return rng.choice(numbers)

    operands = ("x", "y", "(x + y)", *(f"({each!r})" for each in numbers if each != -(2**63)))
    texts = [
        f"{rng.choice(('x', 'y', '(x - y)'))} % {rng.choice(operands)} {rng.choice(('=', '<>', '<', '>='))} "
        f"{rng.choice((0, 1, -1, 'y'))}"
        for _ in range(150)
    ]
    made = filter_with(make_filter, *texts)
    predicates = [parse(text) for text in texts]
    for size in (1, 5, 40):
        data: list[dict[str, Value]] = [
            {"x": number(), **({"y": number()} if rng.random() < 0.8 else {})} for _ in range(size)
        ]
        expected = [
            [at for at, each in enumerate(predicates, 1) if evaluate(each.condition, Event({}, event, b"{}"))]
            for event in data
        ]
        assert rows(made.match(batch_of(*data))) == expected


def test_literals_1_and_1_0_differ_in_arithmetic(make_filter: MakeFilter) -> None:
    made = filter_with(make_filter, "x + 1 > y", "x + 1.0 > y")
    assert rows(made.match(batch_of({"x": 2**53, "y": 2**53}))) == [[1]]


def test_many_similar_subscriptions_match_like_single_ones(make_filter: MakeFilter) -> None:
    rng = random.Random(SEED)
    made = make_filter()
    edges: dict[int, tuple[float, float]] = {}
    for number in range(300):
        low = rng.choice([rng.randrange(100), rng.uniform(0, 100)])
        edges[number] = (low, low + rng.randrange(1, 30))
    made.add(
        (n, parse(f"x >= {low!r} AND x < {high!r} AND y >= {low!r}")) for n, (low, high) in edges.items()
    )
    values = [rng.choice([rng.randrange(130), rng.uniform(0, 130)]) for _ in range(60)]
    events: list[dict[str, Value]] = [{"x": value, "y": 120 - value} for value in values]
    found = rows(made.match(batch_of(*events)))
    for value, row in zip(values, found, strict=True):
        assert row == [n for n, (low, high) in edges.items() if low <= value < high and 120 - value >= low]


@pytest.mark.slow(seconds=4)
def test_100_000_random_pairs_agree_with_the_reference_through_changes() -> None:
    rng = random.Random(SEED)
    reference, *others = (filter_named(name)() for name in ("reference", "counting", "columnar"))
    present: list[int] = []
    texts: dict[int, str] = {}
    pairs = 0
    for round_number in range(5):
        gone = rng.sample(present, len(present) // 3)
        added = list(range(round_number * 1000, round_number * 1000 + 240))
        replaced = rng.sample(sorted(set(present) - set(gone)), min(20, len(present) - len(gone)))
        texts.update({number: random_filter(rng) for number in (*added, *replaced)})
        fresh = [(number, parse(texts[number])) for number in (*added, *replaced)]
        present = sorted({*present, *added} - set(gone))
        batch = concat(encode([random_event(rng) for _ in range(60)], 0))
        for each in (reference, *others):
            each.remove(gone)
            each.add(fresh)
            assert len(each) == len(present)
        expected = rows(reference.match(batch))
        pairs += len(present) * batch.num_rows
        for other in others:
            for row, (want, got) in enumerate(zip(expected, rows(other.match(batch)), strict=True)):
                wrong = [texts[number] for number in sorted(set(want) ^ set(got))]
                assert got == want, (SEED, type(other).__name__, round_number, row, wrong)
    assert pairs >= 100_000
