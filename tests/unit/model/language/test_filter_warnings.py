import pytest

from culver.model.language import parse, prepare, warnings_about
from culver.model.language.filter_warnings import COMPARES_ATTRIBUTES, NEVER_MATCHES


def doubts(text: str) -> list[tuple[str, str]]:
    predicate = parse(text)
    return warnings_about(predicate.condition, predicate.clauses)


@pytest.mark.parametrize(
    "text",
    [
        "symbol = 'XYZ' AND price > 20",
        "bid < ask",
        "high - low > low",
        "a = b + 1",
        "price IS NULL OR NOT price > 20",
        "a = 1 AND a = 2 OR b = 3",
        "TRUE",
    ],
)
def test_filters_that_are_as_they_should_be_raise_no_doubt(text: str) -> None:
    assert doubts(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "FALSE",
        "price BETWEEN 30 AND 20",
        "a = 1 AND a = 'x'",
        "x NOT IN (1, 'a')",
        "a > 5 AND a < 5",
        "a IS NULL AND a > 1",
        "name < ''",
        "1 > 2",
    ],
)
def test_a_filter_that_nothing_can_match_is_doubtful(text: str) -> None:
    ((code, detail),) = doubts(text)
    assert code == NEVER_MATCHES
    assert detail == "no event can match this filter: it is false or unknown for all of them"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "symbol = XYZ",
            "symbol = XYZ compares two attributes; if the right side is a text, write symbol = 'XYZ'",
        ),
        ('NOT (price > 5 OR a <> "it\'s")', "write a <> 'it''s'"),
        ("type = order.created AND type = order.created", "write type = 'order.created'"),
    ],
)
def test_an_attribute_where_a_text_was_probably_meant_is_doubtful(text: str, advice: str) -> None:
    ((code, detail),) = doubts(text)
    assert code == COMPARES_ATTRIBUTES
    assert detail.endswith(advice)


def test_a_long_filter_gets_a_short_list_of_doubts() -> None:
    assert len(doubts(" AND ".join(f"a{n} = b{n}" for n in range(100)))) == 8


def test_a_filter_with_parameters_is_looked_at_without_its_values() -> None:
    prepared = prepare("symbol = XYZ AND price > ?")
    ((code, _),) = warnings_about(prepared.condition, None)
    assert code == COMPARES_ATTRIBUTES
