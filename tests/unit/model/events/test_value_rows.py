"""Columns of values for parameters mean what the same values mean in JSON."""

import numpy as np
import pyarrow as pa
import pytest

from culver.errors import InvalidFilter
from culver.matching import ColumnarFilter, compile_rows
from culver.model import Event
from culver.model.columns import column_of_array, column_of_values, encode
from culver.model.formats import parse_event
from culver.model.language import prepare

# Nanoseconds before and after 1970, and the microsecond that JSON makes of each.
NANOSECONDS = {
    -1: ("1969-12-31T23:59:59.999999999Z", -1),
    -1000: ("1969-12-31T23:59:59.999999000Z", -1),
    -1001: ("1969-12-31T23:59:59.999998999Z", -2),
    999: ("1970-01-01T00:00:00.000000999Z", 0),
    1001: ("1970-01-01T00:00:00.000001001Z", 1),
}


@pytest.mark.parametrize("nanoseconds", NANOSECONDS)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome"])
def test_nanoseconds_are_cut_off_as_in_json(nanoseconds: int, zone: str) -> None:
    text, microseconds = NANOSECONDS[nanoseconds]
    column = column_of_array(pa.array([nanoseconds], pa.timestamp("ns", zone)), 1)
    assert column.cast(pa.int64()).to_pylist() == [microseconds]
    assert column.equals(column_of_values([{"$timestamp": text}], 1))


@pytest.mark.parametrize("nanoseconds", NANOSECONDS)
def test_a_moment_in_nanoseconds_finds_its_event(nanoseconds: int) -> None:
    event = parse_event(b'{"at": {"$timestamp": "%s"}}' % NANOSECONDS[nanoseconds][0].encode())
    given = pa.array([nanoseconds], pa.timestamp("ns", "UTC"))
    for column in (given, column_of_array(given, 1)):
        with ColumnarFilter.of_table(compile_rows(prepare("at = ?"), np.array([7]), [column])) as matcher:
            assert matcher.match(encode([Event({}, event.data, b"")], 0)[0]).numbers.tolist() == [7]


@pytest.mark.parametrize("texts", [["a", "a text that does not fit into its view", ""], []])
def test_views_of_strings_are_strings(texts: list[str]) -> None:
    views = pa.array(["before", *texts], pa.string_view()).slice(1)
    assert column_of_array(views, 1).equals(pa.array(texts, pa.string()))
    dictionary = pa.DictionaryArray.from_arrays(pa.array(range(len(texts)), pa.int8()), views)
    assert column_of_array(dictionary, 1).to_pylist() == texts


def test_many_views_of_one_long_text_are_refused() -> None:
    _, view, text = pa.array(["x" * 1_000_000], pa.string_view()).buffers()
    views = pa.py_buffer(view.to_pybytes()[:16] * 1_000)
    many = pa.Array.from_buffers(pa.string_view(), 1_000, [None, views, text])
    many.validate(full=True)
    with pytest.raises(InvalidFilter, match="send fewer rows"):
        column_of_array(many, 1)


def test_a_missing_view_is_named() -> None:
    with pytest.raises(InvalidFilter, match="the value for parameter 2 is missing") as caught:
        column_of_array(pa.array(["a", None], pa.string_view()), 2)
    assert caught.value.details["row"] == 1


def test_a_bad_timestamp_is_a_sentence() -> None:
    with pytest.raises(InvalidFilter) as caught:
        column_of_values([{"$timestamp": "2026-01-01T23:59:60Z"}], 1)
    assert caught.value.message == (
        "the value for parameter 1 cannot be used: leap seconds (:60) are not supported"
    )
