"""The sum of a site's predicates says exactly what they say, without what others of them cover."""

import random

import pytest

from culver.errors import InvalidFilter
from culver.matching import (
    NOTHING,
    EncodedPredicate,
    ExactPredicate,
    ExactSummary,
    PredicateSummary,
    read_predicate,
)
from culver.matching.exact.clause_covering import without_covered
from culver.model.language import Clause, matching_clause, parse
from support.events import random_event
from support.filters import parsed_or_refused, random_filter


def summary(most_characters: int = 100_000) -> ExactSummary:
    return ExactSummary(PredicateSummary(), most_characters)


def clauses(*texts: str) -> list[Clause]:
    return [clause for text in texts for clause in parse(text).clauses]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a > 3", "a > 5"),
        ("a >= 5", "a > 5"),
        ("a < 9", "a BETWEEN 3 AND 7"),
        ("a > 3", "a IN (4, 9)"),
        ("a > 3", "a = 4"),
        ("a > 3", "a > 5 AND b = 'x'"),
        ("b = 'x'", "a > 5 AND b = 'x'"),
    ],
)
def test_covered_clauses_are_dropped_and_come_back(wide: str, narrow: str) -> None:
    sum_ = summary()
    sum_.add(1, parse(narrow).clauses)
    alone = sum_.encode()
    sum_.add(2, parse(wide).clauses)
    assert sum_.encode() == ExactPredicate.of(clauses(wide))
    sum_.remove(2)
    assert sum_.encode() == alone == ExactPredicate.of(clauses(narrow))
    sum_.remove(1)
    assert sum_.encode() == NOTHING


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > 5", "a >= 5 AND b = 1"),
        ("a > 5", "a < 9"),
        ("a > 3", "a IN (2, 9)"),
        ("a > 3", "a <> 4"),
        ("a > 'b'", "a > 5"),
        ("a > 5", "b > 5"),
        ("a IS NULL", "a = 5"),
        ("a > 5 AND b = 1", "a > 6"),
    ],
)
def test_others_stay(one: str, other: str) -> None:
    both = clauses(one, other)
    assert set(without_covered(both)) == set(both)


def test_sum_matches_what_its_predicates_match() -> None:
    rng = random.Random(5)
    for _ in range(30):
        predicates = [parsed_or_refused(random_filter(rng)) for _ in range(12)]
        kept = [each for each in predicates if not isinstance(each, InvalidFilter)]
        sum_ = summary()
        for number, each in enumerate(kept):
            sum_.add(number, each.clauses)
        made = sum_.encode()
        if not isinstance(made, ExactPredicate):
            continue
        assert read_predicate(made.text) == made
        for _ in range(40):
            event = random_event(rng)
            wanted = any(matching_clause(each, event) is not None for each in kept)
            assert (matching_clause(made.predicate, event) is not None) == wanted


def test_sum_that_is_too_long_is_encoded() -> None:
    sum_ = summary(most_characters=300)
    sum_.add(1, clauses("a = 1"))
    assert isinstance(sum_.encode(), ExactPredicate)
    for number in range(2, 20):
        sum_.add(number, clauses(f"a = {number} AND b > {number}"))
    encoded = sum_.encode()
    assert isinstance(encoded, EncodedPredicate)
    assert read_predicate(encoded.text) == encoded
    for number in range(2, 20):
        sum_.remove(number)
    assert sum_.encode() == ExactPredicate.of(clauses("a = 1"))


@pytest.mark.parametrize(
    "text",
    [
        "exact 1 ",
        "exact 1 [",
        "exact 1 5",
        "exact 1 [5]",
        'exact 1 [[["range","a","number","x",false,null,false]]]',
        'exact 1 [[["range","a","nowhere",5,false,null,false]]]',
        'exact 1 [[["unknown","a"]]]',
        'exact 1 [[["presence", "a",true]]]',
        "exact 2 []",
        "exact 1 " + "[" * 100_000,
        "exact 1 [" + " " * (1 << 20) + "]",
    ],
)
def test_text_that_is_no_predicate_is_refused(text: str) -> None:
    with pytest.raises(InvalidFilter):
        read_predicate(text)
