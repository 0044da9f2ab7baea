"""Events, and rows of values, as Arrow columns."""

from culver.model.columns.arrow_message import Packed as Packed
from culver.model.columns.event_batch import (
    DATA_PREFIX as DATA_PREFIX,
    PAYLOAD as PAYLOAD,
    PAYLOAD_INDEX as PAYLOAD_INDEX,
    RECEIVED as RECEIVED,
    Attributes as Attributes,
    attribute as attribute,
    attributes as attributes,
    column_name as column_name,
    concat as concat,
    deserialise as deserialise,
    encode as encode,
    event_at as event_at,
    from_elsewhere as from_elsewhere,
    origins as origins,
    pack as pack,
    received_times as received_times,
    serialise as serialise,
)
from culver.model.columns.value_rows import (
    Columns as Columns,
    column_of_array as column_of_array,
    column_of_values as column_of_values,
    decoded as decoded,
    is_text as is_text,
    read_columns as read_columns,
    values_at as values_at,
    whole_microseconds as whole_microseconds,
    write_columns as write_columns,
)
