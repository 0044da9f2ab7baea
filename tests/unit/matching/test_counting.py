"""The counting filter, where its tables and counters have corners of their own."""

import itertools

import pyarrow as pa

from culver.matching.filter import Matches
from culver.matching.filters.counting import SECTION, CountingFilter
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import Between, Constant, OneOf, Predicate
from culver.model.values import Domain, Value


def batch_of(*events: dict[str, Value]) -> pa.RecordBatch:
    return concat(encode([Event({}, data, b"{}") for data in events], 0))


def rows(matches: Matches) -> list[list[int]]:
    bounds = matches.offsets.tolist()
    return [sorted(matches.numbers[begin:end].tolist()) for begin, end in itertools.pairwise(bounds)]


def test_clauses_of_several_sections_match_alike_and_name_a_subscription_once() -> None:
    made = CountingFilter()
    ranges = [(Between("x", Domain.NUMBER, low, True, low + 10, False),) for low in range(SECTION + 100)]
    predicates = [Predicate("", Constant(True), (clause,)) for clause in ranges]
    everywhere = SECTION + 50  # its clauses lie in the last sections, the others' in all
    predicates[everywhere] = Predicate("", Constant(True), tuple(ranges))
    made.add(enumerate(predicates))
    found = rows(made.match(batch_of({"x": 5}, {"x": SECTION + 2.5}, {"x": -1})))
    assert found[0] == [*range(6), everywhere]
    assert found[1] == [*range(SECTION - 7, SECTION + 3), everywhere]
    assert found[2] == []


def test_a_clause_may_have_more_predicates_than_a_byte_can_count() -> None:
    attributes = [f"a{i:03}" for i in range(300)]
    clause = tuple(OneOf(name, Domain.NUMBER, (1,)) for name in attributes)
    made = CountingFilter()
    made.add([(1, Predicate("", Constant(True), (clause,))), (2, parse("a000 = 1"))])
    full: dict[str, Value] = dict.fromkeys(attributes, 1)
    assert rows(made.match(batch_of(full, {**full, "a299": 2}, {**full, "a044": 2}))) == [[1, 2], [2], [2]]


def test_equal_predicates_are_stored_once() -> None:
    same, different = CountingFilter(), CountingFilter()
    same.add((number, parse("x > 1 AND y = 2")) for number in range(1_000))
    different.add((number, parse(f"x > {number} AND y = {number}")) for number in range(1_000))
    for made in (same, different):
        made.match(batch_of({"x": 1}))
    assert same.nbytes < different.nbytes / 2


def test_a_batch_that_is_worked_on_in_pieces_is_answered_as_a_whole() -> None:
    made = CountingFilter()
    made.add((number, parse(f"x = {number}")) for number in range(5))
    events: list[dict[str, Value]] = [{"x": value % 7} for value in range(7_000)]
    batch = concat([batch_of(*events)] * 3)
    assert rows(made.match(batch)) == [[value % 7] if value % 7 < 5 else [] for value in range(7_000)] * 3
