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

# A batch of results has at most so many ids and bytes, unless one event has more: an Arrow array ends at 2 GiB.
_MOST_IDS = 1 << 20
_MOST_BYTES = 1 << 26
_MOST_ROWS = 1 << 13
# A piece has as many rows as its predecessor's matches advise. Where all at once every event matches every filter, it
# has so many matches, whose numbers take two gigabytes.
_MOST_MATCHES = 1 << 28

_open_matchers = OpenMatchers()


class ShippedFilters(NamedTuple):
    """Filters that never change. Spark has brought their package to this machine."""

    digest: str

    def matcher(self) -> Matcher:
        return _open_matchers.get(self.digest, self._fetch)

    def _fetch(self, path: Path) -> None:
        shutil.copyfile(SparkFiles.get(package_name(self.digest)), path)


class CarriedFilters(NamedTuple):
    """Filters that never change, whose package travels within the query."""

    digest: str
    package: bytes

    def matcher(self) -> Matcher:
        return _open_matchers.get(self.digest, lambda path: path.write_bytes(self.package))


class ServedFilters(NamedTuple):
    """Filters that are replaced while the query runs. All tasks of a micro-batch get the same version."""

    address: FilterAddress
    use: int

    def matcher(self) -> Matcher:
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise Unavailable("filters that can be replaced need a streaming query in micro-batches")
        digest = self.address.version(query, int(batch), self.use)
        return _open_matchers.get(digest, lambda path: self.address.fetch(digest, path))


class WorkerMatching:
    """The function for `DataFrame.mapInArrow`. It adds a column `ids`: a list of the ids that each event matches, or
    with `explode` one id, and a row for each. `timezone` is that of timestamps without one."""

    def __init__(
        self,
        filters: ShippedFilters | CarriedFilters | ServedFilters,
        ids: str,
        explode: bool,
        timezone: str,
    ) -> None:
        self._filters = filters
        self._ids = ids
        self._explode = explode
        self._timezone = timezone

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = self._filters.matcher()
        most_rows = max(1, min(_MOST_ROWS, _MOST_MATCHES // max(1, len(matcher))))
        rows = 1
        for batch in batches:
            begin = 0
            while begin < batch.num_rows:
                # As a table, because the lists of all rows need not fit into one array.
                table = pa.Table.from_batches([batch.slice(begin, rows)])
                found = 0
                for lists in matcher.match(table, timezone=self._timezone).chunks:
                    found += len(lists.values)
                    yield from self._results(batch.slice(begin, len(lists)), lists)
                    begin += len(lists)
                per_row = max(1, found) / table.num_rows
                rows = max(1, min(most_rows, 16 * rows, int(_MOST_IDS / per_row)))

    def _results(self, events: pa.RecordBatch, lists: pa.ListArray) -> Iterator[pa.RecordBatch]:
        """Halves the events until the results of each part fit; with `explode`, those of one event are cut, too."""
        ids = lists.flatten()
        copies = pc.max(pc.list_value_length(lists)).as_py() if self._explode else 1
        fit = len(ids) <= _MOST_IDS and ids.nbytes + copies * events.nbytes <= _MOST_BYTES
        if not fit and events.num_rows > 1:
            half = events.num_rows // 2
            yield from self._results(events.slice(0, half), lists.slice(0, half))
            yield from self._results(events.slice(half), lists.slice(half))
        elif self._explode:
            each = 1 + events.nbytes + ids.nbytes // max(1, len(ids))
            step = len(ids) if fit else min(_MOST_IDS, max(1, _MOST_BYTES // each))
            places = pc.list_parent_indices(lists)
            for begin in range(0, len(ids), max(1, step)):
                yield self._batch(events.take(places.slice(begin, step)), ids.slice(begin, step))
        else:
            yield self._batch(events, lists)

    def _batch(self, events: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*events.columns, ids], [*events.schema.names, self._ids])
