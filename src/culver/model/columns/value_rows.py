"""Rows of values for a prepared filter, as one Arrow column per parameter.

    symbol = ? AND close >= ?      string    ACME  EMCA  ACME
                                   double    21.5  3.25  22.0

A column has one type: int64, double, bool, string or timestamp in microseconds UTC, without nulls. A wrong value
raises InvalidFilter, whose details hold `row` (from 0) and `parameter` (from 1).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from culver.errors import InvalidFilter
from culver.model.columns.event_batch import deserialise, serialise
from culver.model.timestamps import LATEST, parse_timestamp
from culver.model.values import Scalar, Timestamp

Columns = tuple[pa.Array, ...]

_MOMENTS = pa.timestamp("us", tz="UTC")
# The texts of one column, written out.
_MOST_BYTES = 256 * 1024 * 1024
# Integers up to here are reals as well.
_EXACT = 2**53
_ARROW_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_NAMES: Mapping[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    dict: "a timestamp",
    datetime: "a timestamp",
}
_WANTED = "a number, a string, a boolean or a timestamp"


def column_of_values(values: Sequence[Any], parameter: int) -> pa.Array:
    """Make a column of JSON values; a timestamp is an object with the one member `$timestamp`."""
    kinds = set(map(type, values))
    if kinds == {int, float}:
        _check_exact(values, parameter)
        kinds = {float}
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if kind is dict:
            moments = [_moment(value, row, parameter) for row, value in enumerate(values)]
            return pa.array(moments, pa.int64()).cast(_MOMENTS)
        if kind in _ARROW_TYPES:
            return pa.array(values, _ARROW_TYPES[kind])
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        pass
    raise _first_bad(values, parameter)


def column_of_array(array: pa.Array | pa.ChunkedArray, parameter: int) -> pa.Array:
    """Make a column of an Arrow array of any type that holds such values."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    _check_size(array, parameter)
    if pa.types.is_dictionary(array.type):
        array = decoded(array)
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise refusal(row, parameter, f"is missing; {_WANTED} is wanted")
    kind = _kind_of(array.type)
    if kind is None:
        raise refusal(
            0, parameter, f"has the Arrow type {array.type}; {_WANTED} (with a time zone) is wanted"
        )
    try:
        if pa.types.is_timestamp(kind):
            return whole_microseconds(array).cast(kind)
        return array.cast(kind)
    except pa.ArrowInvalid:
        if pa.types.is_timestamp(kind):
            seconds = array.cast(pa.timestamp("s", kind.tz), safe=False).cast(pa.int64()).to_numpy()
            row = int(np.argmax(np.abs(seconds.astype(np.float64)) > LATEST / 1e6))
            raise refusal(row, parameter, "is a moment beyond all years that there are") from None
        # An unsigned integer does not fit.
        row = int(np.argmax(array.to_numpy() > np.uint64(2**63 - 1)))
        raise refusal(row, parameter, f"does not fit in {kind}") from None


def _check_size(array: pa.Array, parameter: int) -> None:
    """Refuse an array that is small because many rows share one long text."""
    if pa.types.is_dictionary(array.type):
        texts = array.dictionary
        longest = int(_text_lengths(texts).max(initial=0)) if is_text(texts.type) else 8
        size = longest * len(array)
    else:
        size = int(_text_lengths(array).sum()) if pa.types.is_string_view(array.type) else 0
    if size > _MOST_BYTES:
        what = f"and those below it may take {size} bytes, more than {_MOST_BYTES}; send fewer rows"
        raise refusal(0, parameter, what)


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """The values of an array that is encoded by a dictionary."""
    if pa.types.is_string_view(array.type.value_type):  # Arrow cannot pick views
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
    return array.dictionary_decode()


def _text_lengths(texts: pa.Array) -> NDArray[np.int64]:
    """The bytes of each text, or more where there is none."""
    if pa.types.is_string_view(texts.type):  # Arrow does not count these; a view begins with the length
        words = np.frombuffer(texts.buffers()[1], np.int32)
        return words[4 * texts.offset :: 4][: len(texts)].astype(np.int64)
    lengths: NDArray[np.int64] = pc.binary_length(texts).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def whole_microseconds(moments: pa.Array) -> pa.Array:
    """Timestamps of any unit and zone as whole microseconds since 1970 in UTC. Digits of nanoseconds are cut off, as
    they are in a text. Raises ArrowInvalid for moments beyond 64 bits."""
    if moments.type.unit != "ns":
        return moments.cast(_MOMENTS).cast(pa.int64())
    # Arrow's conversion cuts towards 1970, and so rounds up what lies before.
    nanoseconds = moments.cast(pa.int64()).fill_null(0).to_numpy()
    return pa.array(
        nanoseconds // 1000,
        mask=moments.is_null().to_numpy(zero_copy_only=False) if moments.null_count else None,
    )


def write_columns(columns: Columns) -> bytes:
    """Write an Arrow IPC stream of one record batch."""
    return serialise(pa.record_batch(list(columns), [str(place) for place in range(len(columns))]))


def read_columns(data: Any) -> Columns:
    """Read what `write_columns` has written, from any buffer, without copying it."""
    return tuple(deserialise(pa.py_buffer(data)).columns)


def values_at(columns: Columns, row: int) -> list[Scalar]:
    """The values of one row as `Prepared.bind` takes them."""
    return [
        Timestamp(column[row].value) if pa.types.is_timestamp(column.type) else column[row].as_py()
        for column in columns
    ]


def refusal(row: int, parameter: int, what: str) -> InvalidFilter:
    message = f"the value for parameter {parameter} {what}"
    return InvalidFilter(message, field="rows", row=row, parameter=parameter)


def _kind_of(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(kind):
        return None if kind.tz is None else _MOMENTS
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_boolean(kind):
        return pa.bool_()
    return pa.string() if is_text(kind) else None


def _moment(value: Any, row: int, parameter: int) -> int:
    if list(value) != ["$timestamp"] or not isinstance(value["$timestamp"], str):
        raise refusal(row, parameter, 'is an object; a timestamp is {"$timestamp": "2026-01-01T00:00:00Z"}')
    try:
        return parse_timestamp(value["$timestamp"]).microseconds
    except ValueError as exc:
        raise refusal(row, parameter, f"cannot be used: {exc}") from None


def _check_exact(values: Sequence[Any], parameter: int) -> None:
    """Check that no integer changes when integers and reals become reals together."""
    for row, value in enumerate(values):
        if type(value) is int and abs(value) > _EXACT:
            what = f"is an integer beyond 2^53 in a column of reals; give integers alone: {value}"
            raise refusal(row, parameter, what)


def _first_bad(values: Sequence[Any], parameter: int) -> InvalidFilter:
    """The error about the first value that has no type or another one than those before it, or is beyond limits."""
    wanted = _NAMES.get(type(values[0])) if values else None
    for row, value in enumerate(values):
        name = _NAMES.get(type(value))
        if name is None:
            kind = {type(None): "null", list: "a list"}.get(
                type(value), f"of the type {type(value).__name__}"
            )
            return refusal(row, parameter, f"is {kind}; {_WANTED} is wanted")
        if name != wanted:
            return refusal(row, parameter, f"is {name}, and the rows before it have {wanted} there")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return refusal(
                row, parameter, "does not fit in 64 bits; give the column as reals if that will do"
            )
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            return refusal(row, parameter, "holds half of a surrogate pair")
    return refusal(0, parameter, f"cannot be read; {_WANTED} is wanted")
