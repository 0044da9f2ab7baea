"""Maps the columns of any Arrow table to the columns of an event batch, whole columns at a time.

    symbol  dictionary<string>            d:s:symbol   string
    price   decimal128(10, 2)             d:r:price    double
    order   struct<id: uint32, tags: ...> d:i:order.id int64      d:l:order.tags  list<string>
    at      timestamp[ns, tz=Europe/Rome] d:t:at       int64 (microseconds since 1970, UTC)

A null is an absent attribute. docs/matcher.md has the table of types.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from culver.errors import InvalidEvent
from culver.model import EARLIEST, LATEST, Kind, normalise_text
from culver.model.columns import (
    DATA_PREFIX,
    PAYLOAD,
    RECEIVED,
    column_name,
    is_text,
    whole_microseconds,
)

Converter = Callable[[pa.Array, str], pa.Array]

_MOST_INTEGER = 2**63 - 1
_WIDEST = pa.decimal256(76, 0)
_DEEPEST = 64


class MappedColumn(NamedTuple):
    """One column of the event batch: the attribute, its kind, the way through nested fields, and the conversion."""

    attribute: str
    kind: Kind
    path: tuple[int, ...]
    convert: Converter


class ColumnMapping:
    """How the columns of tables with one schema become attributes. Immutable; threads may share it.

    `names` limits it to the attributes that filters mention (see `Matcher.attributes`): other columns are not looked
    at, whatever their type. `timezone` is the zone of timestamps that have none; without it they are refused.

    Raises InvalidEvent, whose `field` is the column, for a column of a type that no attribute has and for two columns
    that would have the same name.
    """

    def __init__(
        self, schema: pa.Schema, names: Collection[str] | None = None, timezone: str | None = None
    ) -> None:
        self.schema = schema
        wanted = None if names is None else meant_attributes(names)
        self._columns: list[MappedColumn] = []
        seen: set[str] = set()
        for column in _mapped(schema, wanted, timezone):
            if column.attribute in seen:
                raise _fault(column.attribute, "exists twice; rename one of the columns")
            seen.add(column.attribute)
            self._columns.append(column)

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kind of each attribute that the columns give."""
        return {column.attribute: column.kind for column in self._columns}

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The event batch of some rows, in their order. Raises InvalidEvent with the column, and `row` in the
        details, for a value that no attribute can have."""
        count = rows.num_rows
        arrays = [pa.nulls(count, pa.binary()), pa.array(np.zeros(count, np.int64))]
        names = [PAYLOAD, RECEIVED]
        for column in self._columns:
            try:
                array = _plain(rows.column(column.path[0]), column.path[1:])
                arrays.append(column.convert(array, column.attribute))
            except pa.ArrowException as exc:
                raise _fault(column.attribute, f"cannot be read: {exc}") from exc
            names.append(column_name(column.kind, column.attribute))
        return pa.RecordBatch.from_arrays(arrays, names)


def meant_attributes(names: Collection[str]) -> set[str]:
    """The attributes of the data that these names of filters may mean."""
    return {*names, *(name.removeprefix(DATA_PREFIX) for name in names)}


def _mapped(schema: pa.Schema, wanted: set[str] | None, timezone: str | None) -> Iterator[MappedColumn]:
    for place, field in enumerate(schema):
        yield from _of_field(field, field.name, (place,), wanted, timezone)


def _of_field(
    field: pa.Field, name: str, path: tuple[int, ...], wanted: set[str] | None, timezone: str | None
) -> Iterator[MappedColumn]:
    try:
        name = normalise_text(name)
    except ValueError as exc:
        raise _fault(name, f"has a name that cannot be used: it holds {exc}") from None
    kind = _plain_type(field.type)
    if pa.types.is_struct(kind):
        if len(path) > _DEEPEST:
            raise _fault(name, f"is nested more than {_DEEPEST} levels deep")
        for place in range(kind.num_fields):
            inner = kind.field(place)
            yield from _of_field(inner, f"{name}.{inner.name}", (*path, place), wanted, timezone)
        return
    if (wanted is not None and name not in wanted) or pa.types.is_null(kind):
        return
    if not name:
        raise _fault(name, "has no name; give it one")
    meaning, convert = _conversion(kind, name, timezone)
    yield MappedColumn(name, meaning, path, convert)


def _conversion(kind: pa.DataType, name: str, timezone: str | None) -> tuple[Kind, Converter]:
    types = pa.types
    if types.is_integer(kind):
        return Kind.INTEGER, _integers
    if types.is_floating(kind):
        return Kind.REAL, _reals
    if types.is_decimal(kind):
        return (Kind.INTEGER, _whole_decimals) if kind.scale <= 0 else (Kind.REAL, _decimals)
    if types.is_boolean(kind):
        return Kind.BOOLEAN, _as_they_are
    if is_text(kind):
        return Kind.STRING, _strings
    if types.is_date(kind):
        return Kind.STRING, _dates
    if types.is_timestamp(kind):
        if kind.tz is not None:
            return Kind.TIMESTAMP, _moments
        if timezone is None:
            what = (
                "holds timestamps without a time zone, which name no moment: give them one, or say `timezone`"
            )
            raise _fault(name, what)
        return Kind.TIMESTAMP, _zoned(timezone, name)
    if _is_list(kind):
        item = _plain_type(kind.value_type)
        if is_text(item) or types.is_null(item):
            return Kind.STRINGS, _lists
    raise _fault(name, f"has the type {kind}, which no attribute has: leave it out or convert it")


def _fault(name: str, what: str, **details: Any) -> InvalidEvent:
    return InvalidEvent(f"the column {name!r} {what}", field=name, **details)


def _bad_row(name: str, bad: Any, what: str) -> InvalidEvent:
    """The error about the first row that is marked."""
    row = int(np.argmax(np.asarray(bad)))
    return _fault(name, f"{what} in row {row}", row=row)


# --- encodings --------------------------------------------------------------------------------------------


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, whatever they are encoded as."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _plain(array: pa.Array, path: Iterable[int] = ()) -> pa.Array:
    """The values at the end of a path through structs, without any encoding. What a null struct holds is null,
    whatever its fields say."""
    # Each step says where in the inner array the values of the outer one are. Arrow itself neither decodes every
    # encoding of every type nor hides the runs below a null struct.
    steps = iter(path)
    places: pa.Array | None = None
    while True:
        kind = array.type
        within: pa.Array | None = None
        if isinstance(kind, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(kind):
            within, array = array.indices, array.dictionary
        elif pa.types.is_run_end_encoded(kind):
            rows = np.arange(array.offset, array.offset + len(array))
            runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
            within, array = pa.array(runs), array.values
        elif pa.types.is_struct(kind):
            if array.null_count:
                absent = array.is_null().to_numpy(zero_copy_only=False)
                within = pa.array(np.arange(len(array)), mask=absent)
            array = array.field(next(steps))
        else:
            return array if places is None else _simple(array).take(places)
        if within is not None:
            places = within if places is None else within.take(places)


def _simple(array: pa.Array) -> pa.Array:
    """The same values in a type from which Arrow can take some."""
    if pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    return _lists_of_strings(array) if _is_list(array.type) else array


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


# --- conversions ------------------------------------------------------------------------------------------


def _as_they_are(array: pa.Array, name: str) -> pa.Array:
    return array


def _integers(array: pa.Array, name: str) -> pa.Array:
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        bad = pc.greater(array, pa.scalar(_MOST_INTEGER, pa.uint64())).fill_null(False)
        raise _bad_row(name, bad, "holds an integer beyond 64 bits") from None


def _reals(array: pa.Array, name: str) -> pa.Array:
    """NaN is how pandas says that a value is missing, and means that here."""
    array = array.cast(pa.float64())
    missing = pc.is_nan(array)
    return pc.if_else(missing, pa.scalar(None, pa.float64()), array) if pc.any(missing).as_py() else array


def _whole_decimals(array: pa.Array, name: str) -> pa.Array:
    array = array.cast(_WIDEST)  # Arrow makes no integers of the narrowest
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        ends = (pa.scalar(Decimal(end), _WIDEST) for end in (-_MOST_INTEGER - 1, _MOST_INTEGER))
        below, above = (compare(array, end) for compare, end in zip((pc.less, pc.greater), ends, strict=True))
        bad = pc.or_(below, above).fill_null(False)
        raise _bad_row(name, bad, "holds an integer beyond 64 bits") from None


def _decimals(array: pa.Array, name: str) -> pa.Array:
    # By way of their text, because Arrow's own conversion misses the nearest real for one decimal in four.
    return array.cast(pa.string()).cast(pa.float64())


def _strings(array: pa.Array, name: str) -> pa.Array:
    try:
        array = array.cast(pa.string())
    except pa.ArrowInvalid:
        raise _fault(name, "holds more than 2 GiB of text in one batch; match fewer rows at a time") from None
    plain = pc.string_is_ascii(array)
    if pc.all(plain).as_py() is not False:
        return array
    others = pc.invert(plain)
    distinct = array.filter(others).dictionary_encode()
    try:
        normal = pa.array([normalise_text(text) for text in distinct.dictionary.to_pylist()], pa.string())
    except ValueError as exc:
        raise _fault(name, f"holds a text with {exc}") from None
    return pc.replace_with_mask(array, others.fill_null(False), normal.take(distinct.indices))


def _dates(array: pa.Array, name: str) -> pa.Array:
    return array.cast(pa.date32()).cast(pa.string())


def _moments(array: pa.Array, name: str) -> pa.Array:
    try:
        moments = whole_microseconds(array)
    except pa.ArrowInvalid:
        seconds = array.cast(pa.timestamp("s", array.type.tz), safe=False).cast(pa.int64())
        bad = pc.greater(pc.abs(seconds.cast(pa.float64())), LATEST / 1e6).fill_null(False)
        raise _bad_row(name, bad, "holds a timestamp beyond all years that there are") from None
    outside = pc.or_(pc.less(moments, EARLIEST), pc.greater(moments, LATEST)).fill_null(False)
    if pc.any(outside).as_py():
        raise _bad_row(name, outside, "holds a timestamp outside of the years 0001 to 9999 of UTC")
    return moments


def _zoned(timezone: str, name: str) -> Converter:
    """A time that a change of the clock skips or repeats is taken as the earlier one."""

    def convert(array: pa.Array, name: str) -> pa.Array:
        moments = pc.assume_timezone(array, timezone, ambiguous="earliest", nonexistent="earliest")
        return _moments(moments, name)

    try:
        convert(pa.array([0], pa.timestamp("us")), name)
    except (pa.ArrowInvalid, TypeError):
        what = f"cannot be taken as times of {timezone!r}: give a time zone's name, such as 'Europe/Rome'"
        raise _fault(name, what) from None
    return convert


def _lists(array: pa.Array, name: str) -> pa.Array:
    """Lists of strings. A list with a null in it is no value, as in JSON."""
    lists = _lists_of_strings(array)
    texts = _strings(lists.values, name)
    absent = lists.is_null().to_numpy(zero_copy_only=False)
    if texts.null_count:
        rows = pc.list_parent_indices(lists).to_numpy()
        absent[rows[texts.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.ListArray.from_arrays(lists.offsets, texts, mask=pa.array(absent) if absent.any() else None)


def _lists_of_strings(array: pa.Array) -> pa.Array:
    """Lists of any type as the type `list<string>`, without values that no list has."""
    items = _plain(pc.list_flatten(array))
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), items.cast(pa.string()), mask=mask)
