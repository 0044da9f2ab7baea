"""The data source `fragile`: the sink `culver` on workers that die in the middle of a task, and drivers that forget.

With the option `dieAfter`, the first attempt of each task kills its own process with `kill -9` after so many rows.
With `failCommits`, a directory, the first commit of each batch fails.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from culver.spark.sink import batch_writer, stream_writer

_OWN = ("dieafter", "failcommits")


def dying(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    for batch in batches:
        if context is not None and context.attemptNumber() == 0 and batch.num_rows > rows:
            yield batch.slice(0, rows)
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
        rows -= batch.num_rows


class FragileSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "fragile"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return FragileBatchWriter(batch_writer(self._others(), schema, overwrite), self._rows())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        directory = self.options.get("failCommits")
        return FragileStreamWriter(stream_writer(self._others(), schema, overwrite), self._rows(), directory)

    def _others(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() not in _OWN}

    def _rows(self) -> int:
        return int(self.options.get("dieAfter", 2**31))


class FragileBatchWriter(DataSourceArrowWriter):
    def __init__(self, writer: Any, rows: int) -> None:
        self._writer = writer
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return self._writer.write(dying(iterator, self._rows))


class FragileStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: Any, rows: int, directory: str | None) -> None:
        self._writer = writer
        self._rows = rows
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return self._writer.write(dying(iterator, self._rows))

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        if self._directory is not None:
            mark = Path(self._directory) / f"committing-{batchId}"
            if not mark.exists():
                mark.touch()
                raise RuntimeError("the driver fails before it commits")
