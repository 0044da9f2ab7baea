"""The aggregate of a site's predicates: whatever was added in whatever order, and never too narrow."""

import random
import time
from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from culver.errors import InvalidConfiguration, InvalidFilter
from culver.matching.encoded import row_widening
from culver.matching.encoded.encoded_predicate import NOTHING, EncodedPredicate
from culver.matching.encoded.forms import CategoryForm
from culver.matching.encoded.predicate_delta import apply_delta, delta
from culver.matching.encoded.predicate_summary import PredicateSummary
from culver.model.columns import column_of_values, values_at
from culver.model.event import Event
from culver.model.language import Clause, evaluate, parse, prepare
from culver.model.values import Value
from support.encoding import event_vector, is_within
from support.events import random_event
from support.filters import random_filter


def clauses(text: str) -> tuple[Clause, ...]:
    return parse(text).clauses


def summary_of(*texts: str, max_vectors: int = 4096) -> PredicateSummary:
    summary = PredicateSummary(max_vectors=max_vectors)
    for number, text in enumerate(texts):
        summary.add(number, clauses(text))
    return summary


def matches(predicate: EncodedPredicate, event: Event) -> bool:
    forms = [CategoryForm.parse(form) for form in predicate.forms]
    return is_within(predicate, event_vector(event, forms, predicate.bits, predicate.hashes))


def covers(one: bytes, other: bytes) -> bool:
    return int.from_bytes(one, "little") & ~int.from_bytes(other, "little") == 0


def test_without_predicates_nothing_matches() -> None:
    summary = PredicateSummary()
    assert summary.encode() == NOTHING
    summary.add(1, clauses("FALSE"))
    assert summary.encode() == NOTHING


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="cells, paper"):
        PredicateSummary("magic")


def test_a_number_is_added_once_and_unknown_ones_are_ignored() -> None:
    summary = summary_of("x = 1")
    before = summary.encode()
    summary.add(0, clauses("x = 2"))
    summary.remove(17)
    assert summary.encode() is before
    summary.remove(0)
    assert summary.encode() == NOTHING


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("price > 20", "price > 30"),
        ("price > 20", "price >= 20.5 AND price < 21"),
        ("price >= 20", "price > 20"),
        ("s = 'a' AND price < 9", "s = 'a' AND price BETWEEN 1 AND 2"),
        ("x = 1", "x = 1 AND y = 2"),
        ("x IS NOT NULL", "x IS NOT NULL AND y LIKE 'a%'"),
        ("TRUE", "x = 1"),
    ],
)
def test_what_is_covered_is_dropped_and_comes_back(wide: str, narrow: str) -> None:
    summary = summary_of(wide, narrow)
    assert summary.encode() == summary_of(wide).encode()
    summary.remove(0)
    assert summary.encode() == summary_of(narrow).encode()


def test_overlapping_ranges_both_stay() -> None:
    assert len(summary_of("x BETWEEN 0 AND 10", "x BETWEEN 1000 AND 1003").encode().vectors) == 2
    assert summary_of("x < 5", "x > 3").encode() != summary_of("x < 5").encode()


def test_changes_in_any_order_give_what_a_fresh_summary_gives() -> None:
    rng = random.Random(11)
    for round_number in range(8):
        texts = {number: random_filter(rng) for number in range(30)}
        most = rng.choice((3, 8, 4096))
        summary = PredicateSummary(max_vectors=most)
        present: set[int] = set()
        for _ in range(80):
            number = rng.randrange(30)
            if number in present:
                summary.remove(number)
            else:
                summary.add(number, clauses(texts[number]))
            present ^= {number}
            if rng.random() < 0.2:
                summary.encode()
        fresh = PredicateSummary(max_vectors=most)
        for number in rng.sample(sorted(present), len(present)):
            fresh.add(number, clauses(texts[number]))
        assert summary.encode() == fresh.encode(), round_number


@pytest.mark.parametrize("most", [1, 4, 16])
def test_too_many_vectors_become_fewer_and_never_too_narrow(most: int) -> None:
    rng = random.Random(12)
    predicates = [parse(random_filter(rng)) for _ in range(60)]
    predicates = [each for each in predicates if () not in each.clauses]
    summary = PredicateSummary(max_vectors=most)
    for number, predicate in enumerate(predicates):
        summary.add(number, predicate.clauses)
    found = summary.encode()
    assert 0 < len(found.vectors) <= most
    for event in (random_event(rng) for _ in range(60)):
        if any(evaluate(each.condition, event) is True for each in predicates):
            assert matches(found, event)


def test_vectors_are_widened_to_what_they_have_in_common() -> None:
    texts = [f"symbol = 'S' AND id = {number}" for number in range(50)]
    found = summary_of(*texts, "size = 7", max_vectors=8).encode()
    assert found == summary_of("symbol = 'S'", "size = 7").encode()


def test_single_categories_become_existence_where_there_are_too_many() -> None:
    found = summary_of(*(f"id = {number}" for number in range(50)), "size = 7", max_vectors=8).encode()
    assert found.forms == ("equal:number:size", "exists:number:id")


def test_no_vector_covers_another() -> None:
    rng = random.Random(13)
    summary = PredicateSummary(false_positive_rate=0.9)
    for number in range(400):
        ids = f"a = {rng.randrange(99)} AND b = {rng.randrange(99)}"
        summary.add(number, clauses(f"{ids} AND c = {rng.randrange(9)}" if number % 2 else ids))
    vectors = summary.encode().vectors
    assert len(vectors) > 100
    assert not any(covers(one, other) for one in vectors for other in vectors if one != other)


