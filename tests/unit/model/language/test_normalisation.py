"""Conditions to clauses: what merges, what drops out, which limits hold."""

import pytest

from culver.config import FilterSettings
from culver.errors import InvalidFilter
from culver.model.language.parser import parse
from culver.model.language.predicate import (
    Attribute,
    Between,
    Comparison,
    Computed,
    Contains,
    OneOf,
    Operator,
    Pattern,
    PatternShape,
    Presence,
)
from culver.model.values import Domain, Timestamp
from support.filters import clause_lines

EXPANSIONS = [
    # negation
    ("NOT a < 1", ["a >= 1"]),
    ("NOT (a = 1 AND b = 2)", ["a <> 1", "b <> 2"]),
    ("NOT NOT a = 1", ["a = 1"]),
    ("NOT flag", ["flag = FALSE"]),
    ("flag <> FALSE", ["flag = TRUE"]),
    ("NOT a IS NULL", ["a IS NOT NULL"]),
    ("NOT a + b > 1", ["a + b <= 1"]),
    ("NOT 'x' IN a", ["'x' NOT IN a"]),
    ("NOT TRUE", []),
    # ranges and points
    ("a > 1 AND a > 2 AND a < 9 AND a <= 8", ["a > 2 AND a <= 8"]),
    ("a >= 1 AND a > 1", ["a > 1"]),
    ("a > 1 AND a < 1", []),
    ("a >= 1 AND a < 1", []),
    ("a > 2 AND a < 1", []),
    ("a >= 1 AND a <= 1.0", ["a = 1"]),
    ("a > 9007199254740992 AND a < 9007199254740994.0", ["a > 9007199254740992 AND a < 9007199254740994.0"]),
    ("a = 1 AND a < 5", ["a = 1"]),
    ("a = 1 AND a > 5", []),
    ("a IN (1, 2, 3) AND a IN (2, 3, 4)", ["a IN (2, 3)"]),
    ("a IN (3, 1, 2, 1, 1.0)", ["a IN (1, 2, 3)"]),
    ("a IN (1, 2, 3) AND a <> 2", ["a IN (1, 3)"]),
    ("a <> 1 AND a <> 2", ["a NOT IN (1, 2)"]),
    ("a < 5 AND a NOT IN (1, 5, 9)", ["a < 5 AND a <> 1"]),
    ("a <= 5 AND a <> 5", ["a < 5"]),
    ("flag AND NOT flag", []),
    ("flag IN (TRUE, FALSE)", ["flag IN (FALSE, TRUE)"]),
    ("flag NOT IN (TRUE, FALSE)", []),
    # strings
    ("a >= ''", ["a >= ''"]),
    ("a < ''", []),
    ("a <= ''", ["a = ''"]),
    ("a >= '' AND a < 'b'", ["a < 'b'"]),
    ("a LIKE '%'", ["a >= ''"]),
    ("a NOT LIKE '%'", []),
    ("a LIKE '%%%'", ["a >= ''"]),
    ("a LIKE '%' AND a LIKE 'x%'", ["a LIKE 'x%'"]),
    ("a LIKE '%_'", ["a LIKE '_%'"]),
    ("a LIKE 'x'", ["a = 'x'"]),
    ("a NOT LIKE 'x'", ["a <> 'x'"]),
    ("a LIKE 'x%' AND a NOT LIKE 'x%'", []),
    ("a IN ('xa', 'ya') AND a LIKE 'x%'", ["a = 'xa'"]),
    ("a LIKE 'x%' AND a <> 'b' AND a <> 'xb'", ["a <> 'xb' AND a LIKE 'x%'"]),
    ("a LIKE '50!%%' ESCAPE '!'", ["a LIKE '50\\%%' ESCAPE '\\'"]),
    # lists
    ("'x' IN a AND 'y' NOT IN a AND 'x' IN a", ["'x' IN a AND 'y' NOT IN a"]),
    ("'x' IN a AND 'x' NOT IN a", []),
    # types and presence
    ("a = 1 AND a = 'x'", []),
    ("a > 1 AND 'x' IN a", []),
    ("a = 1 AND a IS NULL", []),
    ("a = 1 AND a IS NOT NULL", ["a = 1"]),
    ("a IS NULL AND a IS NULL", ["a IS NULL"]),
    ("a IS NULL AND a IS NOT NULL", []),
    ("a NOT IN (1, 'x')", []),
    # connectives
    ("a = 1 OR a = 1", ["a = 1"]),
    ("a = 1 OR FALSE", ["a = 1"]),
    ("a = 1 OR TRUE OR b = 2", ["TRUE"]),
    ("a = 1 AND TRUE", ["a = 1"]),
    ("FALSE", []),
    ("(a OR b) AND (a OR b)", ["a = TRUE", "a = TRUE AND b = TRUE", "b = TRUE"]),
    ("b = 1 AND a = 1", ["a = 1 AND b = 1"]),
    ("a < b AND a < b", ["a < b"]),
    ("a * 1 = b OR a * 1.0 = b", ["a * 1 = b", "a * 1.0 = b"]),
]


