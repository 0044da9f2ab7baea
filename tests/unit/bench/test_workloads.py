"""Each workload has the statistics that its description states, and depends on nothing but its seed."""

import re
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from culver.bench.workloads import WORKLOADS, named
from culver.bench.workloads.news import (
    CLAUSES,
    INTEGER_NAMES,
    NAMES,
    STRING_NAMES,
    NewsWorkload,
    affix,
    terms,
)
from culver.bench.workloads.quotes import DAYS, SYMBOLS, QuotesWorkload, market
from culver.bench.workloads.uniform_ranges import ATTRIBUTES, RangesWorkload
from culver.bench.workloads.workload import RECEIVED_US
from culver.config import FilterSettings
from culver.errors import InvalidConfiguration
from culver.model.columns import event_batch as batches
from culver.model.formats.event_bodies import parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import Between

SEED = 7


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(name: str) -> None:
    workload = named(name)

    def drawn(seed: int) -> tuple[bytes, bytes]:
        return (
            msgspec.json.encode([workload.filters(50, seed), workload.events(50, seed)]),
            workload.event_batch(50, seed).serialize().to_pybytes(),
        )

    assert drawn(SEED) == drawn(SEED)
    assert drawn(SEED)[0] != drawn(SEED + 1)[0]
    assert drawn(SEED)[1] != drawn(SEED + 1)[1]


@pytest.mark.parametrize("name", WORKLOADS)
def test_columns_hold_the_same_values_as_the_objects(name: str) -> None:
    workload = named(name)
    events, batch = workload.events(200, SEED), workload.event_batch(200, SEED)
    assert [msgspec.json.decode(payload) for payload in batch["payload"].to_pylist()] == events
    rows: list[dict[str, Any]] = [{} for _ in events]
    for column in batch.schema.names[2:]:
        for row, value in zip(rows, batch[column].to_pylist(), strict=True):
            if value is not None:
                row[column.split(":", 2)[2]] = value
    assert rows == [{key: _stored(value) for key, value in event.items()} for event in events]


@pytest.mark.parametrize("name", WORKLOADS)
def test_columns_are_those_that_the_model_makes_of_the_objects(name: str) -> None:
    workload = named(name)
    events = [parse_event(msgspec.json.encode(event)) for event in workload.events(200, SEED)]
    made = batches.concat(batches.encode(events, RECEIVED_US))
    drawn = workload.event_batch(200, SEED)
    assert set(drawn.schema.names) == set(made.schema.names)
    assert drawn.select(made.schema.names).equals(made)


@pytest.mark.parametrize(("name", "clauses"), [("W1", 1), ("W2", 1), ("W3", 20)])
def test_filters_are_within_the_default_limits_and_have_the_stated_clauses(name: str, clauses: int) -> None:
    for text in named(name).filters(50, SEED):
        assert len(parse(text, FilterSettings()).clauses) == clauses


def test_w1_filters_are_one_range_for_each_attribute() -> None:
    (clause,) = parse(RangesWorkload().filters(1, SEED)[0], FilterSettings()).clauses
    assert [type(constraint) for constraint in clause] == [Between] * 4


def test_an_unknown_workload_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfiguration, match="known workloads: W1, W2, W3"):
        named("W9")


def test_w1_boxes_are_250_wide_with_centres_inside_the_space() -> None:
    low, high = RangesWorkload().boxes(20_000, SEED)
    centres = (low + high) / 2
    assert np.allclose(high - low, 250)
    assert centres.min() >= 0
    assert centres.max() < 1000
    # The means of normal distributions cropped to the space, by integration of their densities.
    assert np.allclose(centres.mean(axis=0), [252.0, 405.2, 594.8, 748.0], atol=4)


def test_w1_events_match_about_130_of_40_000_subscriptions() -> None:
    workload = RangesWorkload()
    low, high = workload.boxes(40_000, SEED)
    counts = [
        np.count_nonzero(((low <= point) & (point < high)).all(axis=1))
        for point in workload.points(1_000, SEED)
    ]
    assert np.mean(counts) == pytest.approx(130, rel=0.1)


