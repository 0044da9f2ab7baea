"""Rows of a DataFrame as events: a column is an attribute, and a null is an absent one."""

import heapq
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructType

from culver.client import encode_event
from culver.errors import InvalidConfiguration, InvalidEvent
from culver.spark.attribute_types import attributes_of

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
_LENGTH = struct.Struct("<I")
_SORTED_BYTES = 64 * 1024 * 1024
# What a text costs in memory beside its bytes.
_TEXT_BYTES = 50


def check_columns(schema: StructType, json_column: str | None) -> None:
    """Raises InvalidConfiguration with the name of a column that no event can hold."""
    if json_column is None:
        if not schema.fields:
            raise InvalidConfiguration("the rows have no columns", field="schema")
        for field in schema.fields:
            attributes_of(field.name, field.dataType)
        return
    kinds = {field.name: field.dataType for field in schema.fields}
    if not isinstance(kinds.get(json_column), StringType):
        found = kinds[json_column].simpleString().upper() if json_column in kinds else "no such column"
        raise InvalidConfiguration(
            f"option json: {json_column!r} must be a column of the type STRING, and is {found}", field="json"
        )


def event_texts(batches: Iterable[pa.RecordBatch], json_column: str | None) -> Iterator[bytes]:
    """The JSON text of each row. Raises InvalidEvent with the name of the column."""
    for batch in batches:
        if json_column is None:
            table = pa.RecordBatch.from_arrays([_plain(each) for each in batch.columns], batch.schema.names)
            for row in table.to_pylist():
                yield encode_event(_present(row))
        else:
            for text in batch.column(json_column):
                if not text.is_valid:
                    raise InvalidEvent(
                        f"{json_column} is null in a row: there is no event", field=json_column
                    )
                yield encode_event(text.as_py().encode())


def sorted_texts(texts: Iterable[bytes], most_bytes: int = _SORTED_BYTES) -> Iterator[bytes]:
    """All texts in order. What takes more memory than that is sorted in parts, in files that leave no trace."""
    part: list[bytes] = []
    size = 0
    with ExitStack() as stack:
        files: list[IO[bytes]] = []
        for text in texts:
            part.append(text)
            size += len(text) + _TEXT_BYTES
            if size > most_bytes:
                files.append(stack.enter_context(_written(sorted(part))))
                part, size = [], 0
        yield from heapq.merge(sorted(part), *map(_read, files))


def _plain(column: pa.Array) -> pa.Array:
    """The column with timestamps as JSON has them."""
    if pa.types.is_timestamp(column.type):
        texts = pc.strftime(column.cast(pa.timestamp("us", "UTC")), _MOMENT)
        return pa.StructArray.from_arrays([texts], ["$timestamp"], mask=column.is_null())
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        members = [_plain(column.field(number)) for number in range(len(names))]
        return pa.StructArray.from_arrays(members, names, mask=column.is_null())
    return column


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _present(value) if type(value) is dict else value
        for name, value in members.items()
        if value is not None
    }


def _written(texts: Iterable[bytes]) -> IO[bytes]:
    file = TemporaryFile()  # noqa: SIM115 - the caller closes it
    for text in texts:
        file.write(_LENGTH.pack(len(text)) + text)
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while head := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(head)[0])