def test_rarely_used_levels_become_coarser_ones() -> None:
    widths = [(0, 2**level - 1) for level in (2, 4, 6, 8, 10, 12, 14)]
    texts = [f"kind = {low + 5 * n} AND x BETWEEN {low} AND {high}" for n, (low, high) in enumerate(widths)]
    found = summary_of(*texts, *(f"kind = {n} AND x BETWEEN 0 AND 15" for n in range(100, 110))).encode()
    levels = [CategoryForm.parse(form).level for form in found.forms if form.startswith("cell")]
    assert len(levels) == 4
    assert 4 in levels
    for n, (low, high) in enumerate(widths):
        assert matches(found, Event({}, {"kind": low + 5 * n, "x": high}, b"{}"))


# --- rows -----------------------------------------------------------------------------------------------

ROW_FILTERS = (
    ("symbol = ? AND price > ?", ("s", "n")),
    ("symbol = ? AND price BETWEEN ? AND 50", ("s", "n")),
    ("NOT (price < ? OR symbol = ?)", ("n", "s")),
    ("price IN (?, 3) OR NOT (price <> ?)", ("n", "n")),
    ("price + size < ? AND flag = ?", ("n", "b")),
    ("symbol > ? OR symbol <> 'S1' AND price <= ?", ("s", "n")),
    ("at >= ? AND at < ?", ("t", "t")),
    ("symbol = ?", ("s",)),
)


def column(kind: str, rows: int, rng: random.Random) -> pa.Array:
    if kind == "t":
        return pa.array([rng.randrange(100) for _ in range(rows)], pa.int64()).cast(
            pa.timestamp("us", tz="UTC")
        )
    draw: Callable[[], object] = {
        "s": lambda: f"S{rng.randrange(rng.choice((3, 30)))}",
        "n": lambda: rng.randrange(60),
        "b": lambda: rng.random() < 0.5,
    }[kind]
    return column_of_values([draw() for _ in range(rows)], 1)


@pytest.mark.parametrize(("text", "kinds"), ROW_FILTERS)
@pytest.mark.parametrize("most_rows", [0, 2_000])
def test_events_that_match_a_row_match_the_block(
    text: str, kinds: tuple[str, ...], most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_widening, "_MOST_ROWS", most_rows)
    rng = random.Random(14)
    prepared = prepare(text)
    columns = tuple(column(kind, 20, rng) for kind in kinds)
    summary = PredicateSummary()
    summary.add_rows(7, prepared, columns)
    found = summary.encode()
    conditions = [prepared.bind(values_at(columns, row)).condition for row in range(20)]
    for _ in range(80):
        data: dict[str, Value] = {
            "symbol": f"S{rng.randrange(40)}",
            "price": rng.randrange(70),
            "size": rng.randrange(9),
            "flag": rng.random() < 0.5,
            "at": values_at((column("t", 1, rng),), 0)[0],
        }
        event = Event({}, {name: value for name, value in data.items() if rng.random() < 0.8}, b"{}")
        if any(evaluate(condition, event) is True for condition in conditions):
            assert matches(found, event), (text, event.data)
    summary.remove(7)
    assert summary.encode() == NOTHING


def test_a_large_block_is_widened_quickly() -> None:
    rng = np.random.default_rng(15)
    symbols = pa.array([f"S{number}" for number in range(200)]).take(pa.array(rng.integers(0, 200, 200_000)))
    columns = (symbols, pa.array(rng.uniform(40, 90, 200_000)))
    summary = PredicateSummary()
    began = time.thread_time()
    summary.add_rows(1, prepare("symbol = ? AND price > ?"), columns)
    found = summary.encode()
    assert time.thread_time() - began < 1
    assert found.forms == ("exists:string:symbol", "least:number:price:26")


# --- differences ----------------------------------------------------------------------------------------


def test_a_difference_leads_from_one_advertisement_to_the_next() -> None:
    rng = random.Random(16)
    summary = summary_of(*(f"symbol = 'S{n}' AND price > {n}" for n in range(40)))
    for number in range(100, 140):
        before = summary.encode()
        summary.add(number, clauses(f"symbol = 'T{rng.randrange(20)}' AND price > {rng.randrange(90)}"))
        summary.remove(rng.choice((number - 100, number - 1, number)))
        after = summary.encode()
        change = delta(before, after)
        assert change is not None
        assert apply_delta(before, change) == after
        assert len(change.added) <= 2
        if before != after:
            with pytest.raises(InvalidFilter, match="another"):
                apply_delta(after, change)


def test_other_parameters_take_a_whole_advertisement() -> None:
    one = summary_of("x = 1").encode()
    assert delta(NOTHING, one) is None
    assert delta(one, PredicateSummary("paper").encode()) is None
    same = delta(one, one)
    assert same is not None
    assert apply_delta(one, same) == one


def test_a_damaged_difference_is_refused() -> None:
    before, after = (summary_of("x = 1", text).encode() for text in ("y = 2", "z = 'a' AND y = 3"))
    change = delta(before, after)
    assert change is not None
    assert apply_delta(before, change) == after
    size = before.bits // 8
    for damaged in (
        {"removed": ()},
        {"removed": (0, 1, 10**9)},
        {"added": ()},
        {"added": (b"short",)},
        {"added": (*change.added, *change.added)},
        {"added": (bytes(size),)},
        {"forms": ()},
        {"forms": ("magic",)},
        {"result": "0" * 16},
    ):
        with pytest.raises(InvalidFilter):
            apply_delta(before, msgspec.structs.replace(change, **damaged))
