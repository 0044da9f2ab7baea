"""The sink `culver`: rows are published as events, by every task for itself, and each once.

Row r of partition p in batch b has the number (b, r) of the publisher `NAME/p`:

    sequence   | batch id | row number |
                 31 bit     32 bit

A task that Spark runs again, or twice at the same time, publishes under the same numbers, and the site stores what it
does not have yet. So does a whole batch, if its rows come in the same partitions and, within each, in the same order
or sorted.
"""

import secrets
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from culver.errors import InvalidConfiguration, InvalidRequest
from culver.spark.row_events import check_columns, event_texts, sorted_texts
from culver.spark.site_access import SiteAccess
from culver.spark.source_options import MOST_BATCH, SinkOptions, sink_options

_ROW_BITS = 32
_REQUEST_BYTES = 4 * 1024 * 1024

# What Spark tells the tasks of a streaming query.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class PublishedRows(WriterCommitMessage):
    """What a task has published. `repeated` rows were there from an earlier attempt."""

    def __init__(self, rows: int, repeated: int) -> None:
        self.rows = rows
        self.repeated = repeated


class BatchWriter(DataSourceArrowWriter):
    """Made once for a job, and sent to its tasks. Without the option `publisher`, each job has a publisher of its
    own."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._publisher = options.publisher or f"spark-{secrets.token_hex(12)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:
        return _publish(
            self._options, self._publisher, self._options.batch, _context().partitionId(), iterator
        )


class StreamWriter(DataSourceStreamArrowWriter):
    """Without the option `publisher`, the query's id is used, which is the same for the life of its checkpoint."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedRows:
        context = _context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise InvalidConfiguration(
                "this version of Spark does not tell its tasks the query and the batch"
            )
        publisher = self._options.publisher or f"spark-{query}"
        return _publish(self._options, publisher, int(batch), context.partitionId(), iterator)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Raises InvalidConfiguration, before the job starts."""
    return BatchWriter(_checked(options, schema, overwrite, is_streaming=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Raises InvalidConfiguration, before the query starts."""
    return StreamWriter(_checked(options, schema, overwrite, is_streaming=True))


def _checked(
    given: Mapping[str, str], schema: StructType, overwrite: bool, *, is_streaming: bool
) -> SinkOptions:
    options = sink_options(given, is_streaming=is_streaming)
    if overwrite:
        wanted = 'outputMode("append")' if is_streaming else 'mode("append")'
        raise InvalidConfiguration(f"published events cannot be overwritten: use {wanted}", field="mode")
    check_columns(schema, options.json)
    return options


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    return context


def _publish(
    options: SinkOptions, publisher: str, batch: int, partition: int, batches: Iterator[pa.RecordBatch]
) -> PublishedRows:
    """Publish the rows of one task. Memory is bounded: one batch of Spark, and one request."""
    if batch > MOST_BATCH:
        raise InvalidRequest(f"batch {batch} is beyond {MOST_BATCH}", field="batch")
    site = SiteAccess(options.url, options.wait_seconds)
    name = f"{publisher}/{partition}"
    texts = event_texts(batches, options.json)
    if options.order == "sorted":
        texts = sorted_texts(texts)
    rows = repeated = 0
    for request in _requests(texts, options.events_per_request):
        if rows + len(request) > 1 << _ROW_BITS:
            raise InvalidRequest(f"a partition has more than {1 << _ROW_BITS} rows: use more partitions")
        sequence = (batch << _ROW_BITS) + rows
        repeated += _send(site, request, name, sequence)
        rows += len(request)
    return PublishedRows(rows, repeated)


def _send(site: SiteAccess, request: list[bytes], publisher: str, sequence: int) -> int:
    """How many of these events the site had stored before."""
    answer = site.ask(
        lambda client: client.publish_encoded_once(request, publisher=publisher, sequence=sequence)
    )
    return answer.repeated or 0


def _requests(texts: Iterator[bytes], most: int) -> Iterator[list[bytes]]:
    """So many events at a time, or fewer where they are large. One text is read ahead of a request, never more."""
    request: list[bytes] = []
    size = 0
    for text in texts:
        if request and (len(request) == most or size + len(text) > _REQUEST_BYTES):
            yield request
            request, size = [], 0
        request.append(text)
        size += len(text)
    if request:
        yield request
