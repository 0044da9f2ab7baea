"""The values of one parameter in many rows, from a NumPy array, an Arrow array or a sequence.

Domain.NUMBER      values: float64 or integers
Domain.BOOLEAN     values: 0 and 1
Domain.TIMESTAMP   values: microseconds
Domain.STRING      values: places in `distinct`
None               not all of one type, or of none that the language has: no values
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.jit import Integers
from culver.model import Domain, Timestamp
from culver.model.columns import is_text

Values: TypeAlias = NDArray[Any] | pa.Array | pa.ChunkedArray | Sequence[Any]

_MICROSECONDS = np.dtype("datetime64[us]")
_NOTHING: Integers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ParameterColumn:
    domain: Domain | None
    values: NDArray[Any]
    distinct: list[str]
    source: Values

    def originals(self, rows: Integers) -> list[Any]:
        """The values of some rows, as `Prepared.bind` takes them."""
        if self.domain is Domain.TIMESTAMP:
            return [Timestamp(moment) for moment in self.values[rows].tolist()]
        if isinstance(self.source, np.ndarray):
            return list(self.source[rows].tolist())
        if isinstance(self.source, pa.Array | pa.ChunkedArray):
            return list(self.source.take(pa.array(rows)).to_pylist())
        return [self.source[row] for row in rows.tolist()]


def column_of(source: Values) -> ParameterColumn:
    """Never fails: `Prepared.bind` reports what is wrong with single values."""
    if isinstance(source, pa.ChunkedArray):
        source = source.combine_chunks()
    if isinstance(source, pa.Array):
        if pa.types.is_string_view(source.type):  # Arrow cannot pick views
            source = source.cast(pa.string())
        return _from_arrow(source, source)
    if not isinstance(source, np.ndarray) or source.dtype.kind == "O":
        return _from_sequence(source)
    match source.dtype.kind:
        case "f":
            return ParameterColumn(Domain.NUMBER, source.astype(np.float64, copy=False), [], source)
        case "i" | "u":
            return ParameterColumn(Domain.NUMBER, source, [], source)
        case "b":
            return ParameterColumn(Domain.BOOLEAN, source.view(np.uint8), [], source)
        case "M":
            moments = source.astype(_MICROSECONDS, copy=False).view(np.int64)
            return ParameterColumn(Domain.TIMESTAMP, moments, [], source)
        case "U":
            return _from_arrow(pa.array(source, pa.large_string()), source)
    return ParameterColumn(None, _NOTHING, [], source)


def _from_sequence(source: Sequence[Any] | NDArray[Any]) -> ParameterColumn:
    kinds = set(map(type, source))
    if kinds == {str}:
        try:
            return _from_arrow(pa.array(source, pa.large_string()), source)
        except UnicodeEncodeError:  # a lone surrogate
            return ParameterColumn(None, _NOTHING, [], source)
    if kinds == {Timestamp}:
        moments = np.array([timestamp.microseconds for timestamp in source], np.int64)
        return ParameterColumn(Domain.TIMESTAMP, moments, [], source)
    if kinds == {bool}:
        return ParameterColumn(Domain.BOOLEAN, np.array(source, np.uint8), [], source)
    if kinds and kinds <= {int, float}:
        # Beyond 2^53 an integer loses digits here, but such rows are bound from the originals.
        return ParameterColumn(Domain.NUMBER, np.array(source, np.float64), [], source)
    return ParameterColumn(None, _NOTHING, [], source)


def _from_arrow(array: pa.Array, source: Values) -> ParameterColumn:
    kind = array.type
    if array.null_count:
        return ParameterColumn(None, _NOTHING, [], source)
    if is_text(kind):
        array = array.dictionary_encode()
        kind = array.type
    if pa.types.is_dictionary(kind):
        if not is_text(kind.value_type) or array.dictionary.null_count:
            return ParameterColumn(None, _NOTHING, [], source)
        places = array.indices.to_numpy(zero_copy_only=False)
        return ParameterColumn(Domain.STRING, places, array.dictionary.to_pylist(), source)
    is_moment = pa.types.is_timestamp(kind) and kind.tz is not None
    if is_moment or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column_of(array.to_numpy(zero_copy_only=False))
    return ParameterColumn(None, _NOTHING, [], source)
