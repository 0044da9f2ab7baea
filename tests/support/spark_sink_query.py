"""A program with one streaming query from Parquet files into the sink `culver`, for tests that kill it.

    python spark_sink_query.py URL DIRECTORY

`DIRECTORY/in` has the files, and `DIRECTORY/checkpoint` is the query's. It ends when all files are published.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from culver import spark as culver_spark


def main(url: str, directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .getOrCreate()
    )
    culver_spark.register(spark)
    root = Path(directory)
    rows = spark.readStream.schema("n BIGINT").option("maxFilesPerTrigger", 2).parquet(str(root / "in"))
    query = (
        rows.repartition(3, "n")
        .writeStream.format("culver")
        .option("url", url)
        .option("checkpointLocation", str(root / "checkpoint"))
        .option("order", "sorted")
        .option("eventsPerRequest", "100")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
