"""A Spark session for tests, on two cores. It takes 6 s to start, so the tests of a module share one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from culver.pipeline.spark.java import VirtualMachine, use_this_python
from culver.pipeline.spark.session_settings import session_settings

_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@contextmanager
def spark_session(work_dir: Path, master: str = "local[2]", **settings: str) -> Iterator[SparkSession]:
    """The only session of this process. Its virtual machine ends with the context, so another may follow."""
    before = dict(os.environ)
    use_this_python()
    every = {
        **session_settings(master, work_dir, {}),
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        **settings,
    }
    # The engine's own daemon of workers imports what only the engine needs.
    del every["spark.python.daemon.module"]
    machine = VirtualMachine(every)
    try:
        machine.connect()
        builder = SparkSession.builder
        for name, value in every.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            _forget_gateway()
    finally:
        machine.close()
        os.environ.clear()
        os.environ.update(before)


def _forget_gateway() -> None:
    context: Any = SparkContext
    if context._gateway is not None:
        context._gateway.shutdown()
    context._gateway = context._jvm = None
