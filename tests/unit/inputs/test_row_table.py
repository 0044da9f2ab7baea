from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

from culver.errors import InvalidRequest
from culver.inputs import as_table

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
AWARE = NAIVE.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [[0.5], [2**53 + 1]],
            "row 1: the value for parameter 1 is an integer beyond 2^53 in a column of reals",
        ),
        (
            [["a", "b"], ["c", 1]],
            "row 1: the value for parameter 2 is a number, and the rows before it have a string",
        ),
        ({"x": [1, 2**64]}, "row 1: the value for parameter 1 does not fit in 64 bits"),
        ([[1, 2], [3]], "row 1 has 1, and row 0 has 2 values"),
        ([[AWARE], [NAIVE]], "row 1: the timestamp 2026-01-01T00:00:00 for parameter 1 has no time zone"),
        ({"at": [NAIVE]}, "row 0: the timestamp 2026-01-01T00:00:00 for parameter 1 has no time zone"),
        (
            pandas.DataFrame({"at": pandas.Series([AWARE, NAIVE], dtype=object)}),
            "row 1: the timestamp 2026-01-01T00:00:00 for parameter 1 has no time zone",
        ),
        (
            [[AWARE], [AWARE.date()]],
            "row 1: the value for parameter 1 is of the type date; a number, a string",
        ),
        (
            [[AWARE], ["x"]],
            "row 1: the value for parameter 1 is a string, and the rows before it have a timestamp there",
        ),
        ([[0.5], [Decimal("0.1")]], "row 1: the value for parameter 1 is of the type Decimal; a number"),
        ([["\ud800"]], "row 0: the value for parameter 1 holds half of a surrogate pair"),
        ([{"symbol": "XYZ"}], "row 0 is of the type dict; give a list of values, in the order"),
        (["XYZ"], "row 0 is of the type str; give a list of values, in the order of the parameters"),
        ([5], "row 0 is of the type int"),
        ("XYZ", "these are no rows of values: a str has none"),
        ({"symbol": "XYZ"}, "these are no rows of values: a str is no column"),
        (polars.LazyFrame({"a": [1]}), "these are no rows of values: a LazyFrame has none yet"),
    ],
)
def test_what_is_no_column_is_refused_in_our_words(rows: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        as_table(rows)
    assert caught.value.message.startswith(words)
    assert caught.value.field == "rows"


def test_integers_and_reals_become_reals_and_moments_timestamps() -> None:
    table = as_table([[1, datetime(2026, 1, 1, tzinfo=UTC)], [2.5, datetime(2026, 1, 2, tzinfo=UTC)]])
    assert table.schema.types == [pa.float64(), pa.timestamp("us", tz="UTC")]


def test_the_index_of_a_frame_is_no_column() -> None:
    frame = pandas.DataFrame({"symbol": ["a", "b", "c"], "close": [1, 2, 3]})
    table = as_table(frame[frame.symbol != "b"])
    assert table.to_pydict() == {"symbol": ["a", "c"], "close": [1, 3]}
    assert as_table(Frame(frame[1:])).to_pydict() == {"symbol": ["b", "c"], "close": [2, 3]}


class Frame(pandas.DataFrame):  # type: ignore[misc]
    """As other libraries make them, such as GeoPandas."""
