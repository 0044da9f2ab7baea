"""Attributes as columns, against what a filter sees of the events themselves."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from culver.client import LogTable
from culver.delivery import HistoryPage
from culver.errors import InvalidConfiguration
from culver.gateway.routes.log_routes import _arrow
from culver.messages import MailboxPageQuery
from culver.model import Event
from culver.model.columns import concat, encode
from culver.model.formats import parse_event
from culver.model.values import Timestamp
from culver.spark.event_columns import EventColumns
from culver.spark.row_events import check_columns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECEIVED_US = 1_700_000_000_123_456
_COLUMNS: dict[str, DataType] = {
    "text": StringType(),
    "truth": BooleanType(),
    "tiny": ByteType(),
    "whole": IntegerType(),
    "big": LongType(),
    "rough": FloatType(),
    "real": DoubleType(),
    "at": TimestampType(),
    "tags": ArrayType(StringType()),
    "order.big": LongType(),
}
_BITS = {ByteType: 7, IntegerType: 31, LongType: 63}


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


def page(events: Sequence[Event], columns: EventColumns) -> LogTable:
    """The page that a site sends of these events."""
    batch = concat(encode(events, _RECEIVED_US))
    query = MailboxPageQuery(start=0, attribute=columns.attributes, include=columns.include)
    body = _arrow(query, HistoryPage(np.arange(len(events)), batch, len(events)), [])
    with pa.ipc.open_stream(body) as reader:
        return LogTable(reader.read_all(), len(events), ())


def rows(
    events: Sequence[Event], wanted: StructType, subscription: str | None = None
) -> list[dict[str, Any]]:
    columns = EventColumns(wanted)
    batch = columns.batch(page(events, columns), subscription)
    if batch is None:
        return []
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def expected(event: Event, name: str) -> Any:
    """The value of an attribute in a column, by hand."""
    value, kind = event.value(name), _COLUMNS[name]
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    match kind:
        case ByteType() | IntegerType() | LongType():
            if number is None or number != int(number):
                return None
            limit = 2 ** _BITS[type(kind)]
            return int(number) if -limit <= number < limit else None
        case DoubleType():
            return None if number is None else float(number)
        case FloatType():
            return None if number is None else float(np.float64(number).astype(np.float32))
        case StringType():
            return value if isinstance(value, str) else None
        case BooleanType():
            return value if isinstance(value, bool) else None
        case TimestampType():
            return (
                _EPOCH + timedelta(microseconds=value.microseconds) if isinstance(value, Timestamp) else None
            )
        case _:
            return list(value) if isinstance(value, tuple) else None


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-129, -128, 127, 128, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1]),
    st.floats(-1e30, 1e30),
    st.sampled_from([3.0, -0.0, 127.0, 128.0, 2.0**63, -(2.0**63), 0.1]),
    st.text(max_size=3),
    st.lists(st.text(max_size=2), max_size=2),
    st.integers(-(10**15), 10**15).map(
        lambda at: {"$timestamp": (_EPOCH + timedelta(microseconds=at)).isoformat()}
    ),
)
_NAMES = [name for name in _COLUMNS if "." not in name]
_EVENTS = st.dictionaries(st.sampled_from(_NAMES), _VALUES).flatmap(
    lambda plain: st.fixed_dictionaries({"order": st.fixed_dictionaries({"big": _VALUES})}).map(
        lambda nested: plain | nested
    )
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_EVENTS, max_size=8))
def test_columns_have_the_values_that_a_filter_sees(documents: list[dict[str, Any]]) -> None:
    events = [parse_event(json.dumps(each).encode()) for each in documents]
    found = rows(events, schema(**_COLUMNS))
    assert found == [{name: expected(event, name) for name in _COLUMNS} for event in events]


def test_the_source_s_own_columns_say_where_an_event_is() -> None:
    own = schema(
        event=StringType(),
        received=TimestampType(),
        delivery_id=StringType(),
        offset=LongType(),
        a=LongType(),
    )
    events = [parse_event(b'{"a": 1}'), parse_event(b'{"a": 2, "event": "x"}')]
    received = _EPOCH + timedelta(microseconds=_RECEIVED_US)
    assert rows(events, own, "s")[1] == {
        "event": '{"a":2,"event":"x"}', "received": received, "delivery_id": "s:1", "offset": 1, "a": 2
    }  # fmt: skip
    assert rows(events, own)[0]["delivery_id"] is None


def test_a_struct_has_what_lies_below_its_name() -> None:
    inner = schema(code=StringType())
    wanted = schema(order=schema(id=LongType(), side=inner))
    texts = [
        b'{"order": {"id": 7, "side": {"code": "B"}}}',
        b'{"order": {"id": 8}}',
        b'{"order": {"id": "x"}}',
        b"{}",
    ]
    assert rows([parse_event(text) for text in texts], wanted) == [
        {"order": {"id": 7, "side": {"code": "B"}}},
        {"order": {"id": 8, "side": None}},
        {"order": None},
        {"order": None},
    ]


def test_only_what_is_needed_is_asked_for() -> None:
    assert EventColumns(schema(a=LongType())).include == "attributes"
    assert EventColumns(schema(event=StringType())).include == "event"
    both = EventColumns(schema(event=StringType(), a=schema(b=LongType(), c=StringType())))
    assert (both.include, both.attributes) == ("both", ["a.b", "a.c"])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (DecimalType(10, 2), "DECIMAL(10,2)"),
        (ArrayType(LongType()), "ARRAY<BIGINT>"),
        (MapType(StringType(), StringType()), "MAP<STRING,STRING>"),
        (VarcharType(5), "VARCHAR(5)"),
        (StructType(), "STRUCT<>"),
    ],
)
def test_type_that_no_event_holds_is_refused_alike_where_it_is_read_and_written(
    kind: DataType, said: str
) -> None:
    wanted = schema(s=schema(a=kind))
    with pytest.raises(InvalidConfiguration) as read:
        EventColumns(wanted)
    with pytest.raises(InvalidConfiguration) as written:
        check_columns(wanted, None)
    assert read.value.field == written.value.field == "s.a"
    assert f"column s.a: an event cannot hold the type {said}; supported are" in read.value.message
    assert written.value.message == read.value.message


@pytest.mark.parametrize(
    ("name", "kind", "said"), [("offset", IntegerType(), "BIGINT"), ("event", LongType(), "STRING")]
)
def test_the_source_s_own_column_has_one_type(name: str, kind: DataType, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        EventColumns(schema(**{name: kind}))
    assert caught.value.field == name
    assert said in caught.value.message


def test_column_that_an_event_can_lack_is_not_declared_otherwise() -> None:
    inner = StructType().add("b", LongType(), nullable=False)
    for name, wanted in [
        ("a", StructType().add("a", LongType(), nullable=False)),
        ("a", StructType().add("a", schema(b=LongType()), nullable=False)),
        ("a.b", schema(a=inner)),
        ("delivery_id", StructType().add("delivery_id", StringType(), nullable=False)),
    ]:
        with pytest.raises(InvalidConfiguration, match="NOT NULL") as caught:
            EventColumns(wanted)
        assert caught.value.field == name


def test_what_every_event_has_may_be_not_null() -> None:
    wanted = StructType().add("offset", LongType(), nullable=False).add("event", StringType(), nullable=False)
    wanted.add("tags", ArrayType(StringType(), containsNull=False))
    assert rows([parse_event(b'{"tags": ["x"]}')], wanted) == [
        {"offset": 0, "event": '{"tags":["x"]}', "tags": ["x"]}
    ]
