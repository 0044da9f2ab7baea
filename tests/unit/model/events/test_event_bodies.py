"""Request bodies: content types, batches, lines, and which event an error is about."""

import pytest

from culver.config import EventSettings
from culver.errors import InvalidEvent, InvalidRequest, TooLarge
from culver.model.formats import MEDIA_TYPES, decode_body, decode_lines

SETTINGS = EventSettings()
CLOUDEVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}'


def prices(content_type: str | None, body: bytes, settings: EventSettings = SETTINGS) -> list[object]:
    return [event.value("price") for event in decode_body(content_type, {}, body, settings)]


@pytest.mark.parametrize("content_type", [None, "", "application/json", 'Application/JSON ; charset="UTF-8"'])
def test_json_is_one_event_or_an_array(content_type: str | None) -> None:
    assert prices(content_type, b' {"price": 1}\n') == [1]
    assert prices(content_type, b' [{"price": 1}, {"price": 2} ,{"price":3}]\n') == [1, 2, 3]
    assert prices(content_type, b"[]") == []
    assert prices(content_type, b"\xef\xbb\xbf [ ] ") == []


def test_json_may_hold_cloudevents() -> None:
    events = decode_body("application/json", {}, b'[{"a": 5}, ' + CLOUDEVENT + b"]", SETTINGS)
    assert [event.context.get("type") for event in events] == [None, "t"]
    assert [event.data for event in events] == [{"a": 5}, {"a": 1}]


def test_a_structured_cloudevent_is_one_object() -> None:
    (event,) = decode_body("application/cloudevents+json; charset=utf-8", {}, CLOUDEVENT, SETTINGS)
    assert event.context["type"] == "t"
    with pytest.raises(InvalidEvent):
        decode_body("application/cloudevents+json", {}, b"[" + CLOUDEVENT + b"]", SETTINGS)
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/cloudevents+json", {}, b'{"price": 1}', SETTINGS)
    assert caught.value.field == "specversion"


def test_a_structured_content_type_wins_over_binary_headers() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "other"}
    (event,) = decode_body("application/cloudevents+json", headers, CLOUDEVENT, SETTINGS)
    assert event.context["id"] == "1"


def test_a_batch_of_cloudevents_is_an_array_of_nothing_else() -> None:
    media_type = "application/cloudevents-batch+json"
    assert len(decode_body(media_type, {}, b"[" + CLOUDEVENT + b"," + CLOUDEVENT + b"]", SETTINGS)) == 2
    assert decode_body(media_type, {}, b"[]", SETTINGS) == []
    with pytest.raises(InvalidEvent):
        decode_body(media_type, {}, CLOUDEVENT, SETTINGS)
    with pytest.raises(InvalidEvent) as caught:
        decode_body(media_type, {}, b"[" + CLOUDEVENT + b', {"price": 1}]', SETTINGS)
    assert caught.value.field == "[1].specversion"


def test_ndjson_is_one_event_a_line() -> None:
    body = b'{"price": 1}\r\n\n  \n{"price": 2}\n' + CLOUDEVENT
    assert prices("application/x-ndjson", body) == [1, 2, None]
    assert prices("application/x-ndjson", b"") == []


