"""Plain JSON objects as events: names, values, limits."""

from typing import Any

import msgspec
import pytest

from culver.config import EventSettings
from culver.errors import CulverError, InvalidEvent, TooLarge
from culver.model.formats import event_from_object, parse_event
from culver.model.values import Timestamp

SETTINGS = EventSettings()


def refusal(body: str | bytes, settings: EventSettings = SETTINGS) -> CulverError:
    with pytest.raises((InvalidEvent, TooLarge)) as caught:
        parse_event(body if isinstance(body, bytes) else body.encode(), settings)
    return caught.value


def attributes(document: dict[str, Any]) -> dict[str, Any]:
    event = event_from_object(document, SETTINGS)
    assert event.context == {}
    return dict(event.data)


def test_members_become_attributes_of_their_kinds() -> None:
    document = {
        "whole": 3,
        "real": 3.0,
        "text": "x",
        "truth": True,
        "tags": ["x", "y"],
        "none": [],
        "at": {"$timestamp": "1970-01-01T00:00:01.5+00:00"},
    }
    found = attributes(document)
    assert found == {
        "whole": 3,
        "real": 3.0,
        "text": "x",
        "truth": True,
        "tags": ("x", "y"),
        "none": (),
        "at": Timestamp(1_500_000),
    }
    assert [type(found[name]) for name in ("whole", "real", "truth")] == [int, float, bool]


def test_nested_objects_become_dotted_paths() -> None:
    assert attributes({"a": {"b": {"c": 1}, "d": 2}, "e": {}}) == {"a.b.c": 1, "a.d": 2}


def test_null_is_absent() -> None:
    assert attributes({"a": None, "b": {"c": None}}) == {}


@pytest.mark.parametrize("items", [[1], ["a", 1], [None], [["a"]], [{"a": 1}], [True]])
def test_a_list_of_anything_but_strings_is_in_the_payload_only(items: list[Any]) -> None:
    event = event_from_object({"list": items, "x": 1}, SETTINGS)
    assert event.data == {"x": 1}
    assert msgspec.json.decode(event.payload) == {"list": items, "x": 1}


def test_an_object_with_more_than_the_timestamp_key_is_an_ordinary_object() -> None:
    assert attributes({"at": {"$timestamp": "now", "zone": "UTC"}}) == {
        "at.$timestamp": "now",
        "at.zone": "UTC",
    }


def test_the_event_itself_is_never_a_timestamp() -> None:
    assert attributes({"$timestamp": "now"}) == {"$timestamp": "now"}


def test_the_payload_is_compact_on_one_line_and_keeps_what_was_sent() -> None:
    event = parse_event('{ "name": "e\u0301",\n "x": [1, null], "n": null, "line": "a\\nb" }'.encode())
    assert event.payload == '{"name":"e\u0301","x":[1,null],"n":null,"line":"a\\nb"}'.encode()
    assert event.data["name"] == "é"


def test_names_and_strings_are_normalised() -> None:
    assert attributes({"e\u0301": "e\u0301", "l": ["e\u0301"]}) == {"é": "é", "l": ("é",)}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"a": 9223372036854775808}', "a"),
        ('{"a": {"b": -9223372036854775809}}', "a.b"),
        ('{"a": [1, 9223372036854775808]}', "a[1]"),
        ('{"a": 1e999}', "a"),
        ('{"a": {"b": NaN}}', "a.b"),
        ('{"a": [{"b": -Infinity}]}', "a[0].b"),
        ('{"a": "\\ud800"}', "a"),
        ('{"a": ["x", "\\ud800"]}', "a[1]"),
        ('{"a": {"\\ud800": 1}}', "a.\\ud800"),
        ('{"a": 1, "a": 1}', "a"),
        ('{"a": {"b": 1, "b": 1}}', "a.b"),
        ('{"a.b": 1, "a": {"b": 2}}', "a.b"),
        ('{"a": {"b": 2}, "a.b": 1}', "a.b"),
        ('{"\u00e9": 1, "e\u0301": 2}', "é"),
        ('{"\u00e9": {"x": 1}, "e\u0301": {"x": 2}}', "é.x"),
        ('{"": 1}', ""),
        ('{"a": {"": 1}}', "a."),
        ('{"": null}', ""),
        ('{"at": {"$timestamp": "2026-01-01T00:00:00"}}', "at"),
        ('{"at": {"$timestamp": 5}}', "at"),
        ('{"at": {"$timestamp": null}}', "at"),
        ('{"at": {"$timestamp": "x", "$timestamp": "y"}}', "at.$timestamp"),
        ('{"a": {"at": {"$timestamp": "2026-13-01T00:00:00Z"}}}', "a.at"),
    ],
)
def test_what_breaks_the_value_rules_is_refused_with_the_attributes_name(body: str, field: str) -> None:
    error = refusal(body)
    assert isinstance(error, InvalidEvent)
    assert error.field == field


