"""Rows of values for a prepared filter, in any form that a program has them in, as an Arrow table."""

from collections.abc import Iterable, Mapping, Sequence, Set
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
            return _table(rows.values(), [str(name) for name in rows])
        if is_a(rows, "pandas", "DataFrame"):  # Arrow would make a column of an index
            columns = [rows.iloc[:, place] for place in range(rows.shape[1])]
            return _table(columns, [str(name) for name in rows.columns])
        if is_a(rows, "polars", "LazyFrame"):
            raise TypeError("a LazyFrame has none yet, call .collect() first")
        if hasattr(rows, "__dataframe__") or hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
        return _transposed(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise InvalidRequest(f"these are no rows of values: {exc}", field="rows") from exc


def is_a(given: Any, library: str, name: str) -> bool:
    """Whether an object has this class of a library, or one that inherits from it, without importing the library."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == library for base in type(given).__mro__
    )


def _table(columns: Iterable[Any], names: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    return pa.table([_array(values, place) for place, values in enumerate(columns, 1)], list(names))


def _transposed(rows: Iterable[Sequence[Any]]) -> "pa.Table":
    import pyarrow as pa

    if isinstance(rows, str | bytes):
        raise TypeError(f"a {type(rows).__name__} has none")
    listed = list(rows)
    if not listed:
        return pa.table({})
    for kind in set(map(type, listed)):
        if issubclass(kind, str | bytes | Mapping | Set) or not hasattr(kind, "__len__"):
            number = next(number for number, row in enumerate(listed) if type(row) is kind)
            advice = "give a list of values, in the order of the parameters"
            message = f"row {number} is of the type {kind.__name__}; {advice}"
            raise InvalidRequest(message, field="rows", row=number)
    for number, row in enumerate(listed):
        if len(row) != len(listed[0]):
            wanted = counted(len(listed[0]), "value")
            raise InvalidRequest(
                f"row {number} has {len(row)}, and row 0 has {wanted}", field="rows", row=number
            )
    columns = list(zip(*listed, strict=True))
    return _table(columns, [str(place) for place in range(len(columns))])


def _array(values: Any, parameter: int) -> "pa.Array":
    """The values of one parameter, counted from 1. Raises InvalidRequest with our words, not Arrow's, for a list of
    values that are not all of one type, or that have none."""
    import pyarrow as pa

    if isinstance(values, str | bytes):
        raise TypeError(f"a {type(values).__name__} is no column")
    if getattr(getattr(values, "dtype", None), "kind", None) != "O" and not isinstance(values, Sequence):
        return pa.array(values)
    kinds = set(map(type, values))
    moments = {kind for kind in kinds if issubclass(kind, datetime)}
    if moments:
        _refuse_naive(values, parameter)
    try:
        if not moments:
            return pa.array(values)
        if kinds - moments <= {type(None)}:
            return pa.array(values, pa.timestamp("us", tz="UTC"))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    from culver.model.columns import column_of_values

    try:
        return column_of_values(list(values), parameter)
    except InvalidFilter as exc:
        raise InvalidRequest(f"row {exc.details['row']}: {exc.message}", field="rows", **exc.details) from exc


def _refuse_naive(values: Iterable[Any], parameter: int) -> None:
    """Arrow would take a moment without a zone as one in UTC."""
    for row, value in enumerate(values):
        # NaT of pandas is a datetime, but no time, and does not equal itself.
        if isinstance(value, datetime) and value == value and value.utcoffset() is None:
            raise InvalidRequest(
                f"row {row}: the timestamp {value.isoformat()} for parameter {parameter} has no time zone; use "
                ".replace(tzinfo=UTC) where it is in UTC, and .astimezone() where it is in local time",
                field="rows",
                row=row,
                parameter=parameter,
            )
