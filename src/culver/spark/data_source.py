"""The data source `culver`: what Spark asks it for, and who does that.

    spark.readStream   stream_source    a durable subscription, or a filter while the query runs
    spark.read         history_source   the log between two offsets or times
    df.write, df.writeStream   sink     rows as events

The modules are imported where they are needed: Spark sends this class to every process that plans, reads or writes.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "offset BIGINT, delivery_id STRING, received TIMESTAMP, event STRING"


def register(spark: "SparkSession") -> None:
    """Make `format("culver")` known to a session, also to one of Spark Connect."""
    spark.dataSource.register(CulverDataSource)


class CulverDataSource(DataSource):
    """The options are listed in docs/spark-source.md and docs/spark-sink.md."""

    @classmethod
    def name(cls) -> str:
        return "culver"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from culver.spark.history_source import history_reader

        return history_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from culver.spark.stream_source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from culver.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from culver.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