def test_w1_filters_say_what_the_boxes_are() -> None:
    workload = RangesWorkload()
    low, high = workload.boxes(100, SEED)
    for i, text in enumerate(workload.filters(100, SEED)):
        numbers = [float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]
        assert numbers == np.column_stack([low[i], high[i]]).ravel().tolist()
        assert text.count(">=") == text.count(" < ") == len(ATTRIBUTES)


def test_w2_market_has_the_stated_prices_and_volumes() -> None:
    quotes = market()
    returns = np.diff(np.log(quotes.close), axis=1)
    assert quotes.close.shape == (SYMBOLS, DAYS) == (200, 1_260)
    assert returns.mean() == pytest.approx(0.0002, abs=0.0001)
    assert returns.std() == pytest.approx(0.015, rel=0.02)
    assert np.log(quotes.open[:, 1:] / quotes.close[:, :-1]).std() == pytest.approx(0.004, rel=0.02)
    above = np.log(quotes.high / np.maximum(quotes.open, quotes.close))
    below = np.log(np.minimum(quotes.open, quotes.close) / quotes.low)
    for distance in (above, below):
        assert distance.min() >= 0
        assert distance.mean() == pytest.approx(0.006 * np.sqrt(2 / np.pi), rel=0.02)
    levels = np.log(quotes.volume).mean(axis=1)
    assert np.median(levels) == pytest.approx(np.log(2e6), abs=0.15)
    assert levels.std() == pytest.approx(0.5, rel=0.15)
    assert np.log(quotes.close[:, 0]).std() == pytest.approx(0.8, rel=0.15)
    assert np.median(np.log(quotes.close[:, 0])) == pytest.approx(np.log(50), abs=0.2)
    assert len(set(quotes.symbols)) == SYMBOLS
    assert len(set(quotes.dates)) == DAYS


def test_w2_events_match_about_175_of_100_000_subscriptions() -> None:
    workload = QuotesWorkload()
    tables = _w2_tables(workload.filters(100_000, SEED))
    counts = [_w2_matches(tables, event) for event in workload.events(400, SEED)]
    assert np.mean(counts) == pytest.approx(175, rel=0.1)


def test_w2_forms_of_filter_have_the_stated_shares() -> None:
    tables = _w2_tables(QuotesWorkload().filters(100_000, SEED))
    shares = [len(tables[form]) / 100_000 for form in _W2_FORMS]
    assert shares == pytest.approx([0.35, 0.2, 0.2, 0.15, 0.1], abs=0.01)


def test_w3_events_have_ten_of_thirty_attributes_and_six_strings_on_average() -> None:
    events = NewsWorkload().events(5_000, SEED)
    assert (len(STRING_NAMES), len(INTEGER_NAMES), len(set(NAMES))) == (18, 12, 30)
    assert {len(event) for event in events} == {10}
    values = [value for event in events for value in event.values()]
    strings = [value for value in values if isinstance(value, str)]
    integers = [value for value in values if isinstance(value, int)]
    assert len(strings) / len(values) == pytest.approx(0.6, abs=0.01)
    assert (min(integers), max(integers)) == (0, 100)
    uses = [sum(name in event for event in events) for name in NAMES]
    assert min(uses) == pytest.approx(max(uses), rel=0.15)


def test_w3_terms_are_200_words_with_zipf_frequencies() -> None:
    dictionary = terms()
    assert len(set(dictionary)) == 200
    assert {len(term) for term in dictionary} == set(range(3, 13))
    drawn = NewsWorkload().values(20_000, SEED)
    counts = np.bincount(drawn.terms.ravel(), minlength=200)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.1)
    assert counts[1] / counts[3] == pytest.approx(2, rel=0.1)


