"""Converts rows of values to Arrow, and cuts them into pieces of a size that a site takes."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from culver.errors import InvalidRequest
from culver.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_ROWS_AT_A_TIME = 100_000
_PIECE_BYTES = 8 * 1024 * 1024

RowsLike = Any
"""Rows (an iterable of sequences), or columns: a mapping of names to arrays or sequences, an Arrow table or record
batch, a data frame that Arrow can read."""


def rows_at_a_time(table: "pa.Table") -> int:
    """How many rows go into one request: few enough for a body, many enough to be quick."""
    if not table.nbytes:
        return _ROWS_AT_A_TIME
    return max(1, min(_ROWS_AT_A_TIME, int(_PIECE_BYTES * table.num_rows / table.nbytes)))


def piece(table: "pa.Table", start: int, count: int) -> bytes:
    """Some rows as an Arrow IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.slice(start, count))
    return bytes(sink.getvalue())


def as_table(rows: RowsLike) -> "pa.Table":
    """Raises InvalidRequest, and MissingExtra without Arrow."""
    require("arrow", "subscribe_many")
    import pyarrow as pa

    try:
        if isinstance(rows, pa.Table):
            return rows
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if isinstance(rows, dict):
            return pa.table({str(name): _array(values) for name, values in rows.items()})
        if hasattr(rows, "__dataframe__") or hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
        return _transposed(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise InvalidRequest(f"these are no rows of values: {exc}", field="rows") from exc


def _transposed(rows: Iterable[Sequence[Any]]) -> "pa.Table":
    import pyarrow as pa

    listed = list(rows)
    if not listed:
        return pa.table({})
    columns = list(zip(*listed, strict=True))
    return pa.table([_array(column) for column in columns], [str(place) for place in range(len(columns))])


def _array(values: Any) -> "pa.Array":
    import pyarrow as pa

    if isinstance(values, Sequence) and any(isinstance(value, datetime) for value in values[:1]):
        return pa.array(values, pa.timestamp("us", tz="UTC"))
    return pa.array(values)
