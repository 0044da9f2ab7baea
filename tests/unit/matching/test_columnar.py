"""The columnar filter while it changes: merges in its thread, and what happens meanwhile."""

import random
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest

from culver.matching.filters import columnar
from culver.matching.filters.columnar import ColumnarFilter
from culver.matching.filters.reference import ReferenceFilter
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.model.language.prepared_filter import prepare
from culver.model.values import Value
from support.events import random_event
from support.filters import random_filter

SEED = 79


class Gate:
    """Holds merges in the thread until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.merges = 0
        self._run = columnar._Merge._run

    def run(self, merge: columnar._Merge) -> None:
        self.merges += 1
        assert self.open.wait(10)
        self._run(merge)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(columnar._Merge, "_run", lambda merge: gate.run(merge))
    monkeypatch.setattr(columnar, "_MERGED_AT_ONCE", 0)  # everything else in the thread
    yield gate
    gate.open.set()


def batch_of(*events: Mapping[str, Value]) -> pa.RecordBatch:
    return concat(encode([Event({}, data, b"{}") for data in events], 0))


def found(made: ColumnarFilter | ReferenceFilter, batch: pa.RecordBatch) -> list[list[int]]:
    matches = made.match(batch)
    bounds = matches.offsets.tolist()
    return [sorted(matches.numbers[bounds[row] : bounds[row + 1]].tolist()) for row in range(batch.num_rows)]


def filled(made: ColumnarFilter, first: int, count: int, text: str = "x = 1") -> None:
    predicate = parse(text)
    made.add((number, predicate) for number in range(first, first + count))
    made.match(batch_of({"x": 1}))


def test_what_happens_during_a_merge_holds_when_it_is_done(gate: Gate) -> None:
    with ColumnarFilter() as made:
        for first in range(0, 1_200, 300):
            filled(made, first, 300)
        assert gate.merges == 1
        made.remove([7, 1_100])
        made.add([(8, parse("x = 2")), (5_000, parse("x = 1"))])
        expected = [sorted({*range(1_200), 5_000} - {7, 8, 1_100}), [8]]
        batch = batch_of({"x": 1}, {"x": 2})
        assert found(made, batch) == expected
        assert len(made) == 1_199
        gate.open.set()
        made.close()
        assert found(made, batch) == expected
        assert len(made) == 1_199
        assert made.nbytes > 1_199 * 8


def test_subscriptions_in_bulk_and_a_look_at_the_number_count_as_changes_too() -> None:
    prepared = prepare("x = ?")
    batch = batch_of({"x": 1})
    with ColumnarFilter() as made:
        for _ in range(20):
            made.match(batch)  # quiet for long
        for first in range(0, 9_000, 300):
            made.add_rows(prepared, np.arange(first, first + 300), [np.ones(300, np.int64)])
            if first % 600:
                made.add([(20_000 + first, parse("x = 1"))])
            assert len(made) >= first + 300
            made.match(batch)
        for _ in range(40):
            made.match(batch)
            made.close()  # so that a merge in the thread is done
        assert len(made._pieces) <= 2


def test_a_number_that_was_replaced_before_the_merge_survives_it(gate: Gate) -> None:
    with ColumnarFilter() as made:
        filled(made, 0, 300)
        filled(made, 299, 300, "x = 2")
        filled(made, 1_000, 300)
        filled(made, 2_000, 300)
        batch = batch_of({"x": 1}, {"x": 2})
        before = found(made, batch)
        assert 299 in before[1]
        assert gate.merges == 1
        gate.open.set()
        made.close()
        assert found(made, batch) == before
        assert len(made) == 1_199


def test_a_filter_that_rests_becomes_one_segment() -> None:
    with ColumnarFilter() as made:
        for first in range(0, 3_000, 500):
            filled(made, first, 500)
        for _ in range(20):
            made.match(batch_of({"x": 1}))
        made.close()
        made.match(batch_of({"x": 1}))
        assert len(made._pieces) == 1
        assert found(made, batch_of({"x": 1})) == [list(range(3_000))]


def test_a_compiled_table_replaces_what_is_there_and_what_is_pending() -> None:
    with ColumnarFilter() as made:
        filled(made, 0, 10)
        made.add([(5, parse("x = 2")), (6, parse("x = 2"))])
        made.remove([7])
        made._take(compile_entries(Entry(number, parse("x = 3")) for number in (1, 5, 7)))
        batch = batch_of({"x": 1}, {"x": 2}, {"x": 3})
        assert found(made, batch) == [[0, 2, 3, 4, 8, 9], [6], [1, 5, 7]]
        assert len(made) == 10


def test_a_merge_that_fails_says_so_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    def fail(merge: columnar._Merge) -> None:
        merge._error = MemoryError("no room")

    with ColumnarFilter() as made, monkeypatch.context() as patched:
        patched.setattr(columnar._Merge, "_run", fail)
        for first in range(0, 1_200, 300):
            filled(made, first, 300)
        made.close()
        with pytest.raises(MemoryError):
            made.match(batch_of({"x": 1}))
        assert found(made, batch_of({"x": 1})) == [list(range(1_200))]


@pytest.mark.slow(seconds=2)
def test_random_changes_agree_with_the_reference_whenever_merges_end(gate: Gate) -> None:
    rng = random.Random(SEED)
    pool = [parse(random_filter(rng)) for _ in range(400)]
    batch = concat(encode([random_event(rng) for _ in range(4)], 0))
    reference = ReferenceFilter()
    with ColumnarFilter() as made:
        for _ in range(60):
            added = [(rng.randrange(700), rng.choice(pool)) for _ in range(rng.choice([1, 3, 40]))]
            gone = [rng.randrange(700) for _ in range(rng.choice([0, 1, 20]))]
            for each in (reference, made):
                each.remove(gone)
                each.add(added)
            if rng.random() < 0.3:
                gate.open.set()
                made.close()
                gate.open.clear()
            assert found(made, batch) == found(reference, batch), SEED
            assert len(made) == len(reference)
        gate.open.set()
    assert gate.merges > 3