@pytest.mark.parametrize(("text", "lines"), EXPANSIONS)
def test_filter_expands_to_clauses(text: str, lines: list[str]) -> None:
    assert clause_lines(parse(text)) == lines


def test_constraints_have_their_documented_form() -> None:
    text = (
        "a >= 1 AND a < 5 AND b <> 2 AND c LIKE 'x%' AND 't' IN d AND e IS NULL AND f > g "
        "AND h > TIMESTAMP '1970-01-01T00:00:00Z'"
    )
    assert parse(text).clauses == (
        (
            Between("a", Domain.NUMBER, 1, True, 5, False),
            OneOf("b", Domain.NUMBER, (2,), negated=True),
            Pattern("c", PatternShape.PREFIX, "x", ("x", "%"), (False, True)),
            Contains("d", "t"),
            Presence("e", present=False),
            Between("h", Domain.TIMESTAMP, Timestamp(0), False, None, False),
            Computed(Comparison(Operator.GREATER, Attribute("f"), Attribute("g"))),
        ),
    )


def test_values_of_different_types_become_one_clause_each() -> None:
    assert parse("a IN (1, TRUE, 'x', 2)").clauses == (
        (OneOf("a", Domain.NUMBER, (1, 2)),),
        (OneOf("a", Domain.BOOLEAN, (True,)),),
        (OneOf("a", Domain.STRING, ("x",)),),
    )


def test_disjoint_exclusions_grow_by_one_clause_each() -> None:
    text = " AND ".join(f"a NOT BETWEEN {10 * i} AND {10 * i + 5}" for i in range(60))
    assert len(parse(text).clauses) == 61


def test_clauses_beyond_the_limit_are_refused() -> None:
    settings = FilterSettings(max_clauses=8)
    eight = " AND ".join(f"(a{i} OR b{i})" for i in range(3))
    assert len(parse(eight, settings).clauses) == 8
    with pytest.raises(InvalidFilter, match="more than 8 clauses") as caught:
        parse(eight + " OR c", settings)
    assert caught.value.details == {"limit": 8, "setting": "filters.max_clauses"}


def test_constraints_beyond_the_limit_are_refused() -> None:
    settings = FilterSettings(max_constraints=8)
    parse("(a OR b) AND c AND d AND e", settings)
    with pytest.raises(InvalidFilter, match="more than 8 constraints"):
        parse("(a OR b) AND c AND d AND e AND f", settings)
    with pytest.raises(InvalidFilter, match="more than 8 constraints"):
        parse(" AND ".join(f"a{i}" for i in range(9)), settings)


def test_work_is_bounded_where_contradictions_keep_the_result_small() -> None:
    text = " AND ".join("(" + " OR ".join(f"a = {i}" for i in range(200)) + ")" for _ in range(6))
    with pytest.raises(InvalidFilter, match="too many steps"):
        parse(text)