def test_a_line_separator_within_a_string_does_not_end_a_line() -> None:
    (event,) = decode_body("application/x-ndjson", {}, '{"a": "x\u2028y\x85z"}\n'.encode(), SETTINGS)
    assert event.data == {"a": "x\u2028y\x85z"}


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/cloudevents+avro",
        "application/cloudevents-batch+avro",
        "application/jsonp",
        ";",
        "é" * 1000,
        "application/json; charset=latin-1",
        "application/x-ndjson; charset=utf-16",
    ],
)
def test_other_content_types_are_415_and_the_message_helps(content_type: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(content_type, {}, b"{}", SETTINGS)
    assert caught.value.field == "content-type"
    assert caught.value.details["status"] == 415
    assert any(name in caught.value.message for name in (*MEDIA_TYPES, "UTF-8"))
    assert len(caught.value.message) < 400


def test_an_error_in_an_array_names_the_event_and_the_attribute() -> None:
    body = b'[{"price": 1}, {"price": 2}, {}, {"item": {"price": 1e999}}]'
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/json", {}, body, SETTINGS)
    assert caught.value.field == "[3].item.price"
    assert "[3]" in caught.value.message


def test_an_item_that_is_no_object_is_named_by_its_place() -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/json", {}, b"[{}, 5]", SETTINGS)
    assert caught.value.field == "[1]"


def test_an_item_above_the_size_limit_is_named_by_its_place_and_keeps_its_details() -> None:
    with pytest.raises(TooLarge) as caught:
        decode_body("application/json", {}, b'[{"a":1}, {"a":"xxxxxx"}]', EventSettings(max_bytes=10))
    assert caught.value.field == "[1]"
    assert caught.value.details["limit"] == 10


@pytest.mark.parametrize(
    "body", [b"[", b"[{}", b"[{},", b"[{},]", b"[{}}", b"[{}] x", b"[] []", b"[{} {}]", b"[,]"]
)
def test_a_broken_array_is_refused_with_a_position(body: bytes) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/json", {}, body, SETTINGS)
    assert 0 < caught.value.details["position"] <= len(body)


def test_a_batch_as_long_as_the_limit_is_accepted_and_one_more_is_not() -> None:
    settings = EventSettings(max_batch=3)
    assert len(prices(None, b"[{},{},{}]", settings)) == 3
    with pytest.raises(TooLarge) as caught:
        prices(None, b"[{},{},{},{}]", settings)
    assert caught.value.details["limit"] == 3


def test_reading_stops_at_the_limit() -> None:
    with pytest.raises(TooLarge):  # not a complaint about what follows
        prices(None, b"[{},{}, this is not JSON", EventSettings(max_batch=1))


@pytest.mark.parametrize(
    "filler", [b"[],", b'"ab",', b"1,", b"true,", b'"' + b"x" * 5_000 + b'",', b'{"a":1},', b" "]
)
@pytest.mark.parametrize("before", [0, 1, 30, 31, 32, 33, 100])
def test_a_huge_item_in_an_array_is_refused_without_reading_to_its_end(filler: bytes, before: int) -> None:
    settings = EventSettings(max_bytes=1_000)
    sound = b'{"price": "' + b"x" * 90 + b'"}, '
    body = b"[" + sound * before + b'{"a": [' + filler * (1_000_000 // len(filler)) + b"this is not JSON"
    with pytest.raises(TooLarge) as caught:
        decode_body("application/json", {}, body, settings)
    assert caught.value.field == f"[{before}]"


@pytest.mark.parametrize("before", [0, 5, 28, 29, 30, 31, 50])
def test_a_long_array_is_read_to_its_end_and_its_errors_are_placed_right(before: int) -> None:
    settings = EventSettings(max_bytes=200)
    item = b'{"price": "' + b"x" * 170 + b'"}, '
    body = b"[" + item * before + b'{"price": 1 ?}, ' + item * 100 + b"{}]"
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/json", {}, body, settings)
    assert caught.value.details["position"] == body.index(b"?")
    assert len(prices(None, body.replace(b" ?", b""), settings)) == before + 102


def test_one_event_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(TooLarge):
        decode_body(None, {}, b"{ not JSON" + b" " * 300_000, SETTINGS)


def test_an_error_in_ndjson_names_the_line() -> None:
    body = b'{"price": 1}\n\n{"price": 2}\n{"price": NaN}\n'
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/x-ndjson", {}, body, SETTINGS)
    assert (caught.value.details["line"], caught.value.field) == (4, "price")


def test_lines_may_be_counted_from_any_number() -> None:
    events, error = decode_lines([(100, b"{}"), (101, b'{"a"'), (102, b"{}")], SETTINGS)
    assert len(events) == 1
    assert isinstance(error, InvalidEvent)
    assert error.details["line"] == 101
    assert "line 101" in error.message


def test_a_line_that_is_not_utf8_is_named() -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/x-ndjson", {}, b'{}\n{"a": "\xff"}', SETTINGS)
    assert caught.value.details["line"] == 2
