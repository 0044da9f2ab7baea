"""The reference's own corners; its broad meaning is tested by the specification's examples."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.predicate import (
    Attribute,
    Between,
    Comparison,
    Computed,
    Constraint,
    Contains,
    OneOf,
    Operator,
    Pattern,
    PatternShape,
    Presence,
    calculate,
    compare,
    compute,
    constraint_holds_for_value,
    evaluate,
    matching_clause,
    satisfies,
)
from culver.model.values import Domain, Timestamp, Value


def event(**data: Value) -> Event:
    return Event({}, data, b"{}")


@pytest.mark.parametrize("operator", Operator)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, "1"),
        (1, True),
        (True, 1),
        ("a", ("a",)),
        (Timestamp(1), 1),
        (("a",), ("a",)),
        (None, 1),
        (1, None),
    ],
)
def test_values_of_different_domains_do_not_compare(
    operator: Operator, left: Value | None, right: Value | None
) -> None:
    assert compare(operator, left, right) is None


def test_booleans_have_equality_but_no_order() -> None:
    assert compare(Operator.EQUAL, True, True) is True
    assert compare(Operator.NOT_EQUAL, True, False) is True
    assert compare(Operator.LESS, False, True) is None


@pytest.mark.parametrize(
    ("sign", "left", "right", "result"),
    [
        ("+", 2**63 - 1, 1, 2**63),
        ("*", 2**53 + 1, 1, 2**53 + 1),
        ("*", 2**53 + 1, 1.0, 2.0**53),
        ("/", 7, 2, 3.5),
        ("/", 1, 0, None),
        ("/", 1.0, -0.0, None),
        ("*", 1e300, 1e300, None),
        ("*", 10**200, 10**200, 10**400),
        ("+", 10**400, 1.0, None),
        ("/", 10**400, 3, None),
        ("-", True, 1, None),
        ("+", "1", 1, None),
        ("+", None, 1, None),
    ],
)
def test_arithmetic_is_exact_on_integers_and_finite_on_reals(
    sign: str, left: Value | None, right: Value | None, result: int | float | None
) -> None:
    found = calculate(sign, left, right)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("constraint", "holding", "failing", "unknown"),
    [
        (
            Between("a", Domain.NUMBER, 1, True, 5, False),
            [1, 1.0, 4.99],
            [0, 5, 2**62],
            ["1", True, (), None],
        ),
        (Between("a", Domain.NUMBER, None, False, 5, True), [5, -1e300], [5.5], ["", None]),
        (Between("a", Domain.STRING, "b", False, None, False), ["c", "ba"], ["b", "a", ""], [1, None]),
        (OneOf("a", Domain.NUMBER, (1, 2)), [1, 2.0], [3], ["1", True, Timestamp(1), None]),
        (OneOf("a", Domain.NUMBER, (1, 2), negated=True), [3], [1, 2.0], ["1", True, None]),
        (OneOf("a", Domain.BOOLEAN, (True,)), [True], [False], [1, 1.0, None]),
        (
            Pattern("a", PatternShape.PREFIX, "x", ("x", "%"), (False, True)),
            ["x", "xy"],
            ["yx", ""],
            [1, ("x",), None],
        ),
        (
            Pattern("a", PatternShape.PREFIX, "x", ("x", "%"), (False, True), negated=True),
            ["yx"],
            ["x"],
            [1, None],
        ),
        (Contains("a", "x"), [("x",), ("y", "x")], [(), ("y",)], ["x", None]),
        (Contains("a", "x", negated=True), [(), ("y",)], [("x",)], ["y", None]),
        (Presence("a", present=True), [1, "", False, ()], [None], []),
        (Presence("a", present=False), [None], [0, ()], []),
    ],
)
def test_constraint_holds_fails_or_is_unknown(
    constraint: Between | OneOf | Pattern | Contains | Presence,
    holding: list[Value | None],
    failing: list[Value | None],
    unknown: list[Value | None],
) -> None:
    for values, result in ((holding, True), (failing, False), (unknown, None)):
        for value in values:
            assert constraint_holds_for_value(constraint, value) is result, value
            there = event() if value is None else event(a=value)
            assert satisfies(constraint, there) is result, value


def test_computed_constraint_takes_its_values_from_a_lookup() -> None:
    comparison = Comparison(Operator.LESS, Attribute("a"), Attribute("b"))
    constraint: Constraint = Computed(comparison)
    values: dict[str, Value] = {"a": 1, "b": 2}
    assert compute(comparison, values.get) is True
    assert satisfies(constraint, event(a=2, b=1)) is False
    assert satisfies(constraint, event(a=2)) is None


def test_matching_clause_is_the_first_that_holds() -> None:
    predicate = parse("a = 1 OR b = 1 OR a = 1 AND b = 1")
    assert matching_clause(predicate, event(a=1, b=1)) == 0
    assert matching_clause(predicate, event(b=1)) == 1
    assert matching_clause(predicate, event(a="x", b=2)) is None
    assert matching_clause(parse("TRUE"), event()) == 0
    assert matching_clause(parse("FALSE"), event()) is None


def test_deepest_allowed_filter_is_evaluated() -> None:
    predicate = parse("NOT (b OR a AND " * 32 + "a" + ")" * 32)
    assert evaluate(predicate.condition, event(a=True, b=False)) is True


numbers = st.integers(-(2**70), 2**70) | st.integers(-9, 9) | st.floats(-1e30, 1e30)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(numbers, numbers)
def test_remainder_is_what_whole_divisions_leave_with_the_sign_of_the_left_side(
    left: int | float, right: int | float
) -> None:
    found = calculate("%", left, right)
    if right == 0:
        assert found is None
        return
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    exact = Fraction(left) - Fraction(right) * math.trunc(Fraction(left) / Fraction(right))
    assert found is not None
    assert Fraction(found) == exact
    assert type(found) is type(left)