def test_w3_filters_have_20_clauses_of_1_to_5_constraints_on_different_attributes() -> None:
    lengths = []
    for text in NewsWorkload().filters(300, SEED):
        clauses = [clause.strip("()").split(" AND ") for clause in text.split(" OR ")]
        assert len(clauses) == CLAUSES == 20
        for clause in clauses:
            names = [constraint.split(" ")[0] for constraint in clause]
            assert len(set(names)) == len(names)
            lengths.append(len(names))
    assert np.bincount(lengths)[1:] / len(lengths) == pytest.approx(np.full(5, 0.2), abs=0.03)


def test_w3_operators_have_the_stated_shares() -> None:
    text = " AND ".join(NewsWorkload().filters(500, SEED))
    shapes = {
        "equal": r" = '[a-z]+'",
        "prefix": r" LIKE '[a-z]+%'",
        "suffix": r" LIKE '%[a-z]+'",
        "substring": r" LIKE '%[a-z]+%'",
    }
    strings = [len(re.findall(shape, text)) for shape in shapes.values()]
    integers = [len(re.findall(rf" {operator} \d+", text)) for operator in "=<>"]
    assert np.array(strings) / sum(strings) == pytest.approx([0.7, 0.1, 0.1, 0.1], abs=0.01)
    assert np.array(integers) / sum(integers) == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    assert sum(strings) / (sum(strings) + sum(integers)) == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize(
    ("operator", "part"), [("prefix", "lond"), ("suffix", "ndon"), ("substring", "ondo")]
)
def test_w3_affixes_are_parts_of_their_term(operator: str, part: str) -> None:
    assert affix("london", operator, 0.5, 4) == part
    assert affix("abc", operator, 0.99, 4) == "abc"


def _stored(value: Any) -> Any:
    """A JSON value as its column holds it."""
    if isinstance(value, dict):
        return int(np.datetime64(value["$timestamp"].removesuffix("Z"), "us").astype(np.int64))
    return value


_NUMBER = r"(\d+(?:\.\d+)?)"
_W2_FORMS = (
    rf"symbol = '(\w+)' AND close >= {_NUMBER}",
    rf"symbol = '(\w+)' AND close BETWEEN {_NUMBER} AND {_NUMBER}",
    rf"symbol = '(\w+)' AND volume >= {_NUMBER}",
    rf"volume >= {_NUMBER} AND high BETWEEN {_NUMBER} AND {_NUMBER}",
    rf"symbol = '(\w+)' AND open <= {_NUMBER} AND close >= {_NUMBER}",
)


def _w2_tables(filters: list[str]) -> dict[str, NDArray[np.float64]]:
    """The filters of each form as a table of numbers; a symbol stands as its place in the market."""
    places = {symbol: str(place) for place, symbol in enumerate(market().symbols)}
    rows: dict[str, list[list[float]]] = {form: [] for form in _W2_FORMS}
    for text in filters:
        form, found = next((form, m) for form in _W2_FORMS if (m := re.fullmatch(form, text)))
        rows[form].append([float(places.get(group, group)) for group in found.groups()])
    return {form: np.array(table) for form, table in rows.items()}


def _w2_matches(tables: dict[str, NDArray[np.float64]], event: dict[str, Any]) -> int:
    symbol = market().symbols.index(event["symbol"])
    rising, band, busy, wide, mixed = (tables[form].T for form in _W2_FORMS)
    close, volume = event["close"], event["volume"]
    matched = (
        (rising[0] == symbol) & (close >= rising[1]),
        (band[0] == symbol) & (band[1] <= close) & (close <= band[2]),
        (busy[0] == symbol) & (volume >= busy[1]),
        (volume >= wide[0]) & (wide[1] <= event["high"]) & (event["high"] <= wide[2]),
        (mixed[0] == symbol) & (event["open"] <= mixed[1]) & (close >= mixed[2]),
    )
    return sum(int(np.count_nonzero(form)) for form in matched)
