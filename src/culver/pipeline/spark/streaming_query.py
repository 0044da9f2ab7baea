"""Starts the Spark session and the streaming query in it, on a virtual machine that already runs."""

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
    """Start both, with the settings of the virtual machine."""
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
    """Start and load a Python worker while the session and the query start, which takes as long."""
    context.parallelize([0], 1).foreachPartition(_nothing)


def _nothing(rows: Iterable[int]) -> None:
    list(rows)
