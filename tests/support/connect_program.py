"""A program that matches from a session of Spark Connect, on a server that it starts itself. Prints what it found.

python connect_program.py DIRECTORY
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from culver import Matcher, spark as culver_spark
from culver.errors import InvalidRequest

FILTERS = {"dear": "price > 20", "new": "'new' IN order.tags"}


def main(directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    events = spark.sql(
        "SELECT 0 row, 21.5D price, NAMED_STRUCT('tags', ARRAY('new')) order UNION ALL SELECT 1, 19.0D, NULL"
    )
    table = spark.createDataFrame(list(FILTERS.items()), "id string, filter string")
    found: list[Any] = [
        [row["matches"] for row in culver_spark.match(events, given).orderBy("row").collect()]
        for given in (FILTERS, table, culver_spark.Filters(FILTERS))
    ]
    exploded = culver_spark.match(events, FILTERS, ids="id", explode=True)
    found.append(sorted([row["row"], row["id"]] for row in exploded.collect()))

    events.drop("order").write.parquet(f"{directory}/events")
    stream = spark.readStream.schema("row int, price double").parquet(f"{directory}/events")
    query = culver_spark.match(stream, {"dear": "price > 20"}).writeStream.trigger(availableNow=True)
    query = query.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    query.start(f"{directory}/out").awaitTermination()
    streamed = spark.read.parquet(f"{directory}/out").orderBy("row")
    found.append([row["matches"] for row in streamed.collect()])
    many = Matcher()
    many.add_many("price > ?", {"price": np.arange(1_200_000.0)})
    for refused_filters in (many, culver_spark.Filters(FILTERS)):
        try:
            culver_spark.match(stream, refused_filters)
        except InvalidRequest as refused:
            found.append(refused.message)
    Path(directory, "found").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
