"""A program that reads a site in every way that Spark knows, for a test: prints one JSON object with what came.

python spark_reads.py URL DIRECTORY
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from culver import spark as culver_spark
from culver.client import SyncClient

SCHEMA = "offset BIGINT, n BIGINT, text STRING, `order.id` BIGINT, order STRUCT<id: BIGINT>, none DOUBLE"


def main(url: str, directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    culver_spark.register(spark)

    def history(schema: str = SCHEMA, **options: str) -> DataFrame:
        return spark.read.format("culver").schema(schema).options(url=url, **options).load()

    def stream(**options: str) -> DataFrame:
        return spark.readStream.format("culver").schema(SCHEMA).options(url=url, **options).load()

    def numbers(frame: DataFrame) -> list[int]:
        return sorted(row.n for row in frame.collect())

    def error(action: Callable[[], object]) -> str:
        try:
            action()
        except PySparkException as exc:
            return str(exc)
        return "no error"

    found: dict[str, Any] = {
        "default": spark.read.format("culver").option("url", url).load().columns,
        "row": history(**{"from": "3", "to": "4"}).collect()[0].asDict(recursive=True),
        "parts": history(eventsPerPartition="7").rdd.getNumPartitions(),
        "filtered": numbers(history(filter="n > 90", eventsPerPartition="7")),
        "times": history(since="2000-01-01T00:00:00Z", until="2001-01-01T00:00:00+01:00").count(),
        "option": error(lambda: history(fliter="n > 1").count()),
        "filter": error(lambda: history(filter="n >").count()),
        "type": error(lambda: history("n DECIMAL(10, 2)").count()),
        "subscription": error(lambda: _run(stream(subscription="nobody"), Path(directory) / "nobody")),
        "from": error(lambda: history(**{"from": "0"}).count()),
    }
    out = Path(directory) / "live"
    query = (
        stream(filter="text = 'live'")
        .writeStream.format("parquet")
        .options(path=str(out / "rows"), checkpointLocation=str(out / "checkpoint"))
        .start()
    )
    with SyncClient(url) as client:
        while not any(each.id.startswith("spark-") for each in client.subscriptions()):
            time.sleep(0.1)
        client.publish([{"n": 1000, "text": "live"}, {"n": 1001, "text": "other"}])
    while not list((out / "checkpoint" / "commits").glob("1")):
        time.sleep(0.1)
    query.stop()
    found["live"] = numbers(spark.read.parquet(str(out / "rows")))
    print(json.dumps(found))  # noqa: T201
    spark.stop()


def _run(frame: DataFrame, directory: Path) -> None:
    options = {"checkpointLocation": str(directory)}
    frame.writeStream.format("noop").options(**options).start().awaitTermination(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
