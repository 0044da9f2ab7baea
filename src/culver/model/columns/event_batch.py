"""Events as columns: the form in which they are stored, sent and matched.

A record batch holds the payloads, the times of arrival, and one column for each attribute and kind of value that
occurs. The column's name has the place of the attribute (c for context, d for data), the letter of its kind, and its
name:

    payload         received_us   c:s:type   d:r:price   d:i:price   d:l:tags
    binary          int64         string     double      int64       list<string>
    {"specver...    1700000...    "trade"    12.5        null        ["x", "y"]
    {"price":12}    1700000...    null       null        12          null

    i int64   r double   s string   b boolean   l list of string   t int64 (microseconds since 1970, UTC)

A null is an absent value, and a row has at most one kind of each attribute. A timestamp is an int64, not Arrow's
timestamp, because kernels compare integers and the column's name has the kind anyway.

A batch with events of other sites has two columns more, which no filter can name, because their place is neither the
context nor the data. Both are null for an event that was published here:

    o:s:site   o:i:offset
    "lugano"   4711
    null       null

In the same way, a batch with events that their publishers have numbered has the columns p:s:publisher and
p:i:sequence.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple
from numpy.typing import NDArray

from culver.model.columns.arrow_message import BINARY, COLUMN_TYPES, END_OF_STREAM, Layout, Packed
from culver.model.event import Event, Origin, PublicationNumber
from culver.model.values import KIND_OF_TYPE, Kind, Timestamp, Value

PAYLOAD = "payload"
RECEIVED = "received_us"
CONTEXT = "c"
DATA = "d"
ORIGIN = "o"
NUMBER = "p"

DATA_PREFIX = "data."
"""Stands before the name of an attribute in a filter that means the data."""
PAYLOAD_INDEX, _RECEIVED_INDEX = 0, 1
_BASE_COLUMNS = ((PAYLOAD, BINARY), (RECEIVED, COLUMN_TYPES[Kind.INTEGER]))

# Empty cells cost space too. A batch that has more cells than the first number is cut where it has more cells per
# value than the second, so that no mixture of events grows much on its way to the disk.
_CELLS_WITHOUT_CARE = 1 << 16
_CELLS_PER_VALUE = 16
# Far below the 2 GiB where Arrow's 32-bit offsets end; strings may grow threefold in their normal form.
_PAYLOAD_BYTES = 1 << 28

# The place, the type of the values, and the attribute's name.
_Column = tuple[str, type, str]
_Members = tuple[tuple[str, ...], tuple[type, ...]]
# The names and types of the data, those of the context, and the type of the origin or number.
_Shape = tuple[tuple[str, ...], tuple[type, ...], _Members, type]
# The payload, when it was received, the values, and the two members of the origin or number if there is one.
_Row = tuple[Any, ...]
_NO_CONTEXT: _Members = ((), ())
_SITE, _OFFSET = "site", "offset"
_PUBLISHER, _SEQUENCE = "publisher", "sequence"
_IDENTITY_COLUMNS: Mapping[type, tuple[_Column, ...]] = {
    type(None): (),
    Origin: ((ORIGIN, str, _SITE), (ORIGIN, int, _OFFSET)),
    PublicationNumber: ((NUMBER, str, _PUBLISHER), (NUMBER, int, _SEQUENCE)),
}
_SITE_COLUMN, _OFFSET_COLUMN = f"{ORIGIN}:{Kind.STRING}:{_SITE}", f"{ORIGIN}:{Kind.INTEGER}:{_OFFSET}"
_PUBLISHER_COLUMN = f"{NUMBER}:{Kind.STRING}:{_PUBLISHER}"
_SEQUENCE_COLUMN = f"{NUMBER}:{Kind.INTEGER}:{_SEQUENCE}"


def encode(events: Sequence[Event], received_us: int, max_columns: int = 1024) -> list[pa.RecordBatch]:
    """Encode events, in order, in as few batches as the limits allow: a batch has at most `max_columns` attribute
    columns (unless a single event has more) and is not too sparse. Returns no batch for no events."""
    return [packed.batch for packed in pack(events, received_us, max_columns)]


def pack(events: Sequence[Event], received_us: int, max_columns: int = 1024) -> list[Packed]:
    """Encode events as `encode` does, and give each batch with its bytes."""
    # Hot, for groups of a few events too: work that depends only on the shape is done when the shape changes.
    batches: list[Packed] = []
    rows: list[_Row] = []
    shapes: dict[_Shape, list[int]] = {}
    columns: dict[_Column, None] = {}  # in the order in which they occur first
    last: _Shape | None = None
    places: list[int] | None = None
    values = payload_bytes = 0
    for event in events:
        context, data, payload = event.context, event.data, event.payload
        identity = event.origin if event.number is None else event.number
        shape = (
            tuple(data),
            tuple(map(type, data.values())),
            (tuple(context), tuple(map(type, context.values()))) if context else _NO_CONTEXT,
            type(identity),
        )
        if shape != last:
            last, places = shape, shapes.get(shape)
        wanted = columns if places is not None else columns | _columns_of_shape(shape)
        values += len(context) + len(data)
        payload_bytes += len(payload)
        cells = (len(rows) + 1) * len(wanted)
        if rows and (
            len(wanted) > max_columns
            or (cells > _CELLS_WITHOUT_CARE and cells > _CELLS_PER_VALUE * values)
            or payload_bytes > _PAYLOAD_BYTES
        ):
            batches.append(_build(rows, shapes, columns))
            rows, shapes, places = [], {}, None
            wanted = _columns_of_shape(shape)
            values, payload_bytes = len(context) + len(data), len(payload)
        if places is None:
            places = shapes[shape] = []
            columns = wanted
        places.append(len(rows))
        row = (payload, received_us, *context.values(), *data.values())
        rows.append(row if identity is None else (*row, *astuple(identity)))
    if rows:
        batches.append(_build(rows, shapes, columns))
    return batches


def serialise(batch: pa.RecordBatch) -> bytes:
    """The Arrow IPC stream of one batch, with its schema."""
    # The bytes of Arrow's stream writer, which takes more than twice as long for a few events.
    return b"".join((batch.schema.serialize(), batch.serialize(), END_OF_STREAM))


def deserialise(buffer: Any) -> pa.RecordBatch:
    """The batch of a buffer that `serialise` made. The columns point into the buffer and keep it alive."""
    with pa.ipc.open_stream(buffer) as reader:
        return reader.read_next_batch()


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in order, with the union of the columns. The union has no limit here: a caller that joins batches of
    many schemas bounds their number."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=Layout(_BASE_COLUMNS).schema)
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, batch in enumerate(batches):
        groups.setdefault(tuple(batch.schema.names), []).append(number)
    if len(groups) == 1:
        return pa.concat_batches(batches)
    # Usually these are many small batches of a few schemas, interleaved. Joining each schema's batches first and then
    # restoring the order costs a fraction of joining all of them column by column.
    joined = [
        batches[group[0]] if len(group) == 1 else pa.concat_batches([batches[n] for n in group])
        for group in groups.values()
    ]
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in joined], promote_options="default")
    arrays = [pa.concat_arrays(column.chunks) for column in table.columns]
    result = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
    lengths = np.array([batch.num_rows for batch in batches])
    starts = np.cumsum(lengths) - lengths
    rows = [np.arange(lengths[n]) + starts[n] for group in groups.values() for n in group]
    return result.take(pa.array(np.argsort(np.concatenate(rows))))


_Places = tuple[tuple[Kind, int], ...]
Attributes = Mapping[str, tuple[_Places, _Places]]
"""For each name that a filter may use, the columns that it means in a batch."""


def attribute(batch: pa.RecordBatch, name: str, known: Attributes | None = None) -> dict[Kind, pa.Array]:
    """The columns that `name` means in a filter, by kind: `Event.value` for all rows at once. A row is null in all of
    them where its event has no such attribute; kinds that no row has are left out. `known` may pass the batch's
    attributes."""
    places = (attributes(tuple(batch.schema.names)) if known is None else known).get(name)
    if places is None:
        return {}
    if not places[0] or not places[1]:
        return _columns(batch, places[0] or places[1])
    first, second = _columns(batch, places[0]), _columns(batch, places[1])
    if not first or not second:
        return first or second
    # A value of any kind in the first source hides the second source's values of all kinds.
    hidden = functools.reduce(pc.or_, [column.is_valid() for column in first.values()])
    result = dict(first)
    for kind, column in second.items():
        visible = pc.if_else(hidden, pa.scalar(None, column.type), column)
        if visible.null_count < len(visible):
            result[kind] = pc.coalesce(first[kind], visible) if kind in first else visible
    return result


def event_at(batch: pa.RecordBatch, row: int) -> Event:
    """The event of one row; slow, for the reference and for tools."""
    context: dict[str, Value] = {}
    data: dict[str, Value] = {}
    origin: dict[str, Any] = {}
    number: dict[str, Any] = {}
    members: dict[str, dict[str, Any]] = {CONTEXT: context, DATA: data, ORIGIN: origin, NUMBER: number}
    for index, column in enumerate(batch.schema.names):
        where, kind, name = _parse_column_name(column)
        value = batch.column(index)[row].as_py() if where else None
        if value is None:
            continue
        if kind == Kind.TIMESTAMP:
            value = Timestamp(value)
        elif kind == Kind.STRINGS:
            value = tuple(value)
        members[where][name] = value
    payload = batch.column(PAYLOAD_INDEX)[row].as_py()
    return Event(
        context,
        data,
        payload,
        Origin(**origin) if origin else None,
        PublicationNumber(**number) if number else None,
    )


def from_elsewhere(batch: pa.RecordBatch) -> NDArray[np.bool_] | None:
    """Which rows are events of other sites; None where there are none."""
    place = batch.schema.get_field_index(_SITE_COLUMN)
    if place < 0 or (sites := batch.column(place)).null_count == len(sites):
        return None
    result: NDArray[np.bool_] = sites.is_valid().to_numpy(zero_copy_only=False)
    return result


def origins(batch: pa.RecordBatch) -> tuple[list[str | None], list[int | None]]:
    """The site and the offset that each row's event comes from, None for an event that was published here."""
    if from_elsewhere(batch) is None:
        return [None] * batch.num_rows, [None] * batch.num_rows
    return batch.column(_SITE_COLUMN).to_pylist(), batch.column(_OFFSET_COLUMN).to_pylist()


