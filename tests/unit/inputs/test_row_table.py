from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from culver.errors import InvalidRequest
from culver.inputs import as_table


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
