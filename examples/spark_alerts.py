"""A job for a lakehouse: events in, alerts out, both as Parquet. Each run handles what has come since the last.

    python spark_alerts.py EVENTS FILTERS ALERTS

EVENTS is a directory of Parquet files to which others add, FILTERS a Parquet table with the columns id and filter.
ALERTS gets a row for each event and filter that match, in a directory for each day of the events.
"""

import sys

from pyspark.sql import SparkSession

from culver.spark import match

events_path, filters_path, alerts_path = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()

schema = spark.read.parquet(events_path).schema
events = spark.readStream.schema(schema).parquet(events_path)

# Checked before anything runs: a filter that names a column which does not exist stops the job here, with its id.
alerts = match(events, spark.read.parquet(filters_path), ids="alert", explode=True)

query = (
    alerts.selectExpr("*", "to_date(at) AS day")
    .writeStream.trigger(availableNow=True)
    .partitionBy("day")
    .option("checkpointLocation", f"{alerts_path}/_checkpoint")
    .format("parquet")
    .start(alerts_path)
)
query.awaitTermination()
