import json
from collections import UserDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql import Row

from culver.client.event_encoding import decode_timestamp, encode_event, encode_events
from culver.errors import InvalidEvent, InvalidRequest


def test_one_mapping_several_and_keywords_all_become_json() -> None:
    assert encode_events({"a": 1}, {}) == [b'{"a":1}']
    assert encode_events(UserDict(a=1), {}) == [b'{"a":1}']
    assert encode_events([{"a": 1}, b'{"b": 2}'], {}) == [b'{"a":1}', b'{"b": 2}']
    assert encode_events(({"a": n} for n in range(2)), {}) == [b'{"a":0}', b'{"a":1}']
    assert encode_events(None, {"symbol": "XYZ", "price": 21.5}) == [b'{"symbol":"XYZ","price":21.5}']


def test_a_timestamp_is_sent_in_utc_and_comes_back_as_the_same_moment() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
    encoded = json.loads(encode_event({"at": moment, "in": {"at": [moment]}}))
    assert encoded["at"] == {"$timestamp": "2026-01-02T01:04:05.678901Z"}
    assert encoded["in"]["at"] == [encoded["at"]]
    assert decode_timestamp(encoded["at"]) == moment


def test_a_naive_timestamp_is_refused_with_both_ways_out() -> None:
    with pytest.raises(InvalidEvent, match=r"time zone.*replace\(tzinfo=UTC\).*astimezone\(\)"):
        encode_event({"at": datetime(2026, 1, 1)})  # noqa: DTZ001


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int8(-3), "-3"),
        (np.int64(2**62), str(2**62)),
        (np.uint64(7), "7"),
        (np.float32(0.5), "0.5"),
        (np.float32(0.1), repr(float(np.float32(0.1)))),
        (np.float64(21.5), "21.5"),
        (np.bool_(True), "true"),
        (np.str_("é"), '"\\u00e9"'),
        (np.array(["a", "b"]), '["a","b"]'),
        (np.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
        (np.array(5), "5"),
        (date(2026, 1, 31), '"2026-01-31"'),
        (Decimal("20.10"), "20.1"),
        (Decimal("0.1"), "0.1"),
        (Decimal("5"), "5"),
        (Decimal("1E+3"), "1000"),
        (Decimal("9007199254740993"), "9007199254740993"),
        (Decimal("5.00"), "5.0"),
        (Decimal("1E-10"), "1e-10"),
        (Row(a=np.int32(1), b=Row(c="x")), '{"a":1,"b":{"c":"x"}}'),
        ([Row(a=1)], '[{"a":1}]'),
        (("x", "y"), '["x","y"]'),
    ],
)
def test_types_of_other_libraries_become_json(value: Any, expected: str) -> None:
    assert encode_event({"v": value}) == b'{"v":%b}' % expected.encode()


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.float64("nan"), "nan"),
        (np.float32("inf"), "inf"),
        (np.uint64(2**63), "64 bit"),
        (np.datetime64("2026-01-01T00:00:00"), "time zone"),
        (np.datetime64("2026-01-01T00:00:00", "ns"), "time zone"),
        (np.array(["2026-01-01"], np.datetime64), "time zone"),
        (np.timedelta64(5, "s"), "timedelta"),
        (np.complex128(1j), "complex"),
        (np.longdouble(1), "longdouble"),
        (Decimal("NaN"), "NaN"),
        (Decimal("-Infinity"), "Infinity"),
        (Decimal("0.12345678901234567890"), "digits"),
        (Decimal("1e400"), "digits"),
        (Decimal(2**64), "64 bit"),
    ],
)
def test_what_an_event_cannot_hold_is_refused_for_other_libraries_too(value: Any, what: str) -> None:
    with pytest.raises(InvalidEvent, match=what) as caught:
        encode_event({"v": [value]})
    assert caught.value.field == "v[0]"


def test_a_datetime_that_is_no_moment_is_refused() -> None:
    class NotATime(datetime):
        """As NaT of pandas, which not every environment has."""

        def utcoffset(self) -> timedelta | None:
            raise ValueError("NaTType does not support utcoffset")

    with pytest.raises(InvalidEvent, match="cannot hold"):
        encode_event({"at": NotATime(2026, 1, 1)})


def test_rows_of_spark_are_events() -> None:
    row = Row(symbol="XYZ", price=21.5)
    assert encode_events(row, {}) == [b'{"symbol":"XYZ","price":21.5}']
    assert encode_events([row, row], {}) == 2 * [b'{"symbol":"XYZ","price":21.5}']


@pytest.mark.parametrize(
    "value", [{}, {"$timestamp": 1}, {"$timestamp": "soon"}, {"$timestamp": "x", "b": 1}]
)
def test_other_objects_stay_as_they_are(value: dict[str, Any]) -> None:
    assert decode_timestamp(value) is value


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"a": 1, "b": float("nan")}, "b"),
        ({"a": {"b": [1.0, float("inf")]}}, "a.b[1]"),
        ({"a": {1, 2}}, "a"),
        ({"a": {"b": object()}}, "a.b"),
        ({"a": [{"b": 2**63}]}, "a[0].b"),
        ({"a": "\ud800"}, "a"),
        ({"a": {1: 2}}, "a"),
        ({"a": {"b": {"c": float("nan")}}}, "a.b.c"),
        ({"a": {"b": "\ud800"}}, "a.b"),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused_with_its_attribute(
    event: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidEvent) as caught:
        encode_event(event)
    assert caught.value.field == field


def test_an_event_that_contains_itself_is_refused() -> None:
    event: dict[str, Any] = {}
    event["self"] = event
    with pytest.raises(InvalidEvent, match="contains itself"):
        encode_event(event)


@pytest.mark.parametrize(
    "text", [b"", b"1", b"[]", b'{"a":1},{"b":2}', b'{"a":1}]}', b'{"a":\xff}', b"{'a': 1}"]
)
def test_text_that_is_not_one_json_object_cannot_enter_a_message(text: bytes) -> None:
    with pytest.raises(InvalidEvent):
        encode_event(text)


@pytest.mark.parametrize("events", ["text", 7, ["text"], [1]])
def test_what_is_not_an_event_is_refused(events: Any) -> None:
    with pytest.raises(InvalidEvent):
        encode_events(events, {})


def test_nothing_and_two_forms_at_once_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        encode_events(None, {})
    with pytest.raises(InvalidRequest):
        encode_events([], {})
    with pytest.raises(InvalidRequest):
        encode_events({"a": 1}, {"b": 2})


def test_the_current_time_survives() -> None:
    now = datetime.now(UTC)
    assert decode_timestamp(json.loads(encode_event({"at": now}))["at"]) == now
