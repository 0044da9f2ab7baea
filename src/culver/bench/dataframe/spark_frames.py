"""Spark's contestants: `culver.spark.match`, and a join with the same conditions. They read Parquet, and Spark drops
their rows, complete, in its sink `noop`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import TYPE_CHECKING

from culver import spark as culver_spark
from culver.bench.dataframe.dataframe_plan import MatchingRate, Task
from culver.bench.dataframe.growing_rounds import measure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true",
    "-Darrow.enable_null_check_for_get=false",
)


def match_lists(task: Task) -> MatchingRate:
    with session() as spark:
        return _measured(
            task,
            lambda count: culver_spark.match(spark.read.parquet(task.events(count)), task.filters, ids="ids"),
            "sum(size(ids))",
        )


def match_exploded(task: Task) -> MatchingRate:
    with session() as spark:
        return _measured(
            task,
            lambda count: culver_spark.match(
                spark.read.parquet(task.events(count)), task.filters, ids="id", explode=True
            ),
            "count(id)",
        )


def join(task: Task) -> MatchingRate:
    """The filters of each form are broadcast, as Spark does by itself with small tables."""
    from pyspark.sql.functions import broadcast, expr

    with session() as spark:

        def joined(count: int) -> "DataFrame":
            events = spark.read.parquet(task.events(count))
            parts = [
                events.alias("e")
                .join(broadcast(spark.read.parquet(task.form(number))).alias("s"), expr(condition))
                .select("e.*", "s.id")
                for number, condition in enumerate(task.conditions)
            ]
            return reduce(lambda one, other: one.unionAll(other), parts)

        return _measured(task, joined, "count(id)")


def _measured(task: Task, matched: Callable[[int], "DataFrame"], pairs: str) -> MatchingRate:
    """A frame is made once, as in a job, and run several times."""
    matched = cache(matched)

    def count_pairs(count: int) -> int:
        row = matched(count).selectExpr(pairs).first()
        return 0 if row is None else int(row[0])

    def match(count: int) -> None:
        matched(count).write.format("noop").mode("overwrite").save()

    return measure(task, count_pairs, match)


@contextmanager
def session() -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{len(os.sched_getaffinity(0))}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # What docs/spark-users.md advises.
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.extraJavaOptions", " ".join(_JAVA_OPTIONS))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
