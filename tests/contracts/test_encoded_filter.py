"""What the filter `encoded` promises: never too few matches, and exactly those of the slow encoding."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from culver.bench.workloads.news import NewsWorkload
from culver.errors import InvalidFilter
from culver.matching import NOTHING, Entry, Index, IndexWriter
from culver.matching.encoded import encoded_filter
from culver.matching.encoded.encoded_filter import EncodedFilter
from culver.matching.encoded.encoded_predicate import EncodedPredicate
from culver.matching.filter import Matches
from culver.matching.filter_texts import predicate_of
from culver.matching.filters.columnar import ColumnarFilter
from culver.model.columns import concat, encode
from culver.model.event import Event, Origin
from culver.model.language import evaluate, parse
from culver.placement import Hashed
from culver.plugins import filter_named
from support.encoding import encoded, filter_of, slow_matches
from support.events import random_event
from support.filters import random_filter

SEED = 20_090_806
EVERYTHING = encoded(parse("TRUE"))


def rows(matches: Matches) -> list[set[int]]:
    bounds = matches.offsets.tolist()
    found = [matches.numbers[begin:end].tolist() for begin, end in itertools.pairwise(bounds)]
    assert all(len(each) == len(set(each)) for each in found)
    return [set(each) for each in found]


@pytest.mark.parametrize("encoding", ["cells", "paper"])
def test_matches_are_those_of_the_slow_encoding_and_hold_those_of_the_reference(encoding: str) -> None:
    rng = random.Random(SEED)
    for round_number in range(6):
        predicates = {number: parse(random_filter(rng)) for number in range(25)}
        rates = [rng.choice((0.5, 0.01, 1e-6)) for _ in predicates]
        advertised = {
            number: encoded(predicate, encoding, rate)
            for (number, predicate), rate in zip(predicates.items(), rates, strict=True)
        }
        events = [random_event(rng) for _ in range(25)]
        found = rows(filter_of(advertised).match(concat(encode(events, 0))))
        for event, got in zip(events, found, strict=True):
            exact = {n for n, each in predicates.items() if evaluate(each.condition, event) is True}
            where = (SEED, round_number, [predicates[n].text for n in exact - got], event.data)
            assert exact <= got, where
            assert got == slow_matches(advertised, event), where


def test_rows_beyond_one_piece_and_slices_of_batches_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_filter, "_MAX_ROWS", 7)
    made = filter_of({1: encoded(parse("x = 3 OR s = 'c' OR 'b' IN l")), 2: EVERYTHING, 3: NOTHING})
    events = [Event({}, {"x": n % 5, "s": "abcd"[n % 4], "l": ("a", "b")[: n % 3]}, b"{}") for n in range(40)]
    batch = concat(encode(events, 0))
    expected = [{1, 2} if n % 5 == 3 or n % 4 == 2 or n % 3 == 2 else {2} for n in range(40)]
    assert rows(made.match(batch)) == expected
    assert rows(made.match(batch.slice(5, 20))) == expected[5:25]
    assert rows(made.match(batch.slice(0, 0))) == []


def test_events_of_other_sites_never_match() -> None:
    made = filter_of({1: EVERYTHING, 2: encoded(parse("x = 1"))})
    origins = [None, Origin("lugano", 1), None]
    batch = concat(encode([Event({}, {"x": 1}, b"{}", origin) for origin in origins], 0))
    assert rows(made.match(batch)) == [{1, 2}, set(), {1, 2}]


def test_registrations_are_replaced_and_removed() -> None:
    made = filter_of({1: encoded(parse("x = 1")), 2: encoded(parse("x = 2"))})
    batch = concat(encode([Event({}, {"x": n}, b"{}") for n in (1, 2)], 0))
    assert rows(made.match(batch)) == [{1}, {2}]
    made.add([(1, predicate_of(encoded(parse("x = 2")).text, "encoded"))])
    made.remove([2, 17])
    assert len(made) == 1
    assert rows(made.match(batch)) == [set(), {1}]
    made.remove([1])
    matches = made.match(batch)
    assert matches.offsets.dtype == np.int64
    assert matches.numbers.dtype == np.int64
    assert matches.offsets.tolist() == [0, 0, 0]


def test_a_filter_of_the_language_is_refused() -> None:
    with pytest.raises(InvalidFilter, match="encoded 1"):
        EncodedFilter().add([(1, parse("x = 1"))])


@pytest.mark.parametrize("slices", [1, 2])
def test_an_index_holds_encoded_predicates_beside_filters(slices: int, tmp_path: Path) -> None:
    rng = random.Random(SEED + 1)
    writer = IndexWriter(tmp_path)
    if slices > 1:
        writer.divide(Hashed(slices))
    predicates = {number: parse(random_filter(rng)) for number in range(60)}
    advertised = {number: encoded(predicate) for number, predicate in predicates.items() if number % 2}
    entries = [
        Entry(number, predicate_of(advertised[number].text, "encoded"), 0, "encoded")
        if number in advertised
        else Entry(number, predicate)
        for number, predicate in predicates.items()
    ]
    writer.publish(1, entries[:40], [], 0)
    writer.publish(2, entries[40:], [(number, 0) for number in range(0, 60, 7)], 0)
    events = [random_event(rng) for _ in range(30)]
    batch = concat(encode(events, 0))
    found: list[set[int]] = [set() for _ in events]
    for place in range(slices):
        with Index.open(tmp_path, 2, place if slices > 1 else None, filter_named) as index:
            for row, own in enumerate(rows(index.match(batch))):
                found[row] |= own
    left = {number for number in predicates if number % 7}
    for event, got in zip(events, found, strict=True):
        exact = {number for number in left if evaluate(predicates[number].condition, event) is True}
        assert exact <= got <= left
        assert {number for number in got if number not in advertised} == exact - advertised.keys()


def test_on_the_news_workload_cells_let_less_than_half_as_much_through_as_the_paper_does() -> None:
    workload, sites, events = NewsWorkload(), 100, 300
    predicates = [parse(text) for text in workload.filters(sites, 1)]
    batch = workload.event_batch(events, 2)
    exact_filter = ColumnarFilter()
    exact_filter.add(enumerate(predicates))
    exact = rows(exact_filter.match(batch))
    rates = {}
    for encoding in ("paper", "cells"):
        made = filter_of({n: encoded(each, encoding) for n, each in enumerate(predicates)})
        found = rows(made.match(batch))
        assert all(want <= got for want, got in zip(exact, found, strict=True))
        extra = sum(map(len, found)) - sum(map(len, exact))
        rates[encoding] = extra / (sites * events - sum(map(len, exact)))
    assert rates["cells"] < rates["paper"] / 2
    assert rates["cells"] < 0.12


def test_vectors_of_different_sizes_share_the_vectors_of_events() -> None:
    predicate = parse("name LIKE 'ab%' AND x > 20")
    narrow, wide = encoded(predicate, rate=0.5), encoded(predicate, rate=1e-5)
    assert (narrow.bits, narrow.hashes) != (wide.bits, wide.hashes)
    small = EncodedPredicate.parse(narrow.text)
    made = filter_of({1: small, 2: wide, 3: encoded(parse("x = 30"), rate=0.2)})
    batch = concat(encode([Event({}, {"name": "abc", "x": 30}, b"{}"), Event({}, {"name": "b"}, b"{}")], 0))
    assert rows(made.match(batch)) == [{1, 2, 3}, set()]
