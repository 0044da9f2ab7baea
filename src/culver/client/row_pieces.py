"""Cuts rows of values into pieces of a size that a site takes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_ROWS_AT_A_TIME = 100_000
_PIECE_BYTES = 8 * 1024 * 1024


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
