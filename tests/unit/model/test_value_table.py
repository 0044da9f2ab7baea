"""What a value means: one test for each row of the design's table, from the text of an event and a filter on.

Every result is asked for four times: of the condition as written, of its clauses, and of both again with the
event read back from columns.
"""

import pytest

from culver.config import FilterSettings
from culver.errors import InvalidEvent, InvalidFilter
from culver.model.columns.event_batch import deserialise, encode, event_at, serialise
from culver.model.formats import parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import Between, OneOf, evaluate, matching_clause
from culver.model.values import KIND_OF_TYPE, Domain, Kind


def result(filter_text: str, event: str) -> bool | None:
    predicate = parse(filter_text)
    original = parse_event(event.encode())
    (batch,) = encode([original], received_us=0)
    read = event_at(deserialise(serialise(batch)), 0)
    answers = {evaluate(predicate.condition, each) for each in (original, read)}
    matched = {matching_clause(predicate, each) is not None for each in (original, read)}
    (answer,) = answers
    assert matched == {answer is True}
    return answer


def refused_attribute(event: str) -> str | None:
    with pytest.raises(InvalidEvent) as caught:
        parse_event(event.encode())
    return caught.value.field


def test_predicate_is_a_disjunction_of_conjunctions_within_limits() -> None:
    predicate = parse("NOT (a > 1 OR NOT (b = 2 OR c = 3))")
    assert len(predicate.clauses) == 2
    for event, expected in (
        ('{"a": 1, "b": 2, "c": 0}', True),
        ('{"a": 1, "b": 0, "c": 3}', True),
        ('{"a": 1, "b": 0, "c": 0}', False),
        ('{"a": 2, "b": 2, "c": 3}', False),
    ):
        assert result(predicate.text, event) is expected
    large = " AND ".join(f"(a{number} = 1 OR b{number} = 1)" for number in range(20))
    with pytest.raises(InvalidFilter):
        parse(large, FilterSettings())


def test_types_are_integer_real_string_boolean_list_of_strings_and_timestamp() -> None:
    event = parse_event(
        b'{"i": 5, "r": 5.0, "s": "5", "b": true, "l": ["5"], "t": {"$timestamp": "1970-01-01T00:00:00.000005Z"}}'
    )
    kinds = {name: KIND_OF_TYPE[type(value)] for name, value in event.data.items()}
    assert kinds == {kind.value: kind for kind in Kind}
    text = '{"i": 5, "r": 5.0, "s": "5", "b": true, "l": ["5"], "t": {"$timestamp": "1970-01-01T00:00:00.000005Z"}}'
    for condition in (
        "i = 5",
        "r = 5",
        "s = '5'",
        "b = TRUE",
        "'5' IN l",
        "t = TIMESTAMP '1970-01-01T00:00:00.000005Z'",
    ):
        assert result(condition, text) is True


@pytest.mark.parametrize(
    ("condition", "event", "expected"),
    [
        ("a = 1", '{"a": 1.0}', True),
        ("a = 1.0", '{"a": 1}', True),
        ("a = 9007199254740993", '{"a": 9007199254740993}', True),
        ("a = 9007199254740993", '{"a": 9007199254740992}', False),
        ("a = 9007199254740993", '{"a": 9007199254740992.0}', False),
        ("a > 9007199254740992.0", '{"a": 9007199254740993}', True),
        ("a = " + "0" * 4_300 + "7", '{"a": 7}', True),
        ("a < 9223372036854775808.0", '{"a": 9223372036854775807}', True),
        ("a = 9223372036854775808.0", '{"a": 9223372036854775807}', False),
        ("a >= -9223372036854775808.0", '{"a": -9223372036854775808}', True),
        ("a < 0.5", '{"a": 0}', True),
        ("a = 0", '{"a": -0.0}', True),
        ("a < 0", '{"a": -0.0}', False),
        ("a IN (9007199254740993, 3)", '{"a": 3.0}', True),
        ("a BETWEEN 9007199254740993 AND 9007199254740995", '{"a": 9007199254740992.0}', False),
    ],
)
def test_number_against_number_is_compared_exactly(condition: str, event: str, expected: bool) -> None:
    assert result(condition, event) is expected


@pytest.mark.parametrize(
    "condition",
    [
        "a = 1",
        "a <> 1",
        "a > 1",
        "a BETWEEN 1 AND 2",
        "a IN (1, 2)",
        "a NOT IN (1, 2)",
        "NOT a = 1",
        "NOT NOT a > 1",
    ],
)
@pytest.mark.parametrize(
    "event",
    [
        "{}",
        '{"a": null}',
        '{"a": "1"}',
        '{"a": true}',
        '{"a": ["1"]}',
        '{"a": {"$timestamp": "1970-01-01T00:00:01Z"}}',
    ],
)
def test_attribute_missing_or_of_another_type_is_unknown_and_so_is_its_negation(
    condition: str, event: str
) -> None:
    assert result(condition, event) is None


@pytest.mark.parametrize(
    ("condition", "event", "expected"),
    [
        ("a = 1 OR b = 1", '{"b": 1}', True),
        ("a = 1 OR b = 1", '{"b": 2}', None),
        ("a = 1 AND b = 1", '{"b": 2}', False),
        ("a = 1 AND b = 1", '{"b": 1}', None),
        ("NOT (a = 1 AND b = 1)", '{"b": 2}', True),
        ("NOT (a = 1 OR b = 1)", '{"b": 2}', None),
        ("a LIKE 'x%'", '{"a": 5}', None),
        ("NOT a LIKE 'x%'", '{"a": 5}', None),
        ("'x' IN a", '{"a": "x"}', None),
        ("a = TRUE", '{"a": 1}', None),
        ("a = 'x'", '{"a": {"$timestamp": "1970-01-01T00:00:01Z"}}', None),
    ],
)
def test_unknown_goes_through_and_or_and_not_as_in_sql(
    condition: str, event: str, expected: bool | None
) -> None:
    assert result(condition, event) is expected


