"""Which columns a DataFrame of events has, and how pages of the site become them.

A column has the name of an attribute, as a filter names it, or one of four that the source gives itself:

    offset        BIGINT      the event's position in the log
    delivery_id   STRING      SUBSCRIPTION:OFFSET; null where no subscription is read
    received      TIMESTAMP   when the site received it
    event         STRING      the event itself, as JSON

A struct column has the attributes below its name. As in a filter, a value of another type than the column's counts
as missing, and what is missing is null.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from culver.client import Include, LogTable
from culver.errors import InvalidConfiguration
from culver.spark.attribute_types import INTEGERS, REALS, attributes_of

_OWN = {"offset": LongType(), "delivery_id": StringType(), "received": TimestampType(), "event": StringType()}
_NEVER_NULL = ("offset", "received", "event")
_BEYOND = 2.0**63


class EventColumns:
    """Raises InvalidConfiguration with the name of a column that cannot be read."""

    def __init__(self, schema: StructType) -> None:
        self._fields: list[StructField] = list(schema.fields)
        self.attributes: list[str] = []
        for field in self._fields:
            if field.name not in _NEVER_NULL:
                _check_nullable(field.name, field)
            own = _OWN.get(field.name)
            if own is None:
                self.attributes += attributes_of(field.name, field.dataType)
            elif field.dataType != own:
                raise InvalidConfiguration(
                    f"column {field.name} is the source's own and has the type {own.simpleString().upper()}",
                    field=field.name,
                )
        self._schema = to_arrow_schema(schema, timezone="UTC")
        has_event = any(field.name == "event" for field in self._fields)
        self.include: Include = "attributes" if not has_event else "both" if self.attributes else "event"

    def batch(self, page: LogTable, subscription: str | None) -> pa.RecordBatch | None:
        """The rows of a page; None where it has none."""
        events = page.events.combine_chunks()
        if not events.num_rows:
            return None
        arrays = [self._column(events, field, subscription) for field in self._fields]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def batches(self, pages: Iterator[LogTable], subscription: str | None) -> Iterator[pa.RecordBatch]:
        for page in pages:
            if (batch := self.batch(page, subscription)) is not None:
                yield batch

    def _column(self, events: pa.Table, field: StructField, subscription: str | None) -> pa.Array:
        if field.name == "delivery_id":
            if subscription is None:
                return pa.nulls(events.num_rows, pa.string())
            offsets = events.column("offset").cast(pa.string())
            return _joined(pc.binary_join_element_wise(f"{subscription}:", offsets, ""))
        if field.name in _OWN:
            return _joined(events.column(field.name))
        return _attribute(events, field.name, field.dataType, self._schema.field(field.name).type)


def _check_nullable(name: str, field: StructField) -> None:
    """Spark believes NOT NULL, and answers `IS NULL` without a look at the rows."""
    if not field.nullable:
        raise InvalidConfiguration(
            f"column {name} is NOT NULL, but any event can lack it: leave NOT NULL out, and filter the rows",
            field=name,
        )
    if isinstance(field.dataType, StructType):
        for member in field.dataType.fields:
            _check_nullable(f"{name}.{member.name}", member)


def _attribute(events: pa.Table, name: str, kind: DataType, target: pa.DataType) -> pa.Array:
    if isinstance(kind, StructType):
        members = [
            _attribute(events, f"{name}.{field.name}", field.dataType, target.field(number).type)
            for number, field in enumerate(kind.fields)
        ]
        missing = members[0].is_null()
        for member in members[1:]:
            missing = pc.and_(missing, member.is_null())
        return pa.StructArray.from_arrays(members, fields=list(target), mask=missing)
    found: list[pa.Array] = []
    for letter, convert in _conversions(kind):
        if f"{letter}:{name}" in events.schema.names:
            found.append(convert(_joined(events.column(f"{letter}:{name}")), target))
    if not found:
        return pa.nulls(events.num_rows, target)
    return found[0] if len(found) == 1 else pc.coalesce(*found)


_Convert = Callable[[Any, pa.DataType], pa.Array]


def _conversions(kind: DataType) -> list[tuple[str, _Convert]]:
    """The kinds of values that a column takes, and how. Culver's numbers compare as numbers, whole or not."""
    if isinstance(kind, INTEGERS):
        return [("i", _integers), ("r", _whole_reals)]
    if isinstance(kind, REALS):
        return [("r", _plainly), ("i", _plainly)]
    letter = {StringType: "s", BooleanType: "b", TimestampType: "t", ArrayType: "l"}[type(kind)]
    return [(letter, _plainly)]


def _plainly(values: pa.Array, target: pa.DataType) -> pa.Array:
    return values.cast(target, safe=False)


def _integers(values: pa.Array, target: pa.DataType) -> pa.Array:
    bits = target.bit_width - 1
    fits = pc.and_(pc.greater_equal(values, -(2**bits)), pc.less_equal(values, 2**bits - 1))
    return pc.if_else(fits, values, pa.scalar(None, values.type)).cast(target)


def _whole_reals(values: pa.Array, target: pa.DataType) -> pa.Array:
    within = pc.and_(pc.greater_equal(values, -_BEYOND), pc.less(values, _BEYOND))
    is_whole = pc.and_(pc.equal(pc.floor(values), values), within)
    whole = pc.if_else(is_whole, values, pa.scalar(None, values.type)).cast(pa.int64(), safe=False)
    return _integers(whole, target)


def _joined(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
