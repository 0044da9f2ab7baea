"""What the types of Arrow mean: docs/matcher.md has the same table."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from culver.errors import InvalidEvent
from culver.matcher import ColumnMapping
from culver.model import Kind

TEXTS = ["a", None, "e\u0301"]
NORMAL = ["a", None, "\u00e9"]
LISTS = [["a", "b"], None, []]
FIRST, SECOND = datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)
MOMENTS = [1_767_225_600_000_000, None, -500_000]
TEXT_OF_LISTS = pa.list_(pa.dictionary(pa.int32(), pa.string()))

# An array, the kind of its attribute, and its values there.
TYPES: list[tuple[pa.Array, Kind, list[Any]]] = [
    *(
        (pa.array([1, None, 100], kind), Kind.INTEGER, [1, None, 100])
        for kind in (pa.int8(), pa.int16(), pa.int32())
    ),
    (pa.array([-(2**63), None, 2**63 - 1]), Kind.INTEGER, [-(2**63), None, 2**63 - 1]),
    *(
        (pa.array([1, None, 200], kind), Kind.INTEGER, [1, None, 200])
        for kind in (pa.uint8(), pa.uint16(), pa.uint32())
    ),
    (pa.array([1, None, 2**63 - 1], pa.uint64()), Kind.INTEGER, [1, None, 2**63 - 1]),
    *(
        (pa.array([1.5, None, float("nan"), float("inf")], kind), Kind.REAL, [1.5, None, None, float("inf")])
        for kind in (pa.float16(), pa.float32(), pa.float64())
    ),
    (pa.array([Decimal("0.30"), None, Decimal("20.1")], pa.decimal128(38, 18)), Kind.REAL, [0.3, None, 20.1]),
    (pa.array([Decimal("0.30"), None, Decimal("20.1")], pa.decimal256(50, 18)), Kind.REAL, [0.3, None, 20.1]),
    (pa.array([Decimal(3), None, Decimal(10**18)], pa.decimal128(38, 0)), Kind.INTEGER, [3, None, 10**18]),
    (pa.array([Decimal(3), None], pa.decimal32(5, 0)), Kind.INTEGER, [3, None]),
    (pa.array([Decimal("0.3"), None], pa.decimal32(5, 1)), Kind.REAL, [0.3, None]),
    (pa.array([Decimal(300), None], pa.decimal128(5, -2)), Kind.INTEGER, [300, None]),
    *(
        (pa.array(TEXTS, kind), Kind.STRING, NORMAL)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ),
    (pa.array(TEXTS).dictionary_encode(), Kind.STRING, NORMAL),
    (pa.array(TEXTS, pa.string_view()).dictionary_encode(), Kind.STRING, NORMAL),
    (pa.array(LISTS, pa.list_(pa.string_view())), Kind.STRINGS, LISTS),
    (pa.RunEndEncodedArray.from_arrays([1, 3], ["a", "b"]), Kind.STRING, ["a", "b", "b"]),
    (pa.array([True, None, False]), Kind.BOOLEAN, [True, None, False]),
    *(
        (pa.array([FIRST, None, SECOND], pa.timestamp(unit, zone)), Kind.TIMESTAMP, MOMENTS)
        for unit in ("ms", "us", "ns")
        for zone in ("UTC", "Europe/Rome", "+05:30")
    ),
    (pa.array([1, None, -1], pa.timestamp("s", "UTC")), Kind.TIMESTAMP, [1_000_000, None, -1_000_000]),
    (pa.array([-1, None, 1999], pa.timestamp("ns", "UTC")), Kind.TIMESTAMP, [-1, None, 1]),
    (pa.array([date(2026, 1, 2), None], pa.date32()), Kind.STRING, ["2026-01-02", None]),
    (pa.array([date(2026, 1, 2), None], pa.date64()), Kind.STRING, ["2026-01-02", None]),
    *(
        (pa.array(LISTS, kind), Kind.STRINGS, LISTS)
        for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_view(pa.string()))
    ),
    (pa.array(LISTS).cast(TEXT_OF_LISTS), Kind.STRINGS, LISTS),
    (pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), Kind.STRINGS, [["a", "b"], None]),
    (pa.array([["a", None], ["e\u0301"], [None]]), Kind.STRINGS, [None, ["\u00e9"], None]),
    (pa.array([[], None]), Kind.STRINGS, [[], None]),
]
UNSUPPORTED = [
    pa.binary(),
    pa.time64("us"),
    pa.duration("s"),
    pa.month_day_nano_interval(),
    pa.list_(pa.int64()),
    pa.list_(pa.list_(pa.string())),
    pa.map_(pa.string(), pa.string()),
]


def values(array: pa.Array, **options: Any) -> tuple[Kind, list[Any]]:
    """The kind and the values of an attribute of this column."""
    rows = pa.record_batch([array], ["x"])
    mapping = ColumnMapping(rows.schema, **options)
    batch = mapping.batch(rows)
    batch.validate(full=True)
    kind = mapping.kinds["x"]
    return kind, batch.column(f"d:{kind}:x").to_pylist()


@pytest.mark.parametrize(("array", "kind", "wanted"), TYPES, ids=lambda each: str(getattr(each, "type", "")))
def test_a_type_becomes_a_kind(array: pa.Array, kind: Kind, wanted: list[Any]) -> None:
    assert values(array) == (kind, wanted)
    assert values(array.slice(1)) == (kind, wanted[1:])


@pytest.mark.parametrize("kind", UNSUPPORTED, ids=str)
def test_a_column_of_another_type_is_refused_where_it_is_mentioned(kind: pa.DataType) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", kind)])
    with pytest.raises(
        InvalidEvent, match=r"the column 'b' has the type .*, which no attribute has"
    ) as caught:
        ColumnMapping(schema)
    assert caught.value.field == "b"
    with pytest.raises(InvalidEvent, match="the column 'b'"):
        ColumnMapping(schema, {"data.b"})
    assert ColumnMapping(schema, {"a"}).kinds == {"a": Kind.INTEGER}


def test_fields_have_dotted_paths_and_null_structs_no_fields() -> None:
    inner = pa.StructArray.from_arrays([pa.array([1, 2, 3]), pa.array(["x", "y", None])], ["n", "t"])
    outer = pa.StructArray.from_arrays([inner], ["in"], mask=pa.array([False, True, False]))
    rows = pa.record_batch([outer], ["out"])
    for start in (0, 1):
        batch = ColumnMapping(rows.schema).batch(rows.slice(start))
        assert batch.column("d:i:out.in.n").to_pylist() == [1, None, 3][start:]
        assert batch.column("d:s:out.in.t").to_pylist() == ["x", None, None][start:]


@pytest.mark.parametrize(
    "fields",
    [
        pa.array(["x", "y", "z"]).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3], ["x", "y", "z"]),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array(["x", "y", "z"], pa.string_view())),
        pa.array([["x"], ["y"], ["z"]], pa.list_view(pa.string_view())),
    ],
    ids=lambda each: str(each.type),
)
def test_a_null_struct_hides_its_fields_in_any_encoding(fields: pa.Array) -> None:
    struct = pa.StructArray.from_arrays([fields], ["f"], mask=pa.array([False, True, False]))
    wanted = [fields[0].as_py(), None, fields[2].as_py()]
    for array in (struct, pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), struct)):
        for start in (0, 1, 2):
            rows = pa.record_batch([array.slice(start)], ["out"])
            assert ColumnMapping(rows.schema).batch(rows).column(2).to_pylist() == wanted[start:]


def test_a_field_and_a_column_of_the_same_name_are_refused() -> None:
    schema = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))])
    with pytest.raises(InvalidEvent, match=r"the column 'a\.b' exists twice"):
        ColumnMapping(schema)


def test_names_are_in_normal_form() -> None:
    assert list(ColumnMapping(pa.schema([("e\u0301", pa.int64())])).kinds) == ["\u00e9"]


def test_timestamps_without_a_zone_need_one() -> None:
    naive = pa.array([datetime(2026, 7, 1, 12, tzinfo=UTC), None], pa.timestamp("us"))
    with pytest.raises(InvalidEvent, match="the column 'x' holds timestamps without a time zone"):
        values(naive)
    noon_in_rome = int(datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp() * 1e6)
    assert values(naive, timezone="Europe/Rome") == (Kind.TIMESTAMP, [noon_in_rome, None])


@pytest.mark.parametrize("timezone", ["Europe/Nowhere", "", "+99:99", UTC])
def test_an_unknown_time_zone_is_refused_before_anything_is_read(timezone: Any) -> None:
    schema = pa.schema([("x", pa.timestamp("us"))])
    with pytest.raises(
        InvalidEvent, match=r"the column 'x' cannot be taken as times of .*: give a time zone"
    ):
        ColumnMapping(schema, None, timezone)
    assert ColumnMapping(schema, {"y"}, timezone).kinds == {}


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array([1, 2**63], pa.uint64()), "holds an integer beyond 64 bits in row 1"),
        *(
            (
                pa.array([None, Decimal(value)], pa.decimal128(38, 0)),
                "holds an integer beyond 64 bits in row 1",
            )
            for value in (10**19, 2**63, -(2**63) - 1)
        ),
        (
            pa.array([0, 10**12], pa.timestamp("s", "UTC")),
            "holds a timestamp outside of the years 0001 to 9999",
        ),
        (
            pa.array([0, 10**15], pa.timestamp("s", "UTC")),
            "holds a timestamp beyond all years that there are in row 1",
        ),
        (pa.array(["a", "e" + "\u0301" * 300]), "holds a text with more than 256 combining marks"),
    ],
)
def test_a_value_that_no_attribute_can_have_is_named(array: pa.Array, words: str) -> None:
    with pytest.raises(InvalidEvent, match=f"the column 'x' {words}") as caught:
        values(array)
    assert caught.value.field == "x"


def test_a_batch_without_any_column_keeps_its_rows() -> None:
    rows = pa.record_batch([pa.nulls(3)], ["x"])
    assert ColumnMapping(rows.schema).batch(rows).num_rows == 3
