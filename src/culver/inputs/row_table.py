"""Rows of values for a prepared filter, in any form that a program has them in, as an Arrow table."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from culver.errors import InvalidFilter, InvalidRequest, counted

if TYPE_CHECKING:
    import pyarrow as pa

RowsLike = Any
"""Rows (an iterable of sequences), or columns: a mapping of names to arrays or sequences, an Arrow table or record
batch, a data frame that Arrow can read."""


def as_table(rows: RowsLike) -> "pa.Table":
    """One column per parameter. Needs Arrow. Raises InvalidRequest."""
    import pyarrow as pa

    try:
        if isinstance(rows, pa.Table):
            return rows
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if isinstance(rows, dict):
            arrays = [_array(values, place) for place, values in enumerate(rows.values(), 1)]
            return pa.table(arrays, [str(name) for name in rows])
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
    for number, row in enumerate(listed):
        if len(row) != len(listed[0]):
            wanted = counted(len(listed[0]), "value")
            raise InvalidRequest(f"row {number} has {len(row)}, and row 0 has {wanted}", field="rows")
    columns = list(zip(*listed, strict=True))
    arrays = [_array(column, place) for place, column in enumerate(columns, 1)]
    return pa.table(arrays, [str(place) for place in range(len(columns))])


def _array(values: Any, parameter: int) -> "pa.Array":
    """The values of one parameter, counted from 1. Raises InvalidRequest with our words, not Arrow's, for a list of
    values that are not all of one type, or that have none."""
    import pyarrow as pa

    if isinstance(values, Sequence) and any(isinstance(value, datetime) for value in values[:1]):
        return pa.array(values, pa.timestamp("us", tz="UTC"))
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        if not isinstance(values, Sequence):
            raise
    from culver.model.columns import column_of_values

    try:
        return column_of_values(values, parameter)
    except InvalidFilter as exc:
        raise InvalidRequest(f"row {exc.details['row']}: {exc.message}", field="rows", **exc.details) from exc
