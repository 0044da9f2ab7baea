"""Explanations: every constraint with its result, and what the event has there."""

import random
from typing import Any

from culver.config import EventSettings
from culver.model.formats import event_from_object
from culver.model.language import evaluate, explain, matching_clause, parse
from support.events import random_event
from support.filters import random_filter


def explained(text: str, event: dict[str, Any]) -> list[str]:
    return str(explain(parse(text), event_from_object(event, EventSettings()))).splitlines()


def test_a_match_says_what_holds() -> None:
    assert explained("price > 20 AND symbol = 'XYZ'", {"price": 21, "symbol": "XYZ"}) == [
        "match",
        "  clause 1 of 1",
        "    true     price > 20      price is 21",
        "    true     symbol = 'XYZ'",
    ]


def test_unknown_says_what_is_missing_and_what_has_another_type() -> None:
    assert explained("a > 1 OR b LIKE 'x%' OR c + 1 > d", {"a": "one", "d": 2}) == [
        "no match: unknown",
        "  clause 1 of 3",
        "    unknown  a > 1        a is a string, not a number",
        "  clause 2 of 3",
        "    unknown  b LIKE 'x%'  b is missing",
        "  clause 3 of 3",
        "    unknown  c + 1 > d    c is missing, d is 2",
    ]


def test_lists_and_presence() -> None:
    lines = explained("'x' IN tags AND at IS NULL", {"tags": ["q", "it's"], "at": 1})
    assert lines[2:] == [
        "    false    at IS NULL   at is 1",
        "    false    'x' IN tags  tags is ('q', 'it''s')",
    ]


def test_a_filter_that_always_or_never_matches() -> None:
    assert explained("TRUE", {}) == ["match", "  clause 1 of 1", "    true     TRUE"]
    assert explained("FALSE", {}) == ["no match: false"]


def test_long_values_are_cut_off() -> None:
    assert explained("a = 'b'", {"a": "x" * 1000})[2].endswith("xxx...")


def test_an_explanation_agrees_with_the_filter() -> None:
    rng = random.Random(1)
    for _ in range(300):
        predicate, event = parse(random_filter(rng)), random_event(rng)
        explanation = explain(predicate, event)
        assert explanation.result is evaluate(predicate.condition, event)
        holding = [all(each.holds for each in clause) for clause in explanation.clauses]
        assert explanation.matches is any(holding)
        if any(holding):
            assert holding.index(True) == matching_clause(predicate, event)
