"""The Spark session and the streaming query in it, on a virtual machine that runs already."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from culver.pipeline.spark.cluster.masters import parallelism
from culver.pipeline.spark.log_source import LogSource


def start_query(
    options: Mapping[str, Any], progress: Callable[[str], None]
) -> tuple[SparkSession, StreamingQuery]:
    """Start both; the settings are those with which the virtual machine was started."""
    context = SparkContext.getOrCreate()
    threading.Thread(target=_start_worker, args=(context,), daemon=True).start()
    session = SparkSession.builder.getOrCreate()
    progress("starting the streaming query")
    session.dataSource.register(LogSource)
    query = (
        session.readStream.format("culver")
        .option("data_dir", options["data_dir"])
        .option("log", options["log"])
        .option("signals", options["signals"])
        .option("batch_events", str(options["batch_events"]))
        .option("forwarding", options["forwarding"])
        .option("parallelism", str(parallelism(options["master"])))
        .load()
        .writeStream.format("noop")
        .queryName("culver")
        .option("checkpointLocation", options["checkpoint"])
        .start()
    )
    local = options["master"].startswith("local")
    progress("warming up the workers" if local else "waiting for executors of the cluster")
    return session, query


def _start_worker(context: SparkContext) -> None:
    """Have a Python worker started and loaded while the session and the query are made, which takes as long."""
    context.parallelize([0], 1).foreachPartition(_nothing)


def _nothing(rows: Iterable[int]) -> None:
    list(rows)
