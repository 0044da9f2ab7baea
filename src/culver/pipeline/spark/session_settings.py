"""Spark's settings for small, quick batches; `docs/spark.md` gives the reasons. Does not import PySpark."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS = {
    # Metadata files of a batch: no checksum companions, no process forked for each permission.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Python workers: forked from a loaded process, kept, and reached without TCP.
    "spark.python.daemon.module": "culver.pipeline.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    # The worker that is started beforehand is one for the query only if both have the same environment.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # The source waits for events by itself.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.noDataProgressEventInterval": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # Stopping a query puts a long error text through a recursive pattern.
    "spark.driver.extraJavaOptions": "-Xss8m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",  # the interface is for looking only
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # streaming ignores it, and warns at every start where it is on
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "WARN",
    "spark.locality.wait": "0s",
}

_CLUSTER_SETTINGS = {
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
    # Somebody waits for every small batch, so a task that one machine has lost runs on another at once.
    "spark.task.maxFailures": "8",
    "spark.excludeOnFailure.enabled": "false",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
}


# One executor at the start instead of all that there are; after that `executors` says how many. Spark's own rule, by
# how long tasks wait and executors idle, never applies.
_ALLOCATION = "spark.dynamicAllocation."
_ALLOCATION_SETTINGS = {
    f"{_ALLOCATION}enabled": "true",
    f"{_ALLOCATION}shuffleTracking.enabled": "true",
    f"{_ALLOCATION}minExecutors": "1",
    f"{_ALLOCATION}schedulerBacklogTimeout": "365d",
    f"{_ALLOCATION}executorIdleTimeout": "365d",
    "spark.executor.cores": "1",
}


def executors_follow_slices(master: str, elastic: bool, extra: Mapping[str, str]) -> bool:
    """Whether Culver decides how many executors there are: on a cluster, if slices come and go, and if no setting in
    `extra` lets Spark decide."""
    return (
        elastic and not master.startswith("local") and not any(name.startswith(_ALLOCATION) for name in extra)
    )


def session_settings(
    master: str, work_dir: Path, extra: Mapping[str, str], *, allocate: bool = False
) -> dict[str, str]:
    """All settings of a session. `extra` wins over Culver's own settings, but its options for Java are added to them.
    With `allocate`, `executors` decides how many executors there are."""
    settings = {
        **SETTINGS,
        "spark.master": master,
        "spark.app.name": "culver",
        "spark.local.dir": str(work_dir / "local"),
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
    }
    if is_local(master):
        # Spark finds its own address by a look-up that can hang or name an interface that is not there.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if not master.startswith("local"):
        settings |= _CLUSTER_SETTINGS
    if allocate:
        settings |= _ALLOCATION_SETTINGS
    options = " ".join(
        filter(None, [settings["spark.driver.extraJavaOptions"], extra.get("spark.driver.extraJavaOptions")])
    )
    return {**settings, **extra, "spark.driver.extraJavaOptions": options}


def is_local(master: str) -> bool:
    """Whether everything is on this machine, reached by its loopback address."""
    return master.startswith("local") or urlsplit(master).hostname in ("127.0.0.1", "localhost")
