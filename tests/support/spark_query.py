"""A program with one streaming query from a durable subscription into a file sink, for tests that kill it.

    python spark_query.py URL SUBSCRIPTION DIRECTORY [OPTION=VALUE ...]

`DIRECTORY/out` gets the rows as Parquet, and `DIRECTORY/checkpoint` is the query's.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from culver import spark as culver_spark


def main(url: str, subscription: str, directory: str, *options: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    culver_spark.register(spark)
    root = Path(directory)
    events = (
        spark.readStream.format("culver")
        .schema("offset BIGINT, delivery_id STRING, number BIGINT")
        .option("url", url)
        .option("subscription", subscription)
        .options(**dict(option.split("=") for option in options))
        .load()
    )
    query = (
        events.writeStream.format("parquet")
        .option("path", str(root / "out"))
        .option("checkpointLocation", str(root / "checkpoint"))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
