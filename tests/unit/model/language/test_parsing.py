"""What `parse` makes of texts: trees, errors, limits, memory of earlier texts."""

import threading
import time

import pytest

from culver.config import FilterSettings
from culver.errors import InvalidFilter, TooLarge
from culver.model.language.parser import DEEPEST, parse
from culver.model.language.predicate import (
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Member,
    Not,
    Operator,
    Or,
)
from culver.model.values import Timestamp
from support.filters import clause_lines, parsed_or_refused

A, B = Attribute("a"), Attribute("b")
A_IS_1 = Comparison(Operator.EQUAL, A, Literal(1))
B_HOLDS = Comparison(Operator.EQUAL, B, Literal(True))

TREES: list[tuple[str, Condition]] = [
    ("a = 1", A_IS_1),
    ("a != 1", Comparison(Operator.NOT_EQUAL, A, Literal(1))),
    ("1 <= a", Comparison(Operator.GREATER_OR_EQUAL, A, Literal(1))),
    ("a < b", Comparison(Operator.LESS, A, B)),
    ("b", B_HOLDS),
    ("(b)", B_HOLDS),
    ("(a) = (1)", A_IS_1),
    ("not b", Not(B_HOLDS)),
    ("a = 1 AND b", And((A_IS_1, B_HOLDS))),
    ("a = 1 Or b oR b", Or((A_IS_1, B_HOLDS, B_HOLDS))),
    ("(a = 1 AND b) AND b", And((A_IS_1, B_HOLDS, B_HOLDS))),
    ("b OR a = 1 AND b", Or((B_HOLDS, And((A_IS_1, B_HOLDS))))),
    ("NOT b AND b", And((Not(B_HOLDS), B_HOLDS))),
    ("a IN (1, 'x', TRUE)", In(A, (1, "x", True))),
    ("a NOT IN (-1)", Not(In(A, (-1,)))),
    ("'x' IN a", Member("x", A)),
    ("'x' NOT IN a", Not(Member("x", A))),
    ("a LIKE 'x%'", Like(A, "x%")),
    ("a NOT LIKE 'x!%' ESCAPE '!'", Not(Like(A, "x!%", "!"))),
    ("a IS NULL", IsNull(A)),
    ("a IS NOT NULL", Not(IsNull(A))),
    ("TRUE", Constant(True)),
    ("1 < 2", Constant(True)),
    ("'b' < 'a'", Constant(False)),
    ("a = TIMESTAMP '1970-01-01T00:00:01Z'", Comparison(Operator.EQUAL, A, Literal(Timestamp(1_000_000)))),
    ("a = 1 + 2 * 3", Comparison(Operator.EQUAL, A, Literal(7))),
    ("a = (1 + 2) * 3", Comparison(Operator.EQUAL, A, Literal(9))),
    ("a = 6 / 3", Comparison(Operator.EQUAL, A, Literal(2.0))),
    ("a = - - 1", A_IS_1),
    ("a=+1", A_IS_1),
    ("a = 9223372036854775807 + 1 - 1", Comparison(Operator.EQUAL, A, Literal(2**63 - 1))),
    ("a = 0001", A_IS_1),
    ("a - 1 = 2", Comparison(Operator.EQUAL, Arithmetic("-", A, Literal(1)), Literal(2))),
    ("a -1 = 2", Comparison(Operator.EQUAL, Arithmetic("-", A, Literal(1)), Literal(2))),
    ("2 > -a", Comparison(Operator.LESS, Arithmetic("-", Literal(0), A), Literal(2))),
    (
        "a BETWEEN 1 AND 2",
        And(
            (
                Comparison(Operator.GREATER_OR_EQUAL, A, Literal(1)),
                Comparison(Operator.LESS_OR_EQUAL, A, Literal(2)),
            )
        ),
    ),
]


@pytest.mark.parametrize(("text", "tree"), TREES)
def test_text_becomes_the_tree_that_it_means(text: str, tree: Condition) -> None:
    predicate = parse(text)
    assert predicate.condition == tree
    assert predicate.text == text