@pytest.mark.parametrize("body", ["[]", "1", '"x"', "null", "true", "[{}]"])
def test_an_event_must_be_an_object(body: str) -> None:
    assert "object" in refusal(body).message


def test_a_value_that_json_does_not_have_is_refused() -> None:
    for value in (b"x", (1,), {1}, object()):
        with pytest.raises(InvalidEvent) as caught:
            event_from_object({"a": value}, SETTINGS)
        assert caught.value.field == "a"


def test_an_empty_object_is_an_event_without_attributes() -> None:
    event = parse_event(b"{}")
    assert (event.context, event.data, event.payload) == ({}, {}, b"{}")


def test_as_many_attributes_as_the_limit_are_accepted_and_one_more_is_not() -> None:
    settings = EventSettings(max_attributes=3)
    assert len(parse_event(b'{"a": 1, "b": {"c": 1, "d": 1}, "none": null}', settings).data) == 3
    error = refusal('{"a": 1, "b": {"c": 1, "d": 1}, "e": 1}', settings)
    assert isinstance(error, TooLarge)
    assert (error.field, error.details["limit"]) == ("e", 3)


def test_a_name_as_long_as_the_limit_is_accepted_and_one_longer_is_not() -> None:
    settings = EventSettings(max_name_length=5)
    assert parse_event(b'{"ab": {"cd": 1}}', settings).data == {"ab.cd": 1}
    error = refusal('{"ab": {"cde": 1}}', settings)
    assert (error.field, error.details["limit"]) == ("ab.cde", 5)


def test_the_length_of_a_name_is_that_of_its_normal_form() -> None:
    assert parse_event('{"e\u0301e\u0301": 1}'.encode(), EventSettings(max_name_length=2)).data == {"éé": 1}


@pytest.mark.parametrize(
    "body", ['{"a": {"b": 1}}', '{"a": ["x"]}', '{"a": [1]}', '{"a": {"$timestamp": "2026-01-01T00:00:00Z"}}']
)
def test_depth_is_limited_for_objects_lists_and_timestamps(body: str) -> None:
    assert parse_event(body.encode(), EventSettings(max_depth=2)).payload
    error = refusal(body, EventSettings(max_depth=1))
    assert (error.field, error.details["limit"]) == ("a", 1)


def test_a_depth_limit_beyond_the_stack_is_still_a_refusal() -> None:
    document: dict[str, Any] = {}
    for _ in range(5_000):
        document = {"a": document}
    with pytest.raises(InvalidEvent, match="deep"):
        event_from_object(document, EventSettings(max_depth=10**9, max_name_length=10**9))


def test_an_event_as_large_as_the_limit_is_accepted_and_one_byte_more_is_not() -> None:
    body = b'{"a":"xxxx"}'
    assert parse_event(body, EventSettings(max_bytes=12)).payload == body
    error = refusal(body, EventSettings(max_bytes=11))
    assert isinstance(error, TooLarge)
    assert error.details["limit"] == 11


def test_the_limit_holds_for_the_compact_form_too() -> None:
    body = b'{"a":1e9}'  # becomes 1000000000.0
    assert isinstance(refusal(body, EventSettings(max_bytes=len(body))), TooLarge)


def test_data_is_an_ordinary_member_of_a_plain_event() -> None:
    event = event_from_object({"data": {"price": 1}, "price": 2}, SETTINGS)
    assert event.data == {"data.price": 1, "price": 2}
    assert event.value("data.price") == 2
    assert event.value("price") == 2
    assert event.value("data.data.price") == 1
