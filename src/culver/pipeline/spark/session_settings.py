"""Spark's settings for small, quick batches (`docs/spark.md` gives the reasons), and addresses of its masters. Does
not import PySpark."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from culver.errors import InvalidConfiguration
from culver.host_names import is_loopback

_MASTERS = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|k8s://.+|spark://[^/,\s]+:\d+(,[^/,\s]+:\d+)*")
_CONNECT_SECONDS = 3.0

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


# One executor at the start instead of all that there are; after that `driver.Executors` says how many. Spark's own
# rule, by how long tasks wait and executors idle, never applies.
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
    With `allocate`, `driver.Executors` decides how many executors there are."""
    settings = {
        **SETTINGS,
        "spark.master": master,
        "spark.app.name": "culver",
        "spark.local.dir": str(work_dir / "local"),
        "spark.sql.warehouse.dir": str(work_dir / "warehouse"),
    }
    # Spark finds its own address by a look-up that can hang or name an interface that is not there.
    if is_local(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    elif (address := address_towards(master)) is not None:
        settings["spark.driver.host"] = address
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
    return master.startswith("local") or is_loopback(urlsplit(master).hostname or "")


def check_master(master: str) -> None:
    """Raises InvalidConfiguration for an address that Spark does not understand."""
    if not _MASTERS.fullmatch(master):
        raise InvalidConfiguration(
            f"{master!r} is not the address of a Spark master; it is local[*], spark://HOST:PORT, yarn or k8s://...",
            field="pipeline.spark_master",
        )


def trouble_with(master: str) -> str | None:
    """Why a standalone master cannot be reached, as a sentence; None if one of its addresses answers. Spark itself
    retries for a minute, and then writes a page to its log.

    Blocks for some seconds at most. It cannot check YARN and Kubernetes, and returns None for them."""
    if not master.startswith("spark://"):
        return None
    reasons = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
            return None
        except (OSError, OverflowError) as exc:
            reasons.append(f"{host}:{port}: {getattr(exc, 'strerror', None) or exc}")
    return f"no Spark master answers at {master} ({'; '.join(reasons)})"


def address_towards(master: str) -> str | None:
    """The address of this machine from which it reaches a standalone master, so that others there can reach it; None
    for other masters, or without a route. Sends nothing to the master."""
    if master.startswith("spark://"):
        for address in _addresses(master):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect(address)
                    return str(probe.getsockname()[0])
                except (OSError, OverflowError):
                    continue
    return None


def _addresses(master: str) -> list[tuple[str, int]]:
    parts = (address.rpartition(":") for address in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


def parallelism(master: str) -> int:
    """How many ranges a large batch is cut into: the cores of a local master, or a guess for a cluster until it has
    reported its cores."""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster") and len(inside) == 3:
        return max(1, int(inside[0]) * int(inside[1]))
    if master.startswith("local"):
        return int(inside[0]) if inside[0].isdigit() else len(os.sched_getaffinity(0)) if inside[0] else 1
    return 8
