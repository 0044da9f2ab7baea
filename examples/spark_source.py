"""Alerts of a site in a Spark job: a durable subscription into Parquet, exactly once, and the history of the log.

    CULVER_URL=http://127.0.0.1:8080 python examples/spark_source.py DIRECTORY

Run it again: it goes on where it was. A streaming job that runs for ever leaves out `trigger`.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import max as highest

import culver
from culver import spark as culver_spark


def main(directory: Path) -> None:
    url = os.environ.get("CULVER_URL", "http://127.0.0.1:8080")
    with culver.connect_sync(url) as client:
        if all(each.id != "dear" for each in client.subscriptions()):
            client.create_subscription("price > 20", id="dear")

    # The workers are to run the Python that has Culver.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    culver_spark.register(spark)

    alerts = (
        spark.readStream.format("culver")
        .schema("offset BIGINT, received TIMESTAMP, symbol STRING, price DOUBLE")
        .option("url", url)
        .option("subscription", "dear")
        .load()
    )
    query = (
        alerts.writeStream.format("parquet")
        .option("path", str(directory / "alerts"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stored = spark.read.schema(alerts.schema).parquet(str(directory / "alerts")).orderBy("offset")
    for row in stored.collect():
        print(row.offset, row.symbol, row.price)  # noqa: T201

    history = spark.read.format("culver").schema("symbol STRING, price DOUBLE").option("url", url).load()
    for row in history.groupBy("symbol").agg(highest("price").alias("price")).orderBy("symbol").collect():
        print(row.symbol, row.price)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
