"""How an index is divided when a site starts: by its settings, or by what `auto` measures on real files."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.workloads import named
from culver.config import LogSettings, PipelineSettings
from culver.control.elasticity import ELASTIC_PLACEMENTS
from culver.control.index_placement import open_index, weigh
from culver.control.placement_trial import Circumstances, seconds_per_event
from culver.log.files import FileLog
from culver.matching import ClauseTable, IndexWriter, compile_rows
from culver.matching.index.compile.compiler import Entry, compile_entries
from culver.model.language.parser import parse
from culver.model.language.prepared_filter import prepare
from culver.placement.fixed_placements import Hashed, Replicated
from culver.placement.mpartition import EventSpace, MPartition
from culver.placement.placement import Placement

COUNT, SLICES = 3_000, 4


def subscriptions(name: str) -> ClauseTable:
    forms = draw(named(name), COUNT, 5).forms
    return ClauseTable.joined(
        [compile_rows(prepare(form.text), form.numbers, form.columns) for form in forms]
    )


@pytest.fixture(scope="module")
def quotes() -> ClauseTable:
    return subscriptions("W2")


@pytest.fixture(scope="module")
def events() -> pa.RecordBatch:
    return named("W2").event_batch(512, 6)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileLog]:
    with FileLog(tmp_path / "log", LogSettings()) as log:
        yield log


def writer_of(directory: Path, table: ClauseTable, placement: Placement) -> IndexWriter:
    writer = IndexWriter(directory)
    writer.divide(placement)
    writer.publish(1, (), (), 0, [table])
    return writer


def settings(memory: float, elastic: bool = False) -> PipelineSettings:
    return PipelineSettings(slices=SLICES, worker_memory_bytes=int(memory), elastic=elastic)


def size_of(writer: IndexWriter) -> int:
    return sum(size for _, size in writer.contents())


def test_an_event_that_goes_to_all_slices_costs_more_than_one_that_is_matched_once(
    quotes: ClauseTable, events: pa.RecordBatch
) -> None:
    now = Circumstances(COUNT, SLICES, reading_seconds=1e-7)
    once, everywhere = seconds_per_event([Replicated(SLICES), Hashed(SLICES)], quotes, events, now)
    assert 1e-7 < once < everywhere


@pytest.mark.slow(seconds=3)
def test_more_registrations_cost_more_where_every_one_of_them_is_computed() -> None:
    slow = compile_entries(Entry(n, parse(f"low * {n} + high > {n}")) for n in range(300))
    events = named("W2").event_batch(64, 6)
    few, many = (
        # The best of some, because other programs may take the processor.
        min(
            seconds_per_event([Replicated(1)], slow, events, Circumstances(count, 1, 0.0))[0]
            for _ in range(5)
        )
        for count in (300, 30_000)
    )
    assert 2 * few < many


def test_a_small_index_is_not_weighed(tmp_path: Path, quotes: ClauseTable, log: FileLog) -> None:
    writer = writer_of(tmp_path / "index", quotes, Replicated(1))
    weighed = weigh(writer, settings(8 * size_of(writer)), SLICES, log)
    assert weighed.learnt is None
    assert weighed.choice.reason.startswith("replicated: the index of ")


@pytest.mark.parametrize("with_events", [False, True])
def test_an_index_too_large_for_a_worker_is_divided_so_that_it_fits(
    tmp_path: Path, quotes: ClauseTable, events: pa.RecordBatch, log: FileLog, with_events: bool
) -> None:
    if with_events:
        log.append([events])
    writer = writer_of(tmp_path / "index", quotes, Replicated(1))
    weighed = weigh(writer, settings(1.6 * size_of(writer)), SLICES, log)
    assert weighed.choice.name in ("mpartition", "event-space", "hashed")
    assert weighed.choice.slices == SLICES
    assert "which is too much" in weighed.choice.reason
    assert all(name in weighed.choice.reason for name in ("replicated", "mpartition", "hashed"))
    if isinstance(weighed.learnt, MPartition):
        assert weighed.learnt.layers
        assert "application" in weighed.choice.reason


def test_where_nothing_fits_the_least_memory_is_taken(
    tmp_path: Path, quotes: ClauseTable, log: FileLog
) -> None:
    writer = writer_of(tmp_path / "index", quotes, Replicated(1))
    choice = weigh(writer, settings(0.2 * size_of(writer)), SLICES, log).choice
    assert choice.name == "hashed"
    assert "With 10 workers" in choice.reason or "With 11 workers" in choice.reason


@pytest.mark.parametrize("memory", [0.2, 1.6, 8.0])
def test_an_elastic_site_gets_a_placement_whose_slices_come_and_go(
    tmp_path: Path, quotes: ClauseTable, log: FileLog, memory: float
) -> None:
    writer = writer_of(tmp_path / "index", quotes, Hashed(SLICES))
    choice = weigh(writer, settings(memory * size_of(writer), elastic=True), SLICES, log).choice
    assert choice.name in ELASTIC_PLACEMENTS
    assert choice.slices == SLICES


def test_an_elastic_site_keeps_the_slices_that_it_has(
    tmp_path: Path, quotes: ClauseTable, log: FileLog
) -> None:
    writer = writer_of(tmp_path / "index", quotes, EventSpace.learnt(quotes, 3))
    choice = weigh(writer, settings(10**9, elastic=True), SLICES, log).choice
    assert (choice.name, choice.slices) == ("event-space", 3)


def test_copies_of_a_divided_index_are_not_taken_for_registrations(tmp_path: Path, log: FileLog) -> None:
    table = subscriptions("W1")
    whole = size_of(writer_of(tmp_path / "whole", table, Replicated(1)))
    divided = writer_of(tmp_path / "divided", table, MPartition.learnt(table, SLICES))
    assert size_of(divided) > 4 * whole
    # As a whole it fits, though all copies together take several times as much.
    reason = weigh(divided, settings(3 * whole), SLICES, log).choice.reason
    told = [each for each in reason.split("; ") if "replicated" in each]
    assert len(told) == 1
    assert "too much" not in told[0]


def slices_after(tmp_path: Path, log: FileLog, placement: str, *wanted: int) -> int:
    """Opens an index with one number of slices after the other; returns how many it has at the end."""
    for slices in wanted:
        settings = PipelineSettings(engine="inline", placement=placement, slices=slices)
        writer, choice = open_index(tmp_path / "index", settings, 1, log, 1)
        assert choice.slices == writer.placement.slices
        if not writer.version:
            writer.publish(1, [Entry(n, parse(f"x > {n}")) for n in range(20)], [], 0)
    return writer.placement.slices


def test_an_index_that_is_divided_while_it_is_used_keeps_its_slices_and_says_so(
    tmp_path: Path, log: FileLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert slices_after(tmp_path, log, "mpartition", 3, 3) == 3
        assert caplog.messages == []
        assert slices_after(tmp_path, log, "mpartition", 5) == 3
    assert caplog.messages == [
        "the index keeps its 3 slices, though pipeline.slices says 5; culver slices adds and removes"
    ]


def test_another_index_is_made_again_with_as_many_as_are_asked_for(tmp_path: Path, log: FileLog) -> None:
    assert slices_after(tmp_path, log, "hashed", 3, 5) == 5
