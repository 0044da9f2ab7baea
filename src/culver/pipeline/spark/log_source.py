"""The streaming data source over the publication log, which matches where it reads.

An offset of the query is (log offset, index version and its slices, last report of the sets' load). Spark writes it
to its checkpoint before a batch runs, so a batch that runs again after a crash covers the same events with the same
index, and sends each event to the same slice. A task takes one range, in some of the slices or in all, through
`RangeProcessor`; the rows that it returns only say what it did.
"""

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from culver.pipeline.batch_plan import BatchPlan, LoadFile, LoadReport
from culver.pipeline.head import Head, HeadFile
from culver.pipeline.notifications import Notifications, write_notifications
from culver.pipeline.operator_work import WrittenFiles
from culver.pipeline.site_files import SiteFiles
from culver.pipeline.spark.session_settings import parallelism
from culver.pipeline.spark.signals import FileWatch, SignalSender

if TYPE_CHECKING:
    from culver.matching import Grouping
    from culver.pipeline.partial_exchange import Partial
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
        return "culver-log"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802
        return LogStreamReader(self.options)


def start_query(
    options: Mapping[str, Any], progress: Callable[[str], None]
) -> tuple[SparkSession, StreamingQuery]:
    """Start the Spark session and the query in it, on a virtual machine that already runs, with its settings."""
    context = SparkContext.getOrCreate()
    # A Python worker starts and loads while the session and the query start, which takes as long.
    warm_up = functools.partial(context.parallelize([0], 1).foreachPartition, list)
    threading.Thread(target=warm_up, daemon=True).start()
    session = SparkSession.builder.getOrCreate()
    progress("starting the streaming query")
    session.dataSource.register(LogSource)
    query = (
        session.readStream.format("culver-log")
        .option("data_dir", options["data_dir"])
        .option("log", options["log"])
        .option("signals", options["signals"])
        .option("batch_events", str(options["batch_events"]))
        .option("forwarding", options["forwarding"])
        .option("parallelism", str(parallelism(options["master"])))
        .load()
        .writeStream.format("noop")
        .queryName("culver-log")
        .option("checkpointLocation", options["checkpoint"])
        .start()
    )
    local = options["master"].startswith("local")
    progress("warming up the workers" if local else "waiting for executors of the cluster")
    return session, query


class LogStreamReader(DataSourceStreamReader):
    """Plans batches in one process beside the driver; `read` runs in the workers."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._names = options["data_dir"], options["log"], options["signals"]
        self._batch_events = int(options["batch_events"])
        self._parallelism = int(options["parallelism"])
        self._forwarding = options["forwarding"]
        self._warm = False
        self._batch: tuple[int, float] | None = None  # events of the batch under way, and when it began

    @property
    def _process(self) -> "_Process":
        return _process(*self._names)  # not a member, because Spark sends this reader to its workers

    def initialOffset(self) -> BatchOffset:  # noqa: N802
        head = self._process.read_head()
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
            (events, began), self._batch = self._batch, None
            self._process.signals.send("batch", events=events, seconds=time.monotonic() - began)
        if not self._warm:
            self._warm = True
            return {**start, "start_up": start["start_up"] + 1}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._batch_events
        process = self._process
        began = time.monotonic()
        while True:
            head = process.head_file.read()
            if head is not None and head.log_end > start["offset"]:
                end = min(head.log_end, start["offset"] + most)
                self._batch = end - start["offset"], time.monotonic()
                return {
                    **start, "offset": end, "index_version": head.index_version, "slices": head.slices,
                    "load": msgspec.to_builtins(LoadFile(process.files.load).read()),
                }  # fmt: skip
            remaining = began + _WAIT_SECONDS - time.monotonic()
            if remaining <= 0:
                return start
            process.head_watch.wait(remaining)

    def partitions(self, start: BatchOffset, end: BatchOffset) -> list[InputPartition]:
        first, last = start["offset"], end["offset"]
        slices = end.get("slices", 1)
        load = msgspec.convert(end.get("load", {}), LoadReport)
        tasks = min(slices, self._cores(load))
        plan = BatchPlan(end["index_version"], slices, tasks, load, self._forwarding)
        if first == last:
            if start == end:
                return []
            missing_from = self._process.read_head().frontier
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
        process = self._process
        if partition.start == partition.end:
            from culver.pipeline.range_processor import warm_up_operators

            warm_up_operators()
            process.signals.send("warm")
            return
        # One thread writes a block while this one matches the next. Spark does not run a committed batch again, so
        # all blocks must be on disk by then.
        with ThreadPoolExecutor(1) as writer:  # starts no thread before it gets a block
            writing: Future[None] | None = None
            for block in self._blocks(partition):
                if writing is not None:
                    writing.result()
                if block.end < partition.end:
                    writing = writer.submit(process.write, block, partition)
                else:
                    process.write(block, partition)
                yield _manifest_row(block)

    def _blocks(self, partition: RangePartition) -> "Iterator[Notifications | Partial]":
        """The results of each block: of all slices, or of a task's share of them."""
        processor, plan = self._process.processor, partition.plan
        if plan.tasks == 1:
            return processor.process(partition.start, partition.end, plan)
        return processor.process_task(partition.start, partition.end, plan, partition.task)


def _manifest_row(block: "Notifications | Partial") -> pa.RecordBatch:
    pairs = len(block.rows) if isinstance(block, Notifications) else block.pairs
    row = (block.start, block.end, block.index_version, pairs)
    return pa.RecordBatch.from_arrays([pa.array([value], pa.int64()) for value in row], schema=_ARROW_SCHEMA)


class _Process:
    """What a process of Spark keeps from one task or batch to the next, made when it is first used. The imports come
    late because only workers match, and four other processes load this module before the first batch."""

    def __init__(self, data_dir: str, log: str, signals: str) -> None:
        self.files = SiteFiles(Path(data_dir))
        self.signals = SignalSender(signals)
        self.written = WrittenFiles()
        self._log = log

    @functools.cached_property
    def head_file(self) -> HeadFile:
        return HeadFile.open(self.files.head)

    @functools.cached_property
    def head_watch(self) -> FileWatch:
        return FileWatch(self.files.head)

    @functools.cached_property
    def grouping(self) -> "Grouping":
        """For the thread that joins while another one matches."""
        from culver.matching import Grouping

        return Grouping()

    @functools.cached_property
    def processor(self) -> "RangeProcessor":
        from culver.pipeline.range_processor import RangeProcessor
        from culver.plugins import open_reader

        return RangeProcessor(self.files.index, open_reader(self._log), self.head_file.read)

    def read_head(self) -> Head:
        """The head, even if the site is just writing it. Raises RuntimeError where there is none."""
        for _ in range(_HEAD_TRIES):
            if (head := self.head_file.read()) is not None:
                return head
            time.sleep(0.001)
        raise RuntimeError(f"{self.files.head} holds no head; the site writes one when it starts")

    def write(self, block: "Notifications | Partial", partition: RangePartition) -> None:
        """Put the result of a block where the site, or the other tasks, find it."""
        block = replace(block, work=self.written.tell(block.work))
        if isinstance(block, Notifications):
            began = time.perf_counter()
            path = write_notifications(self.files.notifications, block, durable=True)
            self.written.add(path.stat().st_size, time.perf_counter() - began)
            self.signals.send("notifications")
            return
        from culver.pipeline.partial_exchange import clear_partials, put_partial

        joined = put_partial(self.files.partials, block, partition.task, partition.plan, self.grouping)
        if joined is not None:
            self.write(joined, partition)
            clear_partials(self.files.partials, joined, partition.plan)


_process = functools.cache(_Process)