def test_literals_keep_their_types() -> None:
    assert Literal(1) != Literal(1.0)
    assert Literal(1) != Literal(True)
    assert len({Literal(1), Literal(1.0), Literal(True), Literal(1)}) == 3


def test_name_may_start_with_a_reserved_word() -> None:
    text = "$null AND android AND in.x AND nothing.not AND order_"
    assert clause_lines(parse(text)) == [text.replace(" AND", " = TRUE AND") + " = TRUE"]


def test_names_and_strings_are_normalised() -> None:
    assert parse("e\u0301 = 'o\u0308'").condition == parse("\u00e9 = '\u00f6'").condition
    assert parse('"e\u0301" = 1').condition == Comparison(Operator.EQUAL, Attribute("\u00e9"), Literal(1))


MISTAKES = [
    ("", 0, "write TRUE"),
    (" \n ", 0, "write TRUE"),
    ("a = NULL", 4, "IS NULL"),
    ("a IN (1, NULL)", 9, "IS NULL"),
    ("a == 1", 3, "one ="),
    ("a && b", 2, "AND"),
    ("a = 'x", 4, "never closed"),
    ('"" = 1', 0, "single quotes"),
    ("and = 1", 0, 'write "and" in double quotes'),
    ("a < AND b", 4, 'write "AND" in double quotes'),
    ("a = 1 > 2", 6, "expected"),
    ("(a > 1) = TRUE", 0, "a condition cannot stand"),
    ("(a > 1) + 1 > 2", 0, "a condition cannot stand"),
    ("'a'", 0, "compare it with something"),
    ("a AND b + 1", 6, "compare it with something"),
    ("NOT 5", 4, "compare it with something"),
    ("1 IN (1)", 0, "must be an attribute"),
    ("a + 1 IN (1)", 0, "must be an attribute"),
    ("'a' LIKE 'a'", 0, "must be an attribute"),
    ("5 IS NULL", 0, "must be an attribute"),
    ("a IN b", 0, "only a string"),
    ("1 = 'a'", 4, "do not compare"),
    ("TRUE < FALSE", 5, "no order"),
    ("a BETWEEN FALSE AND TRUE", 2, "no order"),
    ("a + 1 = 'x'", 8, "arithmetic is for numbers"),
    ("-'x' = a", 1, "arithmetic is for numbers"),
    ("a + TRUE > 1", 4, "arithmetic is for numbers"),
    ("a LIKE 'x' ESCAPE 'xy'", 18, "exactly one character"),
    ("a LIKE 'x!' ESCAPE '!'", 7, "escape character"),
    ("a = -9223372036854775809", 5, "64 bits"),
    ("a = 9223372036854775807 + 1", 4, "64 bits"),
    ("a + 9223372036854775808 > 1", 4, "64 bits"),
    ("a IN (1, 9223372036854775808)", 9, "64 bits"),
    ("a = " + "9" * 5000, 4, "64 bits"),
    ("a = 1e308 * 10", 10, "finite"),
    ("a = 0 / 0", 6, "division by zero"),
    ("a = 5 % (1 - 1)", 6, "division by zero"),
    ("a = TIMESTAMP '2026-02-30T00:00:00Z'", 14, "day"),
    ("a = TIMESTAMP 'now'", 14, "RFC 3339"),
    ("a = '\ud800'", 5, "surrogate"),
    ("a \x00 b", 2, "expected"),
]


@pytest.mark.parametrize(("text", "position", "hint"), MISTAKES)
def test_mistake_is_refused_at_its_position_with_advice(text: str, position: int, hint: str) -> None:
    with pytest.raises(InvalidFilter, match=hint) as caught:
        parse(text)
    assert caught.value.details["position"] == position
    assert caught.value.details["expected"]
    assert caught.value.field == "filter"


def test_position_is_also_given_as_line_and_column() -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse("a = 1\nAND\n  b >")
    details = caught.value.details
    assert (details["position"], details["line"], details["column"]) == (15, 3, 6)
    assert str(caught.value).startswith("line 3, column 6: expected an attribute name, a literal or (")


def test_text_beyond_the_limit_is_too_large() -> None:
    with pytest.raises(TooLarge) as caught:
        parse("a = 1   ", FilterSettings(max_length=7))
    assert caught.value.field == "filter"
    assert caught.value.details == {"limit": 7}


