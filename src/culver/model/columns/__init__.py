"""Events, and rows of values, as Arrow columns."""

from culver.model.columns.arrow_message import Packed
from culver.model.columns.event_batch import (
    PAYLOAD,
    PAYLOAD_INDEX,
    RECEIVED,
    Attributes,
    attribute,
    attributes,
    concat,
    deserialise,
    encode,
    event_at,
    pack,
    received_times,
    serialise,
)
from culver.model.columns.value_rows import (
    Columns,
    column_of_array,
    column_of_values,
    read_columns,
    values_at,
    write_columns,
)

__all__ = [
    "PAYLOAD",
    "PAYLOAD_INDEX",
    "RECEIVED",
    "Attributes",
    "Columns",
    "Packed",
    "attribute",
    "attributes",
    "column_of_array",
    "column_of_values",
    "concat",
    "deserialise",
    "encode",
    "event_at",
    "pack",
    "read_columns",
    "received_times",
    "serialise",
    "values_at",
    "write_columns",
]
