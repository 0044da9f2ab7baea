"""The streaming data source over the publication log, which matches where it reads.

An offset of the query is (log offset, index version): Spark writes it to its checkpoint before a batch runs, so
a batch that is run again after a crash covers the same events with the same index. A task's whole work is one
range through `RangeProcessor`; the rows it returns only say what was done.
"""

import functools
import itertools
import os
import time
from collections.abc import Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from culver.log.files import FileLogReader
from culver.pipeline import notifications
from culver.pipeline.head import HeadFile
from culver.pipeline.notifications import Notifications
from culver.pipeline.ranges import RangeProcessor, SiteFiles, warm_up
from culver.pipeline.spark.signals import SignalSender

_WAIT_SECONDS = 0.5  # for the head to move, before Spark is told that there is nothing new
_POLL_SECONDS = 0.001
_IDLE_POLL_SECONDS = 0.004
_SMALLEST_RANGE = 2_000  # events; a smaller batch is not worth splitting among cores

SCHEMA = StructType(
    [StructField(name, LongType()) for name in ("start", "end", "index_version", "registrations", "pairs")]
)
_ARROW_SCHEMA = pa.schema([(field.name, pa.int64()) for field in SCHEMA.fields])

Offset = dict[str, int]


class Range(InputPartition):
    """`[start, end)` to be matched against an index version; an empty one only warms the worker up."""

    def __init__(self, start: int, end: int, index_version: int) -> None:
        super().__init__(None)
        self.start = start
        self.end = end
        self.index_version = index_version


class LogSource(DataSource):
    """Options: `data_dir`, `signals` (socket path), `batch_events`, `parallelism`."""

    @classmethod
    def name(cls) -> str:
        return "culver"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802
        return LogStreamReader(self.options)


class LogStreamReader(DataSourceStreamReader):
    """Planned in one process beside the driver; `read` runs in the workers."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._data_dir = options["data_dir"]
        self._signals = options["signals"]
        self._batch_events = int(options["batch_events"])
        self._parallelism = int(options["parallelism"])
        self._warm = False

    def initialOffset(self) -> Offset:  # noqa: N802
        head = _head_file(self._data_dir).read()
        if head is None:
            raise RuntimeError(f"the site has not written {SiteFiles(Path(self._data_dir)).head} yet")
        return {"offset": head.frontier, "index_version": head.index_version, "start_up": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._batch_events)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Waits a little for events, so that an idle query asks twice a second instead of a hundred times.

        The first batch of a new run has no new events: it makes Spark plan and compile, and a worker load,
        before an event waits for that. It also fills a hole that a damaged or lost notification file left.
        """
        if not self._warm:
            self._warm = True
            return {**start, "start_up": start["start_up"] + 1}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._batch_events
        head_file = _head_file(self._data_dir)
        began = time.monotonic()
        while True:
            head = head_file.read()
            if head is not None and head.log_end > start["offset"]:
                end = min(head.log_end, start["offset"] + most)
                return {**start, "offset": end, "index_version": head.index_version}
            waited = time.monotonic() - began
            if waited > _WAIT_SECONDS:
                return start
            time.sleep(_POLL_SECONDS if waited < 0.05 else _IDLE_POLL_SECONDS)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        first, last, version = start["offset"], end["offset"], end["index_version"]
        if first == last:
            if start == end:
                return []
            head = _head_file(self._data_dir).read()
            missing_from = head.frontier if head is not None else first
            return [Range(first, first, version), *self._ranges(missing_from, first, version)]
        return self._ranges(first, last, version)

    def _ranges(self, first: int, last: int, version: int) -> list[InputPartition]:
        if first >= last:
            return []
        count = max(1, min(self._parallelism, (last - first) // _SMALLEST_RANGE))
        bounds = [first + (last - first) * i // count for i in range(count + 1)]
        return [Range(low, high, version) for low, high in itertools.pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        signals = _signal_sender(self._signals)
        if partition.start == partition.end:
            warm_up()
            signals.send("warm")
            return
        directory = SiteFiles(Path(self._data_dir)).notifications
        blocks = _processor(self._data_dir).process(partition.start, partition.end, partition.index_version)
        # While one block goes to the disk, the next is matched. Spark will not run the batch again once it is
        # committed, so all must be on disk by then.
        with ThreadPoolExecutor(1) as writer:  # which starts no thread before it is given something
            writing: Future[None] | None = None
            for block in blocks:
                if writing is not None:
                    writing.result()
                if block.end < partition.end:
                    writing = writer.submit(_write, directory, block, signals)
                else:
                    _write(directory, block, signals)
                yield _manifest_row(block)


def _write(directory: Path, block: Notifications, signals: SignalSender) -> None:
    notifications.write(directory, block, durable=True)
    signals.send("notifications")


def _manifest_row(block: Notifications) -> pa.RecordBatch:
    row = (block.start, block.end, block.index_version, len(block.numbers), len(block.rows))
    return pa.RecordBatch.from_arrays([pa.array([value], pa.int64()) for value in row], schema=_ARROW_SCHEMA)


# One of each per worker process, kept between tasks.


@functools.cache
def _head_file(data_dir: str) -> HeadFile:
    return HeadFile.open(SiteFiles(Path(data_dir)).head)


@functools.cache
def _processor(data_dir: str) -> RangeProcessor:
    files = SiteFiles(Path(data_dir))
    return RangeProcessor(files.index, FileLogReader(files.log), _head_file(data_dir).read)


@functools.cache
def _signal_sender(path: str) -> SignalSender:
    return SignalSender(path)


def parallelism(master: str) -> int:
    """Into how many ranges a large batch is cut: the cores of a local master, or a guess for a cluster."""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster") and len(inside) == 3:
        return max(1, int(inside[0]) * int(inside[1]))
    if master.startswith("local"):
        return int(inside[0]) if inside[0].isdigit() else len(os.sched_getaffinity(0)) if inside[0] else 1
    return 8
