"""The streaming data source over the publication log, which matches where it reads.

An offset of the query is (log offset, index version and its slices, last report of the sets' load). Spark writes it
to its checkpoint before a batch runs, so a batch that runs again after a crash covers the same events with the same
index, and sends each event to the same slice. A task takes one range, in some of the slices or in all, through
`RangeProcessor`; the rows that it returns only say what it did.
"""

import functools
import itertools
import time
from collections.abc import Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from culver.pipeline.batch_plan import BatchPlan
from culver.pipeline.head import Head, HeadFile
from culver.pipeline.load_report import LoadFile, LoadReport
from culver.pipeline.notifications import Notifications, write_notifications
from culver.pipeline.operator_work import WrittenFiles
from culver.pipeline.site_files import SiteFiles
from culver.pipeline.spark.file_watch import FileWatch
from culver.pipeline.spark.signals import SignalSender

if TYPE_CHECKING:
    from culver.matching import Grouping
    from culver.pipeline.partial_file import Partial
    from culver.pipeline.range_processor import RangeProcessor

# After so long without a new head, Spark hears that there is nothing new.
_WAIT_SECONDS = 0.5
_HEAD_TRIES = 100
# Events; a smaller batch is not worth splitting among cores.
_SMALLEST_RANGE = 2_000
# Events. Each core gets up to so many turns with ranges of this size, so that none is idle for long at the end.
_LARGE_RANGE = 1 << 19
_TURNS = 4

SCHEMA = StructType([StructField(name, LongType()) for name in ("start", "end", "index_version", "pairs")])
_ARROW_SCHEMA = pa.schema([(field.name, pa.int64()) for field in SCHEMA.fields])

BatchOffset = dict[str, Any]
"""Integers, and a load report as JSON."""


class RangePartition(InputPartition):
    """`[start, end)`, for a task to match by `plan`. An empty one only warms the worker up."""

    def __init__(self, start: int, end: int, plan: BatchPlan, task: int = 0) -> None:
        super().__init__(None)
        self.start = start
        self.end = end
        self.plan = plan
        self.task = task


class LogSource(DataSource):
    """Options: `data_dir`, `log` (address), `signals` (socket path), `batch_events`, `parallelism`, `forwarding`."""

    @classmethod
    def name(cls) -> str:
        return "culver"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802
        return LogStreamReader(self.options)


