"""Match a stream with filters that are replaced while the query runs. Run it with Java and `culver[spark]`:

python spark_streaming.py
"""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from culver.spark import Filters, match

spark = SparkSession.builder.getOrCreate()
inbox = Path(tempfile.mkdtemp())


def arrive(name: str, prices: list[float]) -> None:
    """New quotes; in earnest they come from Kafka, a lakehouse table, or a site with format("culver")."""
    lines = "".join(f'{{"price": {price}}}\n' for price in prices)
    (inbox / f".{name}").write_text(lines, encoding="utf-8")
    (inbox / f".{name}").rename(inbox / f"{name}.json")
    query.processAllAvailable()


with Filters({"dear": "price > 20"}) as filters:
    quotes = spark.readStream.schema("price double").json(str(inbox))
    query = match(quotes, filters).writeStream.format("memory").queryName("alerts").start()
    arrive("first", [19.0, 21.5])

    # From the next micro-batch on; the query goes on running.
    filters.replace({"dear": "price > 30", "cheap": "price < 20"})
    arrive("second", [19.0, 21.5, 31.0])
    query.stop()

for row in spark.table("alerts").orderBy("price", "matches").collect():
    print(row["price"], row["matches"])  # noqa: T201