@pytest.mark.parametrize("value", ["1", "0", '""', "false", "[]", '{"$timestamp": "1970-01-01T00:00:00Z"}'])
def test_is_null_is_absence_and_is_not_null_presence(value: str) -> None:
    assert result("a IS NULL", f'{{"a": {value}}}') is False
    assert result("a IS NOT NULL", f'{{"a": {value}}}') is True
    for event in ("{}", '{"a": null}', '{"b": 1}', '{"a": [1]}'):
        assert result("a IS NULL", event) is True
        assert result("a IS NOT NULL", event) is False
        assert result("NOT a IS NULL", event) is False


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e400", "9223372036854775808", "-9223372036854775809"]
)
def test_nan_infinity_and_integers_beyond_64_bit_are_refused_with_the_attributes_name(value: str) -> None:
    assert refused_attribute(f'{{"ok": 1, "order": {{"price": {value}}}}}') == "order.price"


def test_duplicate_keys_are_refused_with_the_attributes_name() -> None:
    assert refused_attribute('{"order": {"price": 1, "price": 1}}') == "order.price"
    assert refused_attribute('{"order.price": 1, "order": {"price": 1}}') == "order.price"


@pytest.mark.parametrize(
    ("condition", "event", "expected"),
    [
        ("a = 'é'", '{"a": "e\u0301"}', True),
        ("a = 'e\u0301'", '{"a": "é"}', True),
        ('"e\u0301" = 1', '{"é": 1}', True),
        ("é = 1", '{"e\u0301": 1}', True),
        ("'é' IN a", '{"a": ["e\u0301"]}', True),
        ("a LIKE 'e\u0301%'", '{"a": "éa"}', True),
        ("a = 'x'", '{"a": "X"}', False),
        ("A = 1", '{"a": 1}', None),
        ("a < 'a'", '{"a": "Z"}', True),
        ("a > 'z'", '{"a": "é"}', True),
        ("a > '\uffff'", '{"a": "\U00010000"}', True),  # UTF-16 would order these the other way
        ("a <= 'ab'", '{"a": "aa"}', True),
        ("a BETWEEN 'a' AND 'b'", '{"a": "ab"}', True),
        ("a LIKE 'ab%'", '{"a": "abc"}', True),
        ("a LIKE '%bc'", '{"a": "abc"}', True),
        ("a LIKE '%b%'", '{"a": "abc"}', True),
        ("a LIKE 'a_c'", '{"a": "abc"}', True),
        ("a LIKE 'a_c'", '{"a": "a\U0001f600c"}', True),
        ("a LIKE 'A%'", '{"a": "abc"}', False),
        ("a IN ('x', 'abc')", '{"a": "abc"}', True),
        ("a <> 'abc'", '{"a": "abd"}', True),
    ],
)
def test_strings_and_names_are_nfc_case_sensitive_and_ordered_by_code_point(
    condition: str, event: str, expected: bool | None
) -> None:
    assert result(condition, event) is expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-01-05T08:30:00Z", True),
        ("2026-01-05T09:30:00+01:00", True),
        ("2026-01-05T00:30:00.000000-08:00", True),
        ("2026-01-05T08:30:00.000001Z", False),
        ("2026-01-05T09:30:00Z", False),
    ],
)
def test_timestamps_are_moments_whatever_their_offset(written: str, expected: bool) -> None:
    event = f'{{"at": {{"$timestamp": "{written}"}}}}'
    assert result("at = TIMESTAMP '2026-01-05T08:30:00Z'", event) is expected
    assert result("at = TIMESTAMP '2026-01-05T10:30:00+02:00'", event) is expected


@pytest.mark.parametrize("written", ["2026-01-05T08:30:00", "2026-01-05", "08:30:00Z", "", "1767601800"])
def test_a_naive_or_broken_timestamp_is_refused(written: str) -> None:
    assert refused_attribute(f'{{"at": {{"$timestamp": "{written}"}}}}') == "at"
    with pytest.raises(InvalidFilter):
        parse(f"at = TIMESTAMP '{written}'")


@pytest.mark.parametrize(
    "condition", ["x >= 1 AND x < 5", "NOT (x < 1 OR x >= 5)", "x < 5 AND x < 9 AND x >= 1"]
)
def test_a_range_is_one_interval(condition: str) -> None:
    assert parse(condition).clauses == ((Between("x", Domain.NUMBER, 1, True, 5, False),),)
    for value, expected in (("0.999", False), ("1", True), ("4.999", True), ("5", False)):
        assert result(condition, f'{{"x": {value}}}') is expected
    assert result(condition, '{"x": "3"}') is None


def test_a_point_is_no_range() -> None:
    assert parse("x >= 3 AND x <= 3").clauses == ((OneOf("x", Domain.NUMBER, (3,)),),)


def test_rows_hold_for_context_attributes_as_well() -> None:
    required = '"specversion": "1.0", "id": "1", "source": "/s"'
    event = f'{{{required}, "type": "e\u0301", "time": "2026-01-05T09:30:00+01:00"}}'
    assert result("type = 'é' AND time = TIMESTAMP '2026-01-05T08:30:00Z' AND subject IS NULL", event) is True
