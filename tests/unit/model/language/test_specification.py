"""Every example of docs/filter-language.md, run. Its tables are found by their header rows."""

import json
import re
from pathlib import Path

import pytest

from culver.config import EventSettings, FilterSettings
from culver.errors import InvalidFilter
from culver.model.formats import parse_event
from culver.model.language.filter_warnings import warnings_about
from culver.model.language.parser import DEEPEST, parse
from culver.model.language.predicate import (
    And,
    Comparison,
    Condition,
    Constant,
    Literal,
    Not,
    Operator,
    Or,
    evaluate,
    matching_clause,
)
from culver.model.language.prepared_filter import prepare
from support.filters import clause_lines

SPECIFICATION = Path(__file__).parents[4] / "docs" / "filter-language.md"
RESULTS = {"true": True, "false": False, "unknown": None}


def rows_under(*header: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    inside = False
    for line in SPECIFICATION.read_text(encoding="utf-8").splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|")) if line.startswith("|") else ()
        if cells == header:
            inside = True
        elif not cells:
            inside = False
        elif inside and set(cells[0]) != {"-"}:
            rows.append(cells)
    return rows


def code(cell: str) -> str:
    assert cell.startswith("`"), cell
    assert cell.endswith("`"), cell
    return cell[1:-1]


EXAMPLES = rows_under("filter", "event", "result")
EXPANSIONS = rows_under("filter", "clauses")
MISTAKES = rows_under("filter", "position", "expected")
TRUTH = rows_under("`c`", "`d`", "`NOT c`", "`c AND d`", "`c OR d`")
BOUND = rows_under("prepared", "values", "filter")
UNBOUND = rows_under("prepared", "values", "parameter")
LIMITS = rows_under("setting", "default", "bounds")
DOUBTS = rows_under("filter", "warning")


def test_all_tables_of_the_specification_are_found() -> None:
    found = [len(table) for table in (EXAMPLES, EXPANSIONS, MISTAKES, TRUTH, BOUND, UNBOUND, LIMITS, DOUBTS)]
    assert [low <= count for low, count in zip((80, 14, 22, 6, 4, 7, 5, 5), found, strict=True)] == [
        True
    ] * 8, found


@pytest.mark.parametrize(("text", "document", "result"), EXAMPLES)
def test_example_gives_the_result_that_the_specification_says(text: str, document: str, result: str) -> None:
    predicate = parse(code(text))
    event = parse_event(code(document).encode(), EventSettings())
    assert evaluate(predicate.condition, event) is RESULTS[result]
    assert (matching_clause(predicate, event) is not None) is (result == "true")


@pytest.mark.parametrize(("text", "warning"), DOUBTS)
def test_example_raises_the_doubt_that_the_specification_says(text: str, warning: str) -> None:
    predicate = parse(code(text))
    found = [name for name, _ in warnings_about(predicate.condition, predicate.clauses)]
    assert found == ([] if warning == "none" else [code(warning)])


@pytest.mark.parametrize(("text", "clauses"), EXPANSIONS)
def test_example_has_the_clauses_that_the_specification_says(text: str, clauses: str) -> None:
    wanted = [] if clauses == "none" else re.findall(r"`([^`]*)`", clauses)
    assert clause_lines(parse(code(text))) == wanted


@pytest.mark.parametrize(("text", "position", "expected"), MISTAKES)
def test_mistake_is_refused_as_the_specification_says(text: str, position: str, expected: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse(code(text))
    assert caught.value.details["position"] == int(position)
    assert caught.value.details["expected"] == expected.split("; ")
    assert (caught.value.details["line"], caught.value.details["column"]) == (1, int(position) + 1)


@pytest.mark.parametrize(("text", "values", "written"), BOUND)
def test_bound_filter_is_the_one_that_the_specification_says(text: str, values: str, written: str) -> None:
    assert prepare(code(text)).bind(json.loads(code(values))) == parse(code(written))


@pytest.mark.parametrize(("text", "values", "parameter"), UNBOUND)
def test_value_is_refused_as_the_specification_says(text: str, values: str, parameter: str) -> None:
    with pytest.raises(InvalidFilter, match=f"parameter {parameter} ") as caught:
        prepare(code(text)).bind(json.loads(code(values)))
    assert caught.value.details["parameter"] == int(parameter)


@pytest.mark.parametrize(("left", "right", "negation", "conjunction", "disjunction"), TRUTH)
def test_connectives_follow_the_truth_table(
    left: str, right: str, negation: str, conjunction: str, disjunction: str
) -> None:
    unknown = Comparison(Operator.EQUAL, Literal(1), Literal("a"))
    conditions: dict[str, Condition] = {"true": Constant(True), "false": Constant(False), "unknown": unknown}
    event = parse_event(b"{}", EventSettings())
    c, d = conditions[left], conditions[right]
    assert evaluate(Not(c), event) is RESULTS[negation]
    for first, second in ((c, d), (d, c)):
        assert evaluate(And((first, second)), event) is RESULTS[conjunction]
        assert evaluate(Or((first, second)), event) is RESULTS[disjunction]


@pytest.mark.parametrize(("setting", "default", "bounds"), LIMITS)
def test_limit_has_the_default_that_the_specification_says(setting: str, default: str, bounds: str) -> None:
    assert getattr(FilterSettings(), code(setting).removeprefix("filters.")) == int(default)
    if setting == "`filters.max_depth`":
        assert f"Never more than {DEEPEST}." in bounds
