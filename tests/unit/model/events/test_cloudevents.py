"""CloudEvents 1.0, structured and binary."""

from typing import Any

import msgspec
import pytest

from culver.config import EventSettings
from culver.errors import InvalidEvent, TooLarge
from culver.model.event import Event
from culver.model.formats import decode_body, event_from_object
from culver.model.values import Timestamp

SETTINGS = EventSettings()
REQUIRED = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order"}
HEADERS = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "order"}


def structured(**members: Any) -> Event:
    return event_from_object(REQUIRED | members, SETTINGS)


def binary(body: bytes = b"", content_type: str | None = None, **headers: str) -> Event:
    extra = {"ce-" + name: value for name, value in headers.items()}
    (event,) = decode_body(content_type, HEADERS | extra, body, SETTINGS)
    return event


def refused_field(**members: Any) -> str | None:
    with pytest.raises(InvalidEvent) as caught:
        structured(**members)
    return caught.value.field


def test_context_and_data_are_kept_apart() -> None:
    event = structured(time="1970-01-01T00:00:01Z", region="eu", data={"price": 2, "at": {"x": "y"}})
    assert event.context == REQUIRED | {"time": Timestamp(1_000_000), "region": "eu"}
    assert event.data == {"price": 2, "at.x": "y"}


def test_a_context_attribute_hides_a_data_field_of_its_name_and_data_dot_reaches_it() -> None:
    event = structured(price=1, data={"price": 2, "type": "inner"})
    assert (event.value("price"), event.value("data.price")) == (1, 2)
    assert (event.value("type"), event.value("data.type")) == ("order", "inner")


def test_the_payload_is_the_whole_structured_event() -> None:
    document = REQUIRED | {"region": "eu", "data": {"price": 2}}
    assert msgspec.json.decode(event_from_object(document, SETTINGS).payload) == document


@pytest.mark.parametrize("name", ["id", "source", "type"])
@pytest.mark.parametrize("value", [None, "", 5, True, ["x"], {}])
def test_required_attributes_must_be_texts(name: str, value: Any) -> None:
    assert refused_field(**{name: value}) == name


@pytest.mark.parametrize("name", ["id", "source", "type"])
def test_required_attributes_must_be_there(name: str) -> None:
    document = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(InvalidEvent) as caught:
        event_from_object(document, SETTINGS)
    assert caught.value.field == name


@pytest.mark.parametrize("version", ["0.3", "1.1", "", 1.0, None, ["1.0"]])
def test_other_versions_are_refused(version: Any) -> None:
    assert refused_field(specversion=version) == "specversion"


@pytest.mark.parametrize("name", ["subject", "dataschema", "datacontenttype"])
def test_optional_attributes_must_be_texts_where_they_are_there(name: str) -> None:
    assert structured(**{name: "x/y"}).context[name] == "x/y"
    assert name not in structured(**{name: None}).context
    assert refused_field(**{name: 5}) == name
    assert refused_field(**{name: ""}) == name


@pytest.mark.parametrize("time", ["2026-01-01T00:00:00", "yesterday", 5, ""])
def test_time_must_be_rfc_3339_with_an_offset(time: Any) -> None:
    assert refused_field(time=time) == "time"


@pytest.mark.parametrize("value", ["", "text", True, False, 0, -(2**31), 2**63 - 1])
def test_extensions_are_texts_booleans_and_integers(value: Any) -> None:
    found = structured(extension1=value).context["extension1"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [1.5, [], ["x"], {}, {"$timestamp": "2026-01-01T00:00:00Z"}, 2**63])
def test_other_values_of_extensions_are_refused(value: Any) -> None:
    assert refused_field(extension1=value) == "extension1"


@pytest.mark.parametrize("name", ["Upper", "under_score", "dot.ted", "da-sh", "é", "", "a b", "x\n"])
def test_extension_names_are_lower_case_letters_and_digits(name: str) -> None:
    assert refused_field(**{name: "x"}) == name


def test_extension_names_have_a_limit() -> None:
    assert refused_field(**{"x" * 257: "x"}) == "x" * 255 + "…"


def test_strings_of_the_context_are_normalised() -> None:
    assert structured(subject="e\u0301").context["subject"] == "é"
    assert refused_field(subject="\ud800") == "subject"


@pytest.mark.parametrize("data", ["text", 5, 1.5, True, ["x"], [1], None])
def test_data_that_is_not_an_object_is_in_the_payload_only(data: Any) -> None:
    event = structured(data=data)
    assert event.data == {}
    assert msgspec.json.decode(event.payload)["data"] == data


@pytest.mark.parametrize(
    ("data", "field"),
    [({"price": 2**63}, "data.price"), ([1, 2**63], "data[1]"), ({"": 1}, "data."), (float("inf"), "data")],
)
def test_errors_in_the_data_name_the_data(data: Any, field: str) -> None:
    assert refused_field(data=data) == field


def test_data_is_either_json_or_base64() -> None:
    assert structured(data_base64="AAEC").data == {}
    assert structured(data_base64="AAEC", data=None).data == {}
    assert refused_field(data_base64="AAEC", data={}) == "data_base64"
    wrong_values: tuple[Any, ...] = ("A", "A A=", "é", 5, ["AAEC"], {})
    for wrong in wrong_values:
        assert refused_field(data_base64=wrong) == "data_base64"


