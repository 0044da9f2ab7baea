"""`Matcher.match` in every form equals the reference filter, on random filters and events."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from culver import Matcher
from culver.matching import predicate_of
from culver.model import COLUMNAR, Event, Kind
from culver.model.columns import encode
from culver.plugins import filter_named
from support.events import random_event_json
from support.filters import random_filter, random_literal
from support.tables import random_table

SEEDS = st.integers(0, 2**32)


@pytest.fixture(scope="module", autouse=True)
def threads_of_polars() -> None:
    """Polars starts threads when it is first used, and keeps them."""
    polars.DataFrame({"a": [1]}).select("a").to_arrow()


def reference(filters: dict[str, str], events: Sequence[Event]) -> list[list[str]]:
    """The ids that each event matches, by the slow and obviously right filter."""
    ids = list(filters)
    slow = filter_named("reference")()
    slow.add((number, predicate_of(filters[each], COLUMNAR)) for number, each in enumerate(ids))
    found: list[list[str]] = []
    for batch in encode(events, 0):
        matches = slow.match(batch)
        for row in range(batch.num_rows):
            numbers = matches.numbers[matches.offsets[row] : matches.offsets[row + 1]]
            found.append([ids[number] for number in sorted(numbers.tolist())])
    return found


def random_filters(rng: random.Random, count: int) -> dict[str, str]:
    return {f"id {rng.randrange(10**9)}": random_filter(rng) for _ in range(count)}


def matcher_of(filters: dict[str, str]) -> Matcher:
    matcher = Matcher()
    for each, text in filters.items():
        matcher.add(each, text)
    return matcher


def events_of(documents: Sequence[Any]) -> list[Event]:
    from culver.matcher.event_values import event_of

    return [event_of(each) for each in documents]


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_dictionaries(seed: int) -> None:
    rng = random.Random(seed)
    filters, documents = random_filters(rng, 40), [random_event_json(rng) for _ in range(20)]
    wanted = reference(filters, events_of(documents))
    with matcher_of(filters) as matcher:
        assert [matcher.match(each) for each in documents] == wanted
        assert matcher.match(documents) == wanted
        pairs = [(row, each) for row, ids in enumerate(wanted) for each in ids]
        assert [(each["row"], each["id"]) for each in matcher.match_pairs(documents).to_pylist()] == pairs


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_tables(seed: int) -> None:
    rng = random.Random(seed)
    filters = random_filters(rng, 40)
    table, rows = random_table(rng, rng.randrange(30))
    wanted = reference(filters, events_of(rows))
    with matcher_of(filters) as matcher:
        assert matcher.match(table).to_pylist() == wanted
        assert matcher.match(rows) == wanted
        for batch in table.to_batches()[:1]:
            assert matcher.match(batch).to_pylist() == wanted[: batch.num_rows]
        pairs = [(row, each) for row, ids in enumerate(wanted) for each in ids]
        assert [(each["row"], each["id"]) for each in matcher.match_pairs(table).to_pylist()] == pairs


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS)
def test_infinities_compare_as_numbers(seed: int) -> None:
    rng = random.Random(seed)
    filters = random_filters(rng, 40)
    drawn = [{name: rng.choice((math.inf, -math.inf, 0.0, 1.5, 2.5)) for name in "abc"} for _ in range(12)]
    with matcher_of(filters) as matcher:
        found = matcher.match(pa.Table.from_pylist(drawn)).to_pylist()
    assert found == reference(filters, [Event({}, each, b"") for each in drawn])


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS)
def test_dictionaries_against_ranges_and_equality(seed: int) -> None:
    """Filters without constraints that are worked out for columns: one event takes the quick way."""
    rng = random.Random(seed)
    texts = (
        "a >= {0} AND b < {1}",
        "d = {2}",
        "d > {2} AND c <= {1}",
        "f",
        "h > {3}",
        "data.a = {0} OR data.d >= {2}",
    )
    filters = {
        f"id{number}": rng.choice(texts).format(
            random_literal(rng, Kind.INTEGER),
            random_literal(rng, Kind.REAL),
            random_literal(rng, Kind.STRING),
            random_literal(rng, Kind.TIMESTAMP),
        )
        for number in range(50)
    }
    documents = [random_event_json(rng) for _ in range(20)]
    documents += [{"d": "é" * 2000, "e": "x" * 3000, "a": 2}, {}]
    with matcher_of(filters) as matcher:
        assert [matcher.match(each) for each in documents] == reference(filters, events_of(documents))


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_frames_of_pandas_and_polars(seed: int) -> None:
    rng = random.Random(seed)
    filters = random_filters(rng, 30)
    rows = [
        {"a": rng.randrange(5), "c": rng.choice((0.5, 2.5, None)), "d": rng.choice(("a", "ab", None))}
        for _ in range(9)
    ]
    wanted = reference(filters, events_of(rows))
    index = pandas.Index(range(100, 109))
    with matcher_of(filters) as matcher:
        series = matcher.match(pandas.DataFrame(rows, index=index))
        assert series.index.equals(index)
        assert series.tolist() == wanted
        assert matcher.match(polars.DataFrame(rows)).to_list() == wanted


@settings(deadline=None, max_examples=25)
@given(seed=SEEDS)
def test_filters_come_and_go_and_are_saved(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    path = tmp_path_factory.getbasetemp() / f"{seed}.matcher"
    filters: dict[str, str] = {}
    matcher = Matcher()
    for _ in range(rng.randrange(1, 12)):
        step = rng.random()
        if step < 0.4:
            for each, text in random_filters(rng, rng.randrange(1, 20)).items():
                filters[each] = text
                matcher.add(each, text)
        elif step < 0.55:
            values = [(rng.randrange(5), rng.choice(("a", "ab", "b'"))) for _ in range(rng.randrange(4))]
            ids = matcher.add_many("a >= ? AND d = ?", values)
            for each, (number, word) in zip(ids, values, strict=True):
                quoted = word.replace("'", "''")
                filters[each] = f"a >= {number} AND d = '{quoted}'"
        elif step < 0.75:
            for each in rng.sample(list(filters), min(len(filters), rng.randrange(10))):
                del filters[each]
                matcher.remove(each)
        else:
            matcher.save(path)
            if rng.random() < 0.7:
                matcher.close()
                matcher = Matcher.open(path)
        documents = [random_event_json(rng) for _ in range(3)]
        assert matcher.match(documents) == reference(filters, events_of(documents))
        assert list(matcher) == list(filters)
        assert len(matcher) == len(filters)
    assert {each: predicate_of(matcher.filter(each), COLUMNAR).clauses for each in matcher} == {
        each: predicate_of(text, COLUMNAR).clauses for each, text in filters.items()
    }
    matcher.close()
    path.unlink(missing_ok=True)
