"""Rows as events without Spark: how texts are sorted, and cut into requests."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from culver.errors import InvalidEvent
from culver.model.formats import parse_event
from culver.spark.row_events import event_texts, sorted_texts
from culver.spark.sink import _REQUEST_BYTES, _requests


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 2_000))
def test_texts_are_sorted_within_little_memory(texts: list[bytes], most_bytes: int) -> None:
    assert list(sorted_texts(iter(texts), most_bytes)) == sorted(texts)


@given(st.lists(st.integers(1, _REQUEST_BYTES * 2 // 3), max_size=20), st.integers(1, 7))
def test_requests_are_bounded_in_events_and_bytes(sizes: list[int], most: int) -> None:
    texts = [bytes(size) for size in sizes]
    requests = list(_requests(iter(texts), most))
    assert [text for request in requests for text in request] == texts
    for request in requests:
        assert 1 <= len(request) <= most
        assert len(request) == 1 or sum(map(len, request)) <= _REQUEST_BYTES


def test_requests_are_cut_while_rows_are_read() -> None:
    read = 0

    def texts() -> Iterator[bytes]:
        nonlocal read
        for _ in range(30):
            read += 1
            yield bytes(_REQUEST_BYTES // 2)

    for number, request in enumerate(_requests(texts(), 30)):
        assert len(request) == 2
        assert read <= 2 * number + 3


def test_rows_are_events_without_their_nulls() -> None:
    rows = [
        {"a": 1, "s": {"b": None, "c": {"d": "x"}}, "l": ["y"]},
        {"a": None, "s": None, "l": None},
    ]
    batch = pa.RecordBatch.from_pylist(rows)
    texts = [json.loads(text) for text in event_texts([batch, batch.slice(1)], None)]
    assert texts == [{"a": 1, "s": {"c": {"d": "x"}}, "l": ["y"]}, {}, {}]


def test_list_with_a_null_is_published_and_no_attribute() -> None:
    [text] = event_texts([pa.RecordBatch.from_pylist([{"l": ["a", None]}])], None)
    assert text == b'{"l":["a",null]}'
    assert parse_event(text).value("l") is None


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_of_any_zone_and_unit_are_utc(unit: str) -> None:
    inner = pa.array([-1_000_000_000, None, 1], pa.timestamp("ns", "Asia/Tokyo")).cast(
        pa.timestamp(unit, "Asia/Tokyo"), safe=False
    )
    column = pa.StructArray.from_arrays([inner], ["at"])
    batch = pa.RecordBatch.from_arrays([inner, column], ["at", "s"]).slice(0, 2)
    first, second = [json.loads(text) for text in event_texts([batch], None)]
    moment = {"$timestamp": "1969-12-31T23:59:59.000000Z"}
    assert first == {"at": moment, "s": {"at": moment}}
    assert second == {"s": {}}


def test_number_that_no_event_holds_is_named() -> None:
    batch = pa.RecordBatch.from_pylist([{"s": {"x": float("inf")}}])
    with pytest.raises(InvalidEvent) as caught:
        list(event_texts([batch], None))
    assert caught.value.field == "s.x"