class NumberedRun(NamedTuple):
    """Rows from `row` on whose events have consecutive sequences `[first, end)` of one publisher."""

    row: int
    publisher: str
    first: int
    end: int


def numbered_runs(batch: pa.RecordBatch) -> list[NumberedRun]:
    """The rows whose publishers have numbered them, in order, in as few runs as there are."""
    place = batch.schema.get_field_index(_PUBLISHER_COLUMN)
    if place < 0 or (publishers := batch.column(place)).null_count == len(publishers):
        return []
    names = pc.dictionary_encode(publishers)
    codes = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False)
    sequences = pc.fill_null(batch.column(_SEQUENCE_COLUMN), 0).to_numpy(zero_copy_only=False)
    breaks = (np.diff(codes) != 0) | (np.diff(sequences) != 1)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    ends = np.append(starts[1:], len(codes))
    dictionary = names.dictionary.to_pylist()
    return [
        NumberedRun(
            start, dictionary[codes[start]], int(sequences[start]), int(sequences[start]) + end - start
        )
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if codes[start] >= 0
    ]


def received_times(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """The time of arrival of each row, in microseconds."""
    times = batch.column(_RECEIVED_INDEX)
    return np.frombuffer(times.buffers()[1], np.int64, batch.num_rows, 8 * times.offset)


@functools.lru_cache(maxsize=256)
def attributes(columns: tuple[str, ...]) -> Attributes:
    """For each name that a filter may use, the columns that it means, by kind and index: those of the first source,
    and those of the second, which the first hides. Cached, because small batches of a few schemas come by the
    thousand."""
    sources: dict[tuple[str, str], _Places] = {}
    for index, column in enumerate(columns):
        where, kind, name = _parse_column_name(column)
        if where:
            sources[where, name] = (*sources.get((where, name), ()), (Kind(kind), index))
    names = {name for where, name in sources if where == CONTEXT}
    for where, name in sources:
        if where == DATA:
            names.update((name, DATA_PREFIX + name))
    return {
        name: (
            sources.get((DATA, name[len(DATA_PREFIX) :]), ())
            if name.startswith(DATA_PREFIX)
            else sources.get((CONTEXT, name), ()),
            sources.get((DATA, name), ()),
        )
        for name in names
    }


def _columns(batch: pa.RecordBatch, places: _Places) -> dict[Kind, pa.Array]:
    """The columns of an attribute in one place that hold a value in some row."""
    found: dict[Kind, pa.Array] = {}
    for kind, index in places:
        column = batch.column(index)
        if column.null_count < len(column):
            found[kind] = column
    return found


def column_name(kind: Kind, name: str) -> str:
    """The name of the column of an attribute of the data."""
    return f"{DATA}:{kind}:{name}"


def _parse_column_name(column: str) -> tuple[str, str, str]:
    """The place, the letter of the kind and the attribute's name; the place is empty for the base columns."""
    if column[1:2] != ":":
        return "", "", column
    return column[0], column[2], column[4:]


@functools.lru_cache(maxsize=256)
def _columns_of_shape(shape: _Shape) -> dict[_Column, None]:
    data_names, data_types, (context_names, context_types), identity = shape
    columns = [(CONTEXT, kind, name) for name, kind in zip(context_names, context_types, strict=True)]
    columns += [(DATA, kind, name) for name, kind in zip(data_names, data_types, strict=True)]
    return dict.fromkeys((*columns, *_IDENTITY_COLUMNS[identity]))


def _build(rows: list[_Row], shapes: dict[_Shape, list[int]], columns: Iterable[_Column]) -> Packed:
    columns = tuple(columns)
    layout = _layout(columns)
    if len(shapes) == 1:
        return layout.pack(rows)
    return layout.pack(rows, _spread(rows, shapes, columns, layout.neutral_row))


def _spread(
    rows: list[_Row], shapes: dict[_Shape, list[int]], columns: tuple[_Column, ...], neutral_row: _Row
) -> list[int | None]:
    """Give each row a cell for each column; returns which cells of each column are filled."""
    filled = dict.fromkeys(columns, 0)
    for shape, numbers in shapes.items():
        spread = _spread_of_shape(shape, columns)
        there = 0
        for number in numbers:
            rows[number] = spread(rows[number] + neutral_row)
            there |= 1 << number
        for column in _columns_of_shape(shape):
            filled[column] |= there
    return [*repeat(None, len(_BASE_COLUMNS)), *filled.values()]


@functools.lru_cache(maxsize=256)
def _spread_of_shape(shape: _Shape, columns: tuple[_Column, ...]) -> Callable[[_Row], _Row]:
    """A function that takes a row of that shape with a neutral row behind it, and puts the row's cells in their
    places and neutral cells in the others."""
    base = len(_BASE_COLUMNS)
    own = {column: place for place, column in enumerate(_columns_of_shape(shape), base)}
    behind = enumerate(columns, base + len(own) + base)
    return operator.itemgetter(*range(base), *(own.get(column, place) for place, column in behind))


@functools.lru_cache(maxsize=256)
def _layout(columns: tuple[_Column, ...]) -> Layout:
    kinds = [(where, KIND_OF_TYPE[kind], name) for where, kind, name in columns]
    own = [(f"{where}:{kind.value}:{name}", COLUMN_TYPES[kind]) for where, kind, name in kinds]
    return Layout((*_BASE_COLUMNS, *own))
