"""Arrow bodies: what is refused before it can do harm."""

import random

import numpy as np
import pyarrow as pa
import pytest

from culver.errors import InvalidFilter, InvalidRequest
from culver.gateway.routes.arrow_bodies import read_table
from culver.model.columns.value_rows import column_of_array

TEXTS = pa.array(["some text"] * 50)
TABLES = {
    "plain": pa.table({"text": TEXTS, "number": np.arange(50.0)}),
    "views": pa.table({"text": TEXTS.cast(pa.string_view()), "number": np.arange(50.0)}),
    "dictionary": pa.table({"text": TEXTS.dictionary_encode(), "number": np.arange(50.0)}),
}


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("name", TABLES)
def test_a_plain_stream_is_read(name: str) -> None:
    assert read_table(stream(TABLES[name])).equals(TABLES[name])


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("name", TABLES)
def test_a_compressed_stream_is_refused(name: str, compression: str) -> None:
    with pytest.raises(InvalidRequest, match="compressed"):
        read_table(stream(TABLES[name], compression))


@pytest.mark.parametrize("name", TABLES)
def test_a_mangled_stream_is_refused_or_read_and_nothing_else(name: str) -> None:
    rng = random.Random(5)
    whole = stream(TABLES[name])
    for _ in range(1_000):
        mangled = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            mangled[rng.randrange(len(mangled))] = rng.randrange(256)
        try:
            for column in read_table(bytes(mangled)).columns:
                column_of_array(column, 1)
        except (InvalidRequest, InvalidFilter):
            continue


def test_many_rows_of_one_long_text_are_refused() -> None:
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * 10_000]))
    with pytest.raises(InvalidFilter, match="send fewer rows"):
        column_of_array(many, 1)


def test_a_moment_that_does_not_fit_is_refused() -> None:
    far = pa.array([10**14], pa.int64()).cast(pa.timestamp("s", tz="UTC"))
    with pytest.raises(InvalidFilter, match="beyond all years"):
        column_of_array(far, 1)
    exact = pa.array([1_700_000_000_123_456_789], pa.int64()).cast(pa.timestamp("ns", tz="UTC"))
    assert column_of_array(exact, 1).cast(pa.int64()).to_pylist() == [1_700_000_000_123_456]
