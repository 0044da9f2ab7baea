"""What the operators measure, how it travels with the result, and how it is added up."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from culver.config import LogSettings
from culver.log.files import FileLog
from culver.matching import Entry, Grouping, IndexWriter
from culver.model.columns import event_batch as batches
from culver.model.language.parser import parse
from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.engine_totals import BATCH_SECONDS, EngineTally, RecentBatch, SchemeTotals
from culver.pipeline.head import Head
from culver.pipeline.notifications import Notifications, read_notifications, write_notifications
from culver.pipeline.operator_work import SchemeWork, SetWork, SliceWork, WrittenFiles, worker_name
from culver.pipeline.partial_exchange import Partial, put_partial
from culver.pipeline.range_processor import RangeProcessor
from culver.pipeline.site_files import SiteFiles
from culver.pipeline.spark.spark_engine import NotificationCollector
from culver.placement.fixed_placements import Hashed
from support.events import random_event
from support.notifications import make_notifications


def work(number: int, **changes: Any) -> SliceWork:
    made = SliceWork(
        slice=number,
        events=10,
        sent=4,
        pairs=7,
        ap_seconds=0.25,
        m_seconds=0.5,
        ep_seconds=1.0,
        worker="host:1",
    )
    return replace(made, **changes)


def with_work(start: int, end: int, *records: SliceWork) -> Notifications:
    found = make_notifications(start, end, {1: [start]})
    return Notifications(
        found.start, found.end, 1, found.numbers, found.bounds, found.rows, found.sizes, records
    )


def test_records_come_back_from_the_file_as_they_were_written(tmp_path: Path) -> None:
    schemes = (SchemeWork("counting", 3, 0.25), SchemeWork("reference", 0, 0.1))
    records = (
        work(0, files=2, written_bytes=300, write_seconds=0.1),
        work(1, worker="other:7", schemes=schemes),
    )
    path = write_notifications(tmp_path, with_work(5, 9, *records), durable=False)
    assert read_notifications(path).work == records


def test_file_tells_of_the_files_before_it_once() -> None:
    written = WrittenFiles()
    records = (work(0), work(1))
    assert written.tell(records) == records
    written.add(100, 0.5)
    written.add(20, 0.25)
    told = written.tell(records)
    assert (told[0].files, told[0].written_bytes, told[0].write_seconds) == (2, 120, 0.75)
    assert told[1] == records[1]
    assert written.tell(records) == records


def test_time_of_a_join_is_shared_by_the_slices(tmp_path: Path) -> None:
    schemes, sets = (SchemeWork("counting", 3, 0.1),), (SetWork(4, 9, 0.5),)
    records = [work(1), work(0, schemes=schemes, sets=sets)]
    parts = [Partial(0, 3, 1, [], np.zeros(3, np.uint32), (each,)) for each in records]
    assert put_partial(tmp_path, parts[1], 0, BatchPlan(1, 2, 2), Grouping()) is None
    joined = put_partial(tmp_path, parts[0], 1, BatchPlan(1, 2, 2), Grouping())
    assert joined is not None
    assert [each.slice for each in joined.work] == [0, 1]
    assert (joined.work[0].schemes, joined.work[0].sets) == (schemes, sets)
    assert joined.work[0].ep_seconds == joined.work[1].ep_seconds > 1.0


def test_collector_counts_each_file_that_it_takes_and_those_behind_a_hole(tmp_path: Path) -> None:
    class Sink:
        def accept(self, notifications: Notifications, *, stored: bool) -> None: ...

    collector = NotificationCollector(tmp_path, Sink(), 0)
    tally = collector.tally
    for start, end in ((0, 10), (20, 30), (25, 45)):
        write_notifications(tmp_path, with_work(start, end, work(0), work(1)), durable=False)
    collector.collect()
    assert (collector.position, collector.waiting_files, collector.ahead) == (10, 2, 25)
    assert [each.pairs for each in tally.observe(10).slices] == [7, 7]
    write_notifications(tmp_path, with_work(10, 20, work(1)), durable=False)
    collector.collect()
    assert (collector.position, collector.waiting_files, collector.ahead) == (45, 0, 0)
    seen = tally.observe(45)
    assert [each.pairs for each in seen.slices] == [21, 28]
    assert (seen.blocks, seen.workers) == (4, {"host:1": 7})


def test_tally_adds_up_slices_files_and_batches() -> None:
    tally = EngineTally()
    tally.add([work(2), work(0, pairs=1, files=1, written_bytes=50, write_seconds=0.5)])
    tally.add([work(2, sent=6, m_seconds=1.5)])
    for seconds in (0.0004, 0.001, 0.3, 99.0):
        tally.add_batch(5, seconds)
    seen = tally.observe(20, ahead=3, waiting_files=1)
    first, second = seen.slices
    assert (first.slice, first.pairs, second.slice) == (0, 1, 2)
    assert (second.events, second.sent, second.pairs) == (20, 10, 14)
    assert (second.ap_seconds, second.m_seconds, second.ep_seconds) == (0.5, 2.0, 2.0)
    assert (seen.written.files, seen.written.bytes, seen.written.seconds) == (1, 50, 0.5)
    batches_seen = seen.batches
    assert (batches_seen.count, batches_seen.events, sum(batches_seen.counts)) == (4, 20, 4)
    assert batches_seen.counts[0] == 2  # a bound belongs to what lies below it
    assert batches_seen.counts[BATCH_SECONDS.index(0.5)] == 1
    assert batches_seen.counts[-1] == 1
    assert batches_seen.recent[-1] == RecentBatch(5, 99.0)


def test_tally_divides_what_m_did_among_the_schemes() -> None:
    tally = EngineTally()
    assert tally.observe(0).schemes == (SchemeTotals("columnar"),)
    tally.add([work(0), work(1, schemes=(SchemeWork("counting", 3, 0.25),))])
    tally.add([work(0, schemes=(SchemeWork("counting", 1, 0.125), SchemeWork("reference", 0, 0.25)))])
    assert tally.observe(0).schemes == (
        SchemeTotals("columnar", 3 * 7 - 4, 3 * 0.5 - 0.625),
        SchemeTotals("counting", 4, 0.375),
        SchemeTotals("reference", 0, 0.25),
    )


def test_tally_forgets_workers_that_have_been_silent_for_long() -> None:
    tally = EngineTally()
    for number in range(100):
        tally.add([work(0, worker=f"host:{number}"), work(0, worker="host:steady")])
    workers = tally.observe(0).workers
    assert len(workers) == 64
    assert workers["host:steady"] == 100
    assert "host:0" not in workers


@pytest.mark.parametrize("slices", [1, 3])
def test_processor_tells_what_each_slice_was_sent_and_found(slices: int, tmp_path: Path) -> None:
    rng = random.Random(3)
    files = SiteFiles(tmp_path)
    writer = IndexWriter(files.index)
    if slices > 1:
        writer.divide(Hashed(slices))
    schemes = ("columnar", "counting", "reference")
    added = [Entry(number, parse(f"n >= {number}"), 0, schemes[number % 3]) for number in range(1, 40)]
    writer.publish(1, added, [], 0)
    with FileLog(files.log, LogSettings()) as log:
        log.append(batches.encode([random_event(rng) for _ in range(120)], 0))
        processor = RangeProcessor(files.index, log, lambda: Head(120, 1, 0, slices))
        plan = BatchPlan(1, slices, slices)
        [block] = processor.process(0, 120, plan)
        parts = [part for task in range(slices) for part in processor.process_task(0, 120, plan, task)]
        processor.close()
    assert [each.slice for each in block.work] == list(range(slices))
    assert sum(each.pairs for each in block.work) == len(block.rows)
    assert all(each.events == 120 and each.worker == worker_name() for each in block.work)
    assert 120 <= sum(each.sent for each in block.work) <= 120 * slices
    assert all(min(each.ap_seconds, each.m_seconds, each.ep_seconds) > 0 for each in block.work)
    for each in block.work:
        assert [scheme for scheme, _, _ in each.schemes] == ["counting", "reference"]
        assert sum(seconds for _, _, seconds in each.schemes) < each.m_seconds
    numbers = np.repeat(block.numbers, np.diff(block.bounds))
    found = [sum(each.schemes[place].pairs for each in block.work) for place in range(2)]
    assert found == [np.count_nonzero(numbers % 3 == 1), np.count_nonzero(numbers % 3 == 2)]
    apart = [record for part in parts for record in part.work]
    assert [(each.slice, each.sent, each.pairs) for each in apart] == [
        (each.slice, each.sent, each.pairs) for each in block.work
    ]