def test_list_beyond_the_limit_is_refused() -> None:
    settings = FilterSettings(max_values=3)
    parse("a IN (1, 2, 3)", settings)
    with pytest.raises(InvalidFilter, match="max_values") as caught:
        parse("a IN (1, 2, 3, 4)", settings)
    assert caught.value.details["position"] == 15


@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("NOT ", ""), ("NOT (", ")"), ("- ", " > 1"), ("a + ", " > 1")]
)
def test_nesting_is_allowed_to_the_limit_and_refused_beyond(opening: str, closing: str) -> None:
    settings = FilterSettings(max_depth=6)
    per_level = 2 if opening == "NOT (" else 1
    times = 6 // per_level
    closings = closing * times if closing.strip() == ")" else closing
    parse(opening * times + "a" + closings, settings)
    closings = closing * (times + 1) if closing.strip() == ")" else closing
    with pytest.raises(InvalidFilter, match="max_depth"):
        parse(opening * (times + 1) + "a" + closings, settings)


HOSTILE = [
    "(" * 16_000,
    "(" * 8_000 + "a" + ")" * 8_000,
    ")" * 16_000,
    "NOT " * 4_000,
    "NOT " * 4_000 + "a",
    "-" * 16_000,
    "-" * 16_000 + "a",
    "a" + "+a" * 8_000 + ">1",
    "a" * 16_000 + " = = 1",
    "a IN (" + "1," * 8_000,
    "a.b" * 5_000,
    "a OR " * 3_000,
    "'" * 15_999,
    '"' * 15_999,
    "a = 1e" + "9" * 16_000,
    "9" * 16_000,
    "a = '" + "e" + "\u0301\u0323" * 8_000 + "'",
    " " * 16_000,
    "a = " + "9223372036854775807*" * 800 + "1",
    " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(600)),
    " AND ".join(f"(a <> {i} OR b <> {i})" for i in range(500)),
    "NOT (" + " OR ".join(f"(a{i} AND b{i})" for i in range(500)) + ")",
    " AND ".join(f"x NOT BETWEEN {i} AND {i}.5" for i in range(400)),
    " AND ".join("(" + " OR ".join(f"a = {i}" for i in range(200)) + ")" for _ in range(7)),
    "a IN ("
    + ",".join(map(str, range(1000)))
    + ") AND ("
    + " OR ".join(f"a > {i}" for i in range(250))
    + ")",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:12] for text in HOSTILE])
def test_hostile_text_ends_quickly_in_an_answer(text: str) -> None:
    started = time.process_time()
    answer = parsed_or_refused(text)
    if isinstance(answer, InvalidFilter):
        assert len(answer.message) < 500
    else:
        assert len(answer.clauses) <= FilterSettings().max_clauses
    assert time.process_time() - started < 2


def test_depth_stays_bounded_whatever_the_settings() -> None:
    settings = FilterSettings(max_depth=10_000)
    parse("NOT " * DEEPEST + "a", settings)
    with pytest.raises(InvalidFilter, match="nested too deeply"):
        parse("NOT " * (DEEPEST + 1) + "a", settings)


def test_small_filter_is_remembered_and_a_large_one_is_not() -> None:
    small = "remembered = 1 AND b = 2"
    assert parse(small) is parse(small)
    assert parse(small, FilterSettings(max_depth=5)) is not parse(small)
    large = " OR ".join(f"a{i} = 1" for i in range(100))
    assert parse(large) is not parse(large)


def test_threads_with_different_limits_do_not_disturb_each_other() -> None:
    wrong: list[str] = []

    def work(depth: int) -> None:
        for i in range(60):
            nested = "(" * 10 + f"a = {depth}{i}" + ")" * 10
            try:
                parse(nested, FilterSettings(max_depth=depth))
                if depth < 10:
                    wrong.append(f"{depth} let it pass")
            except InvalidFilter:
                if depth >= 10:
                    wrong.append(f"{depth} refused it")

    threads = [threading.Thread(target=work, args=(depth,)) for depth in (5, 9, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
