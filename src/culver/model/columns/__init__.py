"""Events, and rows of values, as Arrow columns."""

from culver.model.columns.arrow_message import Packed as Packed
from culver.model.columns.event_batch import (
    PAYLOAD as PAYLOAD,
    PAYLOAD_INDEX as PAYLOAD_INDEX,
    RECEIVED as RECEIVED,
    Attributes as Attributes,
    NumberedRun as NumberedRun,
    attribute as attribute,
    attributes as attributes,
    concat as concat,
    deserialise as deserialise,
    encode as encode,
    event_at as event_at,
    from_elsewhere as from_elsewhere,
    numbered_runs as numbered_runs,
    origins as origins,
    pack as pack,
    received_times as received_times,
    serialise as serialise,
)
from culver.model.columns.value_rows import (
    Columns as Columns,
    column_of_array as column_of_array,
    column_of_values as column_of_values,
    is_text as is_text,
    read_columns as read_columns,
    values_at as values_at,
    write_columns as write_columns,
)