class LogStreamReader(DataSourceStreamReader):
    """Plans batches in one process beside the driver; `read` runs in the workers."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._data_dir = options["data_dir"]
        self._log = options["log"]
        self._signals = options["signals"]
        self._batch_events = int(options["batch_events"])
        self._parallelism = int(options["parallelism"])
        self._forwarding = options["forwarding"]
        self._warm = False
        self._batch: tuple[int, float] | None = None  # events of the batch under way, and when it began

    def initialOffset(self) -> BatchOffset:  # noqa: N802
        head = _read_head(self._data_dir)
        return {
            "offset": head.frontier, "index_version": head.index_version, "slices": head.slices, "start_up": 0
        }  # fmt: skip

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._batch_events)

    def latestOffset(self, start: BatchOffset, limit: ReadLimit) -> BatchOffset:  # noqa: N802
        """Waits a little for events, so that an idle query asks twice a second instead of a hundred times.

        The first batch of a new run has no new events: it makes Spark plan and compile, and a worker load, before an
        event waits for that. It also fills a hole that a damaged or lost notification file left.

        Spark asks when the last batch is committed, so this also times batches.
        """
        if self._batch is not None:
            events, began = self._batch
            self._batch = None
            seconds = time.monotonic() - began
            _signal_sender(self._signals).send("batch", events=events, seconds=seconds)
        if not self._warm:
            self._warm = True
            return {**start, "start_up": start["start_up"] + 1}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._batch_events
        head_file, watch = _head_file(self._data_dir), _head_watch(self._data_dir)
        began = time.monotonic()
        while True:
            head = head_file.read()
            if head is not None and head.log_end > start["offset"]:
                end = min(head.log_end, start["offset"] + most)
                self._batch = end - start["offset"], time.monotonic()
                return {
                    **start, "offset": end, "index_version": head.index_version, "slices": head.slices,
                    "load": _load_file(self._data_dir).read().to_json(),
                }  # fmt: skip
            remaining = began + _WAIT_SECONDS - time.monotonic()
            if remaining <= 0:
                return start
            watch.wait(remaining)

    def partitions(self, start: BatchOffset, end: BatchOffset) -> list[InputPartition]:
        first, last = start["offset"], end["offset"]
        slices = end.get("slices", 1)
        load = LoadReport.from_json(end["load"]) if "load" in end else LoadReport()
        tasks = min(slices, self._cores(load))
        plan = BatchPlan(end["index_version"], slices, tasks, load, self._forwarding)
        if first == last:
            if start == end:
                return []
            missing_from = _read_head(self._data_dir).frontier
            return [RangePartition(first, first, plan), *self._ranges(missing_from, first, plan)]
        return self._ranges(first, last, plan)

    def _cores(self, load: LoadReport) -> int:
        """The cores of the executors by the last report; before one, those of the master's address, or a guess."""
        return load.cores or self._parallelism

    def _ranges(self, first: int, last: int, plan: BatchPlan) -> list[InputPartition]:
        if first >= last:
            return []
        cores, events = -(-self._cores(plan.load) // plan.tasks), last - first
        count = max(1, min(cores, events // _SMALLEST_RANGE), min(cores * _TURNS, events // _LARGE_RANGE))
        bounds = [first + (last - first) * i // count for i in range(count + 1)]
        ranges = itertools.pairwise(bounds)
        return [RangePartition(low, high, plan, task) for low, high in ranges for task in range(plan.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        signals = _signal_sender(self._signals)
        if partition.start == partition.end:
            _warm_up()
            signals.send("warm")
            return
        write = functools.partial(_write, SiteFiles(Path(self._data_dir)), partition, signals)
        # One thread writes a block while this one matches the next. Spark does not run a committed batch again, so
        # all blocks must be on disk by then.
        with ThreadPoolExecutor(1) as writer:  # starts no thread before it gets a block
            writing: Future[None] | None = None
            for block in self._blocks(partition):
                if writing is not None:
                    writing.result()
                if block.end < partition.end:
                    writing = writer.submit(write, block)
                else:
                    write(block)
                yield _manifest_row(block)

    def _blocks(self, partition: RangePartition) -> "Iterator[Notifications | Partial]":
        """The results of each block: of all slices, or of a task's share of them."""
        processor, plan = _processor(self._data_dir, self._log), partition.plan
        if plan.tasks == 1:
            return processor.process(partition.start, partition.end, plan)
        return processor.process_share(partition.start, partition.end, plan, partition.task)


def _write(
    files: SiteFiles, partition: RangePartition, signals: SignalSender, block: "Notifications | Partial"
) -> None:
    written = _written()
    block = replace(block, work=written.tell(block.work))
    if isinstance(block, Notifications):
        began = time.perf_counter()
        path = write_notifications(files.notifications, block, durable=True)
        written.add(path.stat().st_size, time.perf_counter() - began)
        signals.send("notifications")
    else:
        from culver.pipeline.partial_exchange import clear_partials, put_partial

        joined = put_partial(files.partials, block, partition.task, partition.plan, _grouping())
        if joined is not None:
            _write(files, partition, signals, joined)
            clear_partials(files.partials, joined, partition.plan)


def _manifest_row(block: "Notifications | Partial") -> pa.RecordBatch:
    pairs = len(block.rows) if isinstance(block, Notifications) else block.pairs
    row = (block.start, block.end, block.index_version, pairs)
    return pa.RecordBatch.from_arrays([pa.array([value], pa.int64()) for value in row], schema=_ARROW_SCHEMA)


# One of each per worker process, kept between tasks.


@functools.cache
def _head_file(data_dir: str) -> HeadFile:
    return HeadFile.open(SiteFiles(Path(data_dir)).head)


def _read_head(data_dir: str) -> Head:
    """The head, even if the site is just writing it. Raises RuntimeError where there is none."""
    for _ in range(_HEAD_TRIES):
        if (head := _head_file(data_dir).read()) is not None:
            return head
        time.sleep(0.001)
    raise RuntimeError(f"{SiteFiles(Path(data_dir)).head} holds no head; the site writes one when it starts")


@functools.cache
def _load_file(data_dir: str) -> LoadFile:
    return LoadFile(SiteFiles(Path(data_dir)).load)


@functools.cache
def _head_watch(data_dir: str) -> FileWatch:
    return FileWatch(SiteFiles(Path(data_dir)).head)


def _warm_up() -> None:
    from culver.pipeline.range_processor import warm_up_operators

    warm_up_operators()


@functools.cache
def _written() -> WrittenFiles:
    return WrittenFiles()


@functools.cache
def _grouping() -> "Grouping":
    """For the thread that joins while another one matches."""
    from culver.matching import Grouping

    return Grouping()


@functools.cache
def _processor(data_dir: str, log: str) -> "RangeProcessor":
    # Imported here, because only workers match, and four other processes load this module before the first batch.
    from culver.pipeline.range_processor import RangeProcessor
    from culver.plugins import open_reader

    return RangeProcessor(SiteFiles(Path(data_dir)).index, open_reader(log), _head_file(data_dir).read)


@functools.cache
def _signal_sender(path: str) -> SignalSender:
    return SignalSender(path)
