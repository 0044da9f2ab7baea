"""Prepared filters: what is bound is what the text with the values written in means."""

import math
import random
import re
from typing import Any

import pytest

from culver.config import FilterSettings
from culver.errors import InvalidFilter, TooLarge
from culver.model.language.parser import parse
from culver.model.language.predicate import Comparison, Literal
from culver.model.language.prepared_filter import Prepared, prepare
from culver.model.values import Timestamp
from support.filters import random_filter

SEED = 11
LITERAL = re.compile(
    r"TIMESTAMP '[^']*'|'(?:[^']|'')*'|-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\bTRUE\b|\bFALSE\b",
    re.IGNORECASE,
)


def value_of(literal: str) -> Any:
    condition = parse(f"x = {literal}").condition
    assert isinstance(condition, Comparison)
    assert isinstance(condition.right, Literal)
    return condition.right.value


def with_parameters(rng: random.Random, text: str) -> tuple[Prepared, list[Any]]:
    """The filter with some of its literals replaced, of those that a parameter can replace."""
    values: list[Any] = []
    for literal in reversed(list(LITERAL.finditer(text))):
        replaced = text[: literal.start()] + "?" + text[literal.end() :]
        try:
            prepare(replaced)
            value = value_of(literal.group())
        except InvalidFilter:
            continue  # a pattern, a member of a list, arithmetic
        if rng.random() < 0.8:
            text = replaced
            values.insert(0, value)
    return prepare(text), values


@pytest.mark.slow(seconds=3)
def test_a_bound_filter_is_the_filter_with_the_values_written_in() -> None:
    rng = random.Random(SEED)
    parameters = 0
    for _ in range(1_500):
        text = random_filter(rng)
        prepared, values = with_parameters(rng, text)
        assert prepared.parameters == len(values)
        bound, wanted = prepared.bind(values), parse(text)
        # 1 and 1.0 are equal in Python, but not in text.
        assert repr(bound.condition) == repr(wanted.condition), text
        assert repr(bound.clauses) == repr(wanted.clauses), text
        again = parse(bound.text)
        assert repr((again.condition, again.clauses)) == repr((bound.condition, bound.clauses)), bound.text
        parameters += len(values)
    assert parameters > 2_000


def test_values_are_written_so_that_words_do_not_run_together() -> None:
    prepared = prepare("a=?AND b IN(?,'x')OR ?BETWEEN c AND d AND e>=?OR f=?")
    bound = prepared.bind([True, "it's", -1.5, Timestamp(0), False])
    assert bound.text == (
        "a=TRUE AND b IN('it''s','x')OR -1.5 BETWEEN c AND d AND e>=TIMESTAMP '1970-01-01T00:00:00Z' OR f=FALSE"
    )
    assert parse(bound.text) == bound


def test_a_value_is_never_read_as_part_of_the_filter() -> None:
    bound = prepare("name = ?").bind(["x' OR TRUE OR name = '?"])
    assert bound == parse("name = 'x'' OR TRUE OR name = ''?'")


def test_values_are_kept_as_literals_are() -> None:
    bound = prepare("a = ? OR b = ?").bind(["e\u0301", -0.0])
    assert bound.clauses == parse("a = 'é' OR b = 0.0").clauses
    assert "-0" not in bound.text


def test_a_parameter_outside_of_a_prepared_filter_is_refused() -> None:
    with pytest.raises(InvalidFilter, match="only for prepared filters") as caught:
        parse("price > ?")
    assert caught.value.details["position"] == 8


@pytest.mark.parametrize(
    ("text", "position"),
    [("? > 3", 0), ("? = ?", 0), ("a AND ?", 6), ("a > -?", 5), ("a + ? > 1", 4), ("a LIKE ?", 7), ("? IN tags", 0),
     ("5 BETWEEN a AND ?", 16), ("a ? 5", 2), ("? IS NULL", 0)],
)  # fmt: skip
def test_a_parameter_stands_only_where_a_value_is_compared(text: str, position: int) -> None:
    with pytest.raises(InvalidFilter) as caught:
        prepare(text)
    assert caught.value.details["position"] == position


@pytest.mark.parametrize(
    ("text", "values", "parameter"),
    [
        ("a > ? AND b > ?", [1], 2),
        ("a > ?", [1, 2], 2),
        ("a", [1], 1),
        ("a = ? AND b > ?", [True, True], 2),
        ("a BETWEEN ? AND ?", [1, "x"], 2),
        ("a BETWEEN ? AND 5", ["x"], 1),
        ("a NOT BETWEEN 5 AND ?", ["x"], 1),
        ("a * 2 > ?", ["x"], 1),
        ("a IN (1, ?)", [None], 1),
        ("a = ?", [math.nan], 1),
        ("a = ?", [-math.inf], 1),
        ("a = ?", [2**63], 1),
        ("a = ?", ["\ud800"], 1),
        ("a = ?", [Timestamp(2**62)], 1),
        ("a = ?", [("x",)], 1),
    ],
)
def test_a_value_that_cannot_stand_there_is_refused_by_its_parameter(
    text: str, values: list[Any], parameter: int
) -> None:
    with pytest.raises(InvalidFilter, match=f"parameter {parameter} ") as caught:
        prepare(text).bind(values)
    assert caught.value.details["parameter"] == parameter


def test_limits_hold_for_what_is_bound() -> None:
    with pytest.raises(TooLarge):
        prepare("a = ?", FilterSettings(max_length=10)).bind(["x" * 10])
    with pytest.raises(InvalidFilter, match="max_clauses"):
        prepare("a = ? OR a = ?", FilterSettings(max_clauses=1)).bind([1, 2])
