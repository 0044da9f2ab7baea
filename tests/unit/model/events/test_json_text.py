"""Strict JSON: what is accepted, what is refused, and that a refusal says where."""

import pytest

from culver.errors import InvalidEvent
from culver.model.formats import strict_json


def refusal(body: bytes | str, max_depth: int = 16) -> InvalidEvent:
    with pytest.raises(InvalidEvent) as caught:
        strict_json(body, max_depth)
    return caught.value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, 2.5, "x", true, false, null]}', {"a": [1, 2.5, "x", True, False, None]}),
        (b" \t\r\n{}\n", {}),
        ("[1]", [1]),
        (b'"\xc3\xa9"', "é"),
        (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"1e-999", 0.0),
        (b"\xef\xbb\xbf[]", []),
    ],
)
def test_json_is_read(body: bytes | str, value: object) -> None:
    assert strict_json(body, 16) == value


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_refused_with_its_path(token: str) -> None:
    assert refusal(f'{{"a": {{"b": [0, {token}]}}}}').field == "a.b[1]"


@pytest.mark.parametrize("digits", [str(2**63), str(-(2**63) - 1), "1" * 50, "-" + "9" * 10_000])
def test_an_integer_beyond_64_bit_is_refused_with_its_path(digits: str) -> None:
    error = refusal(f'{{"a": {{"b": {digits}}}}}')
    assert error.field == "a.b"
    assert len(error.message) < 200


def test_a_repeated_key_is_refused_with_its_path() -> None:
    assert refusal(b'{"a": 1, "a": 1}').field == "a"
    assert refusal(b'{"x": [{"a": {"b": 1, "c": 2, "b": 3}}]}').field == "x[0].a.b"


def test_the_same_key_in_two_objects_is_not_repeated() -> None:
    assert strict_json(b'[{"a": 1}, {"a": {"a": 2}}]', 16) == [{"a": 1}, {"a": {"a": 2}}]


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b'{"a": ["\\udc00x"]}', b'{"a": {"\\ud800": 1}}'])
def test_a_lone_surrogate_is_refused_and_the_error_can_still_be_encoded(body: bytes) -> None:
    error = refusal(body)
    assert error.field is not None
    assert error.field.startswith("a")
    (error.field + error.message).encode("utf-8")


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"[1,]", b"{} {}", b"{}x", b"nul", b"'a'", b'{"a" 1}', b'"\n"']
)
def test_what_is_not_json_is_refused_with_a_position(body: bytes) -> None:
    error = refusal(body)
    assert 0 <= error.details["position"] <= len(body)
    assert error.field is None


def test_a_syntax_error_names_line_and_column() -> None:
    error = refusal(b'{\n  "a": 1,\n  "b": ?\n}')
    assert (error.details["line"], error.details["column"]) == (3, 8)
    assert "line 3, column 8" in error.message


def test_text_after_the_value_is_refused_where_it_begins() -> None:
    assert refusal(b'{"a": 1} {"b": 2}').details["position"] == 9


def test_bytes_that_are_not_utf8_are_refused() -> None:
    assert refusal(b'{"a": "\xff"}').details["byte"] == 7
    assert "UTF-8" in refusal("{}".encode("utf-16")).message


def test_nesting_up_to_the_limit_is_accepted_and_one_more_is_not() -> None:
    assert strict_json(b"[" * 4 + b"]" * 4, 4) == [[[[]]]]
    error = refusal(b'{"a": {"b": {"c": {"d": {}}}}}', 4)
    assert error.field == "a.b.c.d"
    assert error.details["limit"] == 4


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("levels", [20_000, 1_000_000])
def test_absurd_nesting_is_refused_without_exhausting_the_stack(opening: bytes, levels: int) -> None:
    assert "deep" in refusal(opening * levels).message


def test_a_depth_limit_beyond_the_stack_is_still_a_refusal() -> None:
    refusals = []
    for levels in range(100, 1_200, 7):  # around where the reader, and then the walk after it, run out
        body = b"[" * levels + b"]" * levels
        try:
            strict_json(body, 10**9)
        except InvalidEvent as error:
            refusals.append(error.message)
    assert refusals
    assert all("deep" in message for message in refusals)


def test_a_very_long_key_is_cut_in_the_error() -> None:
    key = "k" * 100_000
    error = refusal(f'{{"{key}": 1, "{key}": 2}}')
    assert error.field is not None
    assert len(error.field) <= 256
