"""Random events as rows of a table: a column for each attribute, of any Arrow type that can hold its values.

The same values as dictionaries are what the table is compared with.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from support.events import STRINGS

Rows = list[dict[str, Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
_LIST_TYPES = (
    pa.list_(pa.string()),
    pa.large_list(pa.large_string()),
    pa.list_view(pa.string()),
    pa.list_(pa.dictionary(pa.int32(), pa.string())),
)


def _integers(rng: random.Random) -> tuple[pa.DataType, Callable[[], Any]]:
    kind = rng.choice(
        (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.decimal128(6, 0))
    )
    return kind, lambda: rng.randrange(0, 8)


def _reals(rng: random.Random) -> tuple[pa.DataType, Callable[[], Any]]:
    kind = rng.choice((pa.float16(), pa.float32(), pa.float64(), pa.decimal128(10, 2)))
    if pa.types.is_decimal(kind):
        return kind, lambda: Decimal(rng.randrange(-8, 30)) / 4
    return kind, lambda: rng.choice((-1.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0))


def _strings(rng: random.Random) -> tuple[pa.DataType, Callable[[], Any]]:
    return rng.choice(_TEXT_TYPES), lambda: rng.choice((*STRINGS, "e\u0301"))


def _booleans(rng: random.Random) -> tuple[pa.DataType, Callable[[], Any]]:
    return pa.bool_(), lambda: rng.random() < 0.5


def _lists(rng: random.Random) -> tuple[pa.DataType, Callable[[], Any]]:
    return rng.choice(_LIST_TYPES), lambda: rng.choices(STRINGS, k=rng.randrange(4))


def _moments(rng: random.Random) -> tuple[pa.DataType, Callable[[], Any]]:
    kind = pa.timestamp(rng.choice(("s", "ms", "us", "ns")), rng.choice(("UTC", "Europe/Rome", "-05:00")))
    # Whole seconds, which every unit holds; two of them are moments that `support.filters` writes.
    return kind, lambda: datetime.fromtimestamp(rng.choice((-1, 0, 1_767_225_600, 1_907_775_000)), UTC)


_COLUMNS = {
    "a": _integers,
    "b": _integers,
    "c": _reals,
    "d": _strings,
    "e": _strings,
    "f": _booleans,
    "g": _lists,
    "h": _moments,
}


def random_table(rng: random.Random, count: int) -> tuple[pa.Table, Rows]:
    """A table of so many events, and the events as dictionaries."""
    begin = rng.randrange(5) if rng.random() < 0.3 else 0
    count += begin
    columns: dict[str, pa.Array] = {}
    rows: Rows = [{} for _ in range(count)]
    for name, home in _COLUMNS.items():
        if rng.random() < 0.1:
            continue
        make = home if rng.random() < 0.8 else rng.choice(list(_COLUMNS.values()))
        kind, draw = make(rng)
        values = [None if rng.random() < 0.2 else draw() for _ in range(count)]
        columns[name] = _encoded(rng, _array(values, kind))
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    if rng.random() < 0.8:
        name = rng.choice(("nested", "data"))
        kind, draw = _COLUMNS[rng.choice("adg")](rng)
        fields = [None if rng.random() < 0.2 else draw() for _ in rows]
        null = [rng.random() < 0.2 for _ in rows]
        columns[name] = _struct(rng, _array(fields, kind), null)
        for row, field, gone in zip(rows, fields, null, strict=True):
            row[name] = None if gone else {"a": field}
    columns["unused"] = pa.array([b"?"] * count, pa.binary())
    table = pa.table(columns)
    if count > 2 and rng.random() < 0.5:
        table = pa.concat_tables([table.slice(0, count // 2), table.slice(count // 2)])
    return table.slice(begin), rows[begin:]


def _struct(rng: random.Random, fields: pa.Array, null: list[bool]) -> pa.Array:
    """A struct with a field `a`, encoded somehow. A null one holds a value all the same, which is not to be seen."""
    struct = pa.StructArray.from_arrays([_encoded(rng, fields)], ["a"], mask=pa.array(null, pa.bool_()))
    return struct if "run_end_encoded" in str(struct.type) else _encoded(rng, struct)


def _encoded(rng: random.Random, array: pa.Array) -> pa.Array:
    """The same values in a dictionary (some of whose values may be null), as runs, or as they are."""
    places = pa.array(range(len(array)), pa.int32())
    match rng.randrange(6):
        case 0:
            return pa.DictionaryArray.from_arrays(places, array)
        case 1 if len(array) and not array.offset and not pa.types.is_dictionary(array.type):
            return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(array) + 1), pa.int32()), array)
    return array


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of any of these types; Arrow makes some of them by way of others only."""
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        return pa.array(values, pa.list_(kind.value_type.value_type)).cast(kind)
    return pa.array(values, kind)
