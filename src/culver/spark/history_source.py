"""`spark.read.format("culver")`: what the log of a site still has, between two offsets or times, as a batch.

The range is fixed when the job is planned, and cut into partitions of equal numbers of offsets. Nobody's mailbox
changes, and nothing is kept from being trimmed: a range that is trimmed before its task reads it fails the job.
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from culver.client import LogTable, SyncClient
from culver.errors import DataLoss, RequestRefused
from culver.spark.event_columns import EventColumns
from culver.spark.site_access import SiteAccess
from culver.spark.source_options import HistoryOptions, history_options

_PAGE_EVENTS = 10_000

logger = logging.getLogger(__name__)


class LogPart(InputPartition):
    """`[start, end)` of the log."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


def history_reader(options: Mapping[str, str], schema: StructType) -> "HistoryReader":
    return HistoryReader(history_options(options), EventColumns(schema))


class HistoryReader(DataSourceReader):
    """Plans in a process beside the driver; `read` runs in the workers."""

    def __init__(self, options: HistoryOptions, columns: EventColumns) -> None:
        self._options = options
        self._columns = columns
        self._link = SiteAccess(options.url, options.wait_seconds)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        bounds = self._link.ask(lambda client: client.log())
        start = self._offset(options.start, bounds.first_offset)
        end = min(self._offset(options.end, bounds.next_offset), bounds.next_offset)
        if start < bounds.first_offset:
            self._lose(
                f"the log of {options.url} begins at offset {bounds.first_offset}; the events from {start} up to "
                "there are no longer kept"
            )
            start = bounds.first_offset
        if options.filter is not None:  # a filter with an error is refused before tasks start
            self._link.ask(partial(self._page, start, start))
        size = options.events_per_partition
        return [LogPart(at, min(at + size, end)) for at in range(start, end, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPart)
        return self._columns.batches(self._pages(partition), None)

    def _pages(self, partition: LogPart) -> Iterator[LogTable]:
        at = partition.start
        while at < partition.end:
            try:
                page = self._link.ask(partial(self._page, at, partition.end))
            except RequestRefused as exc:
                if exc.details.get("code") != "gone":
                    raise
                self._lose(str(exc))
                at = exc.details["first_offset"]
                continue
            for gap in page.gaps:
                self._lose(f"the events from offset {gap.start} up to {gap.end} are damaged in the log")
            yield page
            at = page.next

    def _page(self, start: int, end: int, client: SyncClient) -> LogTable:
        columns = self._columns
        return client.log_table(
            start,
            end,
            _PAGE_EVENTS,
            filter_text=self._options.filter,
            attributes=columns.attributes,
            include=columns.include,
        )

    def _offset(self, position: int | datetime | None, otherwise: int) -> int:
        if not isinstance(position, datetime):
            return otherwise if position is None else position
        offset = self._link.ask(lambda client: client.log(position)).offset
        assert isinstance(offset, int)
        return offset

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}; the option failOnDataLoss=false goes on without them")
        logger.warning("%s", what)