def test_context_and_data_count_towards_one_limit() -> None:
    settings = EventSettings(max_attributes=5)
    assert event_from_object(REQUIRED | {"data": {"a": 1}}, settings)
    with pytest.raises(TooLarge) as caught:
        event_from_object(REQUIRED | {"data": {"a": 1, "b": 2}}, settings)
    assert caught.value.field == "b"


def test_depth_counts_from_the_event() -> None:
    settings = EventSettings(max_depth=2)
    assert event_from_object(REQUIRED | {"data": {"a": 1}}, settings)
    with pytest.raises(InvalidEvent) as caught:
        event_from_object(REQUIRED | {"data": {"a": {"b": 1}}}, settings)
    assert caught.value.field == "data.a"


def test_a_repeated_context_attribute_is_refused() -> None:
    body = b'{"specversion":"1.0","id":"7","source":"/shop","type":"order","id":"8"}'
    with pytest.raises(InvalidEvent) as caught:
        decode_body("application/cloudevents+json", {}, body, SETTINGS)
    assert caught.value.field == "id"


# --- binary mode -----------------------------------------------------------------------------------------


def test_binary_mode_gives_the_same_event_as_structured_mode() -> None:
    sent = binary(b'{"price": 2}', "application/json", time="2026-01-01T00:00:00Z", region="eu")
    same = structured(
        time="2026-01-01T00:00:00Z", region="eu", datacontenttype="application/json", data={"price": 2}
    )
    assert (sent.context, sent.data) == (same.context, same.data)
    assert msgspec.json.decode(sent.payload) == msgspec.json.decode(same.payload)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € \N{GRINNING FACE}"),
        ("%c3%a9", "é"),
        ("e%CC%81", "é"),
        ("%41", "A"),
        ("%2541", "%41"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ('"quoted \\"text\\" \\\\ %41"', 'quoted "text" \\ A'),
        ('"', '"'),
        ("Ã©", "é"),
        ("€", "€"),
        (" padded\t", "padded"),
    ],
)
def test_headers_are_unquoted_and_percent_decoded_once(header: str, value: str) -> None:
    assert binary(subject=header).context["subject"] == value


@pytest.mark.parametrize("header", ["%C0%A0", "%FF", "\xff", "%ED%A0%80", "\ud800"])
def test_headers_that_are_not_utf8_are_refused(header: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        binary(subject=header)
    assert caught.value.field == "subject"


def test_headers_of_other_names_are_ignored() -> None:
    (event,) = decode_body(None, HEADERS | {"host": "x", "cookie": "y", "accept": "*/*"}, b"", SETTINGS)
    assert set(event.context) == set(REQUIRED)


@pytest.mark.parametrize("name", ["datacontenttype", "data", "data_base64", "under_score", ""])
def test_headers_that_name_no_attribute_are_refused(name: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        binary(b"{}", "application/json", **{name: "x"})
    assert caught.value.field == name


def test_a_missing_required_header_is_refused() -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode_body(None, {"ce-specversion": "1.0", "ce-id": "1", "ce-type": "x"}, b"", SETTINGS)
    assert caught.value.field == "source"


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "application/vnd.shop+json", None]
)
def test_json_data_gives_attributes(content_type: str | None) -> None:
    event = binary(b'{"price": 2}', content_type)
    assert event.data == {"price": 2}
    assert event.context.get("datacontenttype") == content_type


@pytest.mark.parametrize(
    ("content_type", "body", "member"),
    [
        ("text/plain", "é".encode(), {"data": "é"}),
        ("application/xml", b"<x/>", {"data": "<x/>"}),
        ("image/svg+xml;charset=UTF-8", b"<svg/>", {"data": "<svg/>"}),
        ("text/plain", b"\xff", {"data_base64": "/w=="}),
        ("text/plain; charset=latin-1", b"\xe9", {"data_base64": "6Q=="}),
        ("application/octet-stream", b"\x00\x01", {"data_base64": "AAE="}),
        ("application/x-ndjson", b"{}", {"data_base64": "e30="}),
    ],
)
def test_other_data_stays_in_the_payload(content_type: str, body: bytes, member: dict[str, str]) -> None:
    event = binary(body, content_type)
    assert event.data == {}
    assert msgspec.json.decode(event.payload) == REQUIRED | {"datacontenttype": content_type} | member


def test_an_empty_body_is_no_data() -> None:
    assert "data" not in msgspec.json.decode(binary(b"", "application/json").payload)


def test_broken_json_data_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        binary(b"{", "application/json")
    with pytest.raises(InvalidEvent) as caught:
        binary(b'{"a": 1, "a": 2}', "application/json")
    assert caught.value.field == "data.a"


def test_a_binary_body_above_the_limit_is_refused() -> None:
    with pytest.raises(TooLarge):
        decode_body("text/plain", HEADERS, b"x" * 300_000, SETTINGS)
    with pytest.raises(TooLarge):  # Base64 makes it a third larger
        decode_body("image/png", HEADERS, b"x" * 250_000, SETTINGS)
