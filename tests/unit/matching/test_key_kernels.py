"""The keys that the kernel reads from Arrow's memory are those of the events' values."""

import random
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from culver.jit import read_only
from culver.matching.index.compile.clause_table import run_starts
from culver.matching.index.compile.compiler import compile_entries
from culver.matching.index.compile.key_lines import KeyLine, real_key
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.key_kernels import Literals, Programs, literals_of
from culver.matching.index.layout.segment_arrays import addresses_of
from culver.matching.index.segments.columnar_segment import segment_in_memory
from culver.model.columns.event_batch import concat, deserialise, encode, serialise
from culver.model.event import Event
from culver.model.values import KIND_OF_TYPE, Kind, Timestamp, Value
from support.events import NAMES, events, random_event

ASKED = (*NAMES, *("data." + name for name in NAMES), "type", "missing")
DIMENSIONS = tuple((name, line) for name in ASKED for line in KeyLine)
LITERALS = sorted({b"", b"a", b"b", b"abc", b"abcdefgh", b"abcdefghi", b"abcdefghj", "\u00e9".encode()})


def as_literals(texts: Sequence[bytes]) -> Literals:
    begins = run_starts(np.array([len(text) for text in texts], np.int64))
    return literals_of(read_only(begins), read_only(np.frombuffer(b"".join(texts), np.uint8)))


def key_of(value: Value | None, line: KeyLine) -> int | None:
    """The slow way; None: no key."""
    kind = None if value is None else KIND_OF_TYPE[type(value)]
    match line, kind:
        case (KeyLine.NUMBERS, Kind.INTEGER | Kind.REAL) | (KeyLine.REALS, Kind.REAL):
            assert isinstance(value, int | float)
            return real_key(float(value))
        case (KeyLine.INTEGERS, Kind.INTEGER) | (KeyLine.BOOLEANS, Kind.BOOLEAN):
            assert isinstance(value, int)
            return int(value)
        case KeyLine.TIMESTAMPS, Kind.TIMESTAMP:
            assert isinstance(value, Timestamp)
            return value.microseconds
        case KeyLine.LISTS, Kind.STRINGS:
            return 0
        case KeyLine.STRINGS, Kind.STRING:
            assert isinstance(value, str)
            place = bisect_left(LITERALS, value.encode())
            return 2 * place + (place < len(LITERALS) and LITERALS[place] == value.encode())
    return None


def check(batch: pa.RecordBatch, expected: Sequence[Event]) -> None:
    columns = BatchColumns(batch)
    keys, there = columns.fill(Programs(DIMENSIONS), as_literals(LITERALS))
    assert len(keys) == len(there) == len(DIMENSIONS) * len(expected)
    found = [key if has else None for key, has in zip(keys.tolist(), there.tolist(), strict=True)]
    assert set(there.tolist()) <= {0, 1}
    assert found == [key_of(event.value(name), line) for name, line in DIMENSIONS for event in expected]
    for place, (name, line) in enumerate(DIMENSIONS):
        if line is not KeyLine.STRINGS and (alone := columns.keys((name, line))) is not None:
            own = slice(place * len(expected), (place + 1) * len(expected))
            assert np.array_equal(alone[0], keys[own])
            assert np.array_equal(alone[1], there[own])


@pytest.mark.slow(seconds=2)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(events(), min_size=1, max_size=9), st.lists(events(), max_size=9), st.data())
def test_keys_are_those_of_the_values(drawn: list[Event], others: list[Event], data: st.DataObject) -> None:
    # Attributes of the context hide those of the data, of whatever kind they are.
    for place, other in enumerate(others[: len(drawn)]):
        drawn[place] = Event({**drawn[place].context, **other.data}, drawn[place].data, b"{}")
    batch = concat(encode(drawn, 0))
    check(batch, drawn)
    begin = data.draw(st.integers(0, len(drawn)))
    check(batch.slice(begin), drawn[begin:])


@pytest.mark.parametrize("seed", range(4))
def test_many_rows_have_their_keys_too(seed: int) -> None:
    rng = random.Random(seed)
    drawn = [random_event(rng) for _ in range(300)]
    batch = concat(encode(drawn, 0))
    for begin, end in ((0, 300), (1, 299), (13, 14), (77, 77), (128, 300)):
        check(batch.slice(begin, end - begin), drawn[begin:end])


@pytest.mark.parametrize("shift", range(8))
def test_memory_need_not_be_aligned(shift: int) -> None:
    drawn = [Event({}, {"a": 1.5, "b": 7, "c": "abc"}, b"{}"), Event({}, {"a": 3, "b": -0.0}, b"{}")]
    written = bytes(serialise(concat(encode(drawn, 0))))
    room = np.zeros(len(written) + 8, np.uint8)
    room[shift : shift + len(written)] = np.frombuffer(written, np.uint8)
    check(deserialise(pa.py_buffer(room)[shift : shift + len(written)]), drawn)


def test_sizes_of_payloads_are_those_of_the_events() -> None:
    batch = concat(encode([Event({}, {}, payload) for payload in (b"{}", b"", b"x" * 1000, b"\x00\xff")], 0))
    sizes = BatchColumns(batch.slice(1)).payload_sizes()
    assert sizes.dtype == np.uint32
    assert sizes.tolist() == [0, 1000, 2]
    assert BatchColumns(batch).payload_sizes().tolist() == [2, 0, 1000, 2]
    assert BatchColumns(batch.slice(4)).payload_sizes().tolist() == []


def test_arrays_that_kernels_would_misread_are_refused() -> None:
    arrays = segment_in_memory(compile_entries([])).arrays
    with pytest.raises(TypeError, match="since"):
        addresses_of(arrays._replace(since=arrays.since.astype(np.float64)))
    with pytest.raises(TypeError, match="needs"):
        addresses_of(arrays._replace(needs=np.zeros(4, np.int32)[::2]))
