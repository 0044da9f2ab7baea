"""The data source `fragile`: the sink `culver` on workers that die in the middle of a task, and drivers that forget.

The first attempt of each task kills its own process with `kill -9` after so many rows as the option `dieAfter` says.
With `failCommits`, the first commit of each batch fails. Both leave marks in the directory of the option `marks`.
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

_OWN = ("dieafter", "failcommits", "marks")


def dying(batches: Iterator[pa.RecordBatch], rows: int, marks: str) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        if context.attemptNumber() == 0 and batch.num_rows > rows:
            yield batch.slice(0, rows)
            (Path(marks) / f"died-{context.partitionId()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
        rows -= batch.num_rows


class FragileSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "fragile"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return FragileBatchWriter(
            batch_writer(self._others(), schema, overwrite), self._rows(), self.options["marks"]
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        writer = stream_writer(self._others(), schema, overwrite)
        fails = "failCommits" in self.options
        return FragileStreamWriter(writer, self._rows(), self.options["marks"], fails)

    def _others(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() not in _OWN}

    def _rows(self) -> int:
        return int(self.options.get("dieAfter", 2**31))


class FragileBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, writer: Any, rows: int, marks: str) -> None:
        self._writer = writer
        self._rows = rows
        self._marks = marks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return self._writer.write(dying(iterator, self._rows, self._marks))


class FragileStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, writer: Any, rows: int, marks: str, fails: bool) -> None:
        self._writer = writer
        self._rows = rows
        self._marks = marks
        self._fails = fails

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return self._writer.write(dying(iterator, self._rows, self._marks))

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        mark = Path(self._marks) / f"committing-{batchId}"
        if self._fails and not mark.exists():
            mark.touch()
            raise RuntimeError("the driver fails before it commits")
