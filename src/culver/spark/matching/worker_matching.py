"""What runs in Spark's Python workers: matches the events of a partition, which come as Arrow batches."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles, TaskContext

from culver.errors import Unavailable
from culver.matcher import Matcher
from culver.spark.matching.filter_package import OpenMatchers, package_name
from culver.spark.matching.filter_server import FilterAddress

# A batch of results has about so many ids: some megabytes.
_IDS_AT_A_TIME = 1 << 20
_FIRST_ROWS = 256
_MOST_ROWS = 1 << 14

_open_matchers = OpenMatchers()


class ShippedFilters(NamedTuple):
    """Filters that never change. Spark has brought their package to this machine."""

    digest: str

    def matcher(self) -> Matcher:
        return _open_matchers.get(self.digest, self._fetch)

    def _fetch(self, path: Path) -> None:
        shutil.copyfile(SparkFiles.get(package_name(self.digest)), path)


class ServedFilters(NamedTuple):
    """Filters that are replaced while the query runs. All tasks of a micro-batch get the same version."""

    address: FilterAddress

    def matcher(self) -> Matcher:
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise Unavailable("filters that can be replaced need a streaming query in micro-batches")
        digest = self.address.version(query, int(batch))
        return _open_matchers.get(digest, lambda path: self.address.fetch(digest, path))


class WorkerMatching:
    """The function for `DataFrame.mapInArrow`. It adds a column `ids`: a list of the ids that each event matches, or
    with `explode` one id, and a row for each. `timezone` is that of timestamps without one."""

    def __init__(
        self, filters: ShippedFilters | ServedFilters, ids: str, explode: bool, timezone: str
    ) -> None:
        self._filters = filters
        self._ids = ids
        self._explode = explode
        self._timezone = timezone

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = self._filters.matcher()
        rows = _FIRST_ROWS
        for batch in batches:
            begin = 0
            while begin < batch.num_rows:
                events = batch.slice(begin, rows)
                lists = matcher.match(events, timezone=self._timezone)
                yield self._result(events, lists)
                begin += rows
                # Memory stays bounded, however many filters an event matches.
                per_row = max(1, len(lists.values)) / len(lists)
                rows = max(1, min(_MOST_ROWS, 4 * rows, int(_IDS_AT_A_TIME / per_row)))

    def _result(self, events: pa.RecordBatch, lists: pa.Array) -> pa.RecordBatch:
        names = [*events.schema.names, self._ids]
        if not self._explode:
            return pa.RecordBatch.from_arrays([*events.columns, lists], names)
        places = pc.list_parent_indices(lists)
        repeated = [column.take(places) for column in events.columns]
        return pa.RecordBatch.from_arrays([*repeated, lists.flatten()], names)
