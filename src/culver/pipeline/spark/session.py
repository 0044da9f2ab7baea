"""The Spark session, with the settings that make small batches quick. `docs/spark.md` gives the reasons."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS = {
    # Metadata files of a batch: no checksum companions, no process forked for each permission.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Python workers: forked from a loaded process, kept, and reached without TCP.
    "spark.python.daemon.module": "culver.pipeline.spark.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # The source waits for events by itself.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.noDataProgressEventInterval": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # Stopping a query puts a long error text through a recursive pattern.
    "spark.driver.extraJavaOptions": "-Xss8m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # streaming does without it, and says so at every start
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "WARN",
    "spark.locality.wait": "0s",
}


def create_session(master: str, work_dir: Path) -> SparkSession:
    """Start the JVM. Set `PYSPARK_PYTHON` first: workers must run this Python, with these packages."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("culver")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if master.startswith("local"):
        # Spark finds its own address by a look-up that can hang or name an interface that is not there.
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    builder = builder.config("spark.local.dir", str(work_dir / "local"))
    builder = builder.config("spark.sql.warehouse.dir", str(work_dir / "warehouse"))
    return builder.getOrCreate()
