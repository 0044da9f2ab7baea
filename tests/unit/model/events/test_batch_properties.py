"""Columns say the same as events: for random events, names, cuts, joins and the way through bytes."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from culver.model.columns.event_batch import (
    attribute,
    attributes,
    concat,
    deserialise,
    encode,
    event_at,
    pack,
    serialise,
)
from culver.model.event import Event
from culver.model.values import Kind, Timestamp
from support.events import NAMES, events, random_event, same_value

EXTRA_NAMES = ("type", "id", "time", "data", "nested.a", "data.nested.a", "data.data.a", "missing")


def check(batch: pa.RecordBatch, expected: Sequence[Event]) -> None:
    """The batch holds exactly these events, and answers for every name what they answer."""
    assert batch.num_rows == len(expected)
    for row, event in enumerate(expected):
        found = event_at(batch, row)
        assert found == event
        for source, original in ((found.context, event.context), (found.data, event.data)):
            assert all(same_value(source[name], value) for name, value in original.items())
    asked = (
        attributes(tuple(batch.schema.names)).keys()
        | set(EXTRA_NAMES)
        | set(NAMES)
        | {"data." + name for name in NAMES}
    )
    for name in asked:
        columns = {kind: column.to_pylist() for kind, column in attribute(batch, name).items()}
        for values in columns.values():
            assert any(value is not None for value in values)
        for row, event in enumerate(expected):
            there = [
                Timestamp(values[row])
                if kind is Kind.TIMESTAMP
                else tuple(values[row])
                if kind is Kind.STRINGS
                else values[row]
                for kind, values in columns.items()
                if values[row] is not None
            ]
            wanted = event.value(name)
            assert len(there) == (wanted is not None), (name, row)
            assert all(same_value(value, wanted) for value in there), (name, row)
    for event in expected:
        answered = {"data." + name for name in event.data} | set(event.data) | set(event.context)
        assert answered <= asked


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("max_columns", [12, 1024])
def test_random_events_survive_columns_bytes_and_joins(seed: int, max_columns: int) -> None:
    rng = random.Random(seed)
    originals = [random_event(rng) for _ in range(60)]
    batches = encode(originals, 5, max_columns)
    assert all(batch.num_columns - 2 <= max_columns or batch.num_rows == 1 for batch in batches)
    read = [deserialise(serialise(batch)) for batch in batches]
    at = 0
    for batch in read:
        check(batch, originals[at : at + batch.num_rows])
        at += batch.num_rows
    assert at == len(originals)
    check(concat(read), originals)
    whole = concat(read)
    start, end = sorted(rng.sample(range(61), 2))
    check(whole.slice(start, end - start), originals[start:end])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(events(), min_size=1, max_size=6), st.lists(events(), max_size=4))
def test_any_events_survive_columns_bytes_and_joins(first: list[Event], second: list[Event]) -> None:
    batches = [batch for part in (first, second) for batch in encode(part, 0)]
    check(concat([deserialise(serialise(batch)) for batch in batches]), first + second)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(events(), min_size=1, max_size=6), st.data())
def test_the_bytes_of_a_batch_are_those_of_a_stream_writer(
    originals: list[Event], data: st.DataObject
) -> None:
    for batch, stream in pack(originals, 0):
        batch.validate(full=True)
        made_by_arrow = pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema)
        assert stream == serialise(made_by_arrow)
        part = batch.slice(data.draw(st.integers(0, batch.num_rows - 1)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_batch(part)
        assert serialise(part) == sink.getvalue().to_pybytes()
