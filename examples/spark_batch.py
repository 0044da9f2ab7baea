"""Find out which alerts each row of a DataFrame sets off. Run it with Java and `pip install 'culver[spark]'`:

python spark_batch.py
"""

from pyspark.sql import SparkSession

from culver.spark import match

spark = SparkSession.builder.getOrCreate()

quotes = spark.createDataFrame(
    [("XYZ", 21.5, ["tech"]), ("ABC", 19.0, []), ("ABC", 30.0, None)],
    "symbol string, price double, tags array<string>",
)
alerts = {
    "dear": "price > 20",
    "ada": "symbol = 'XYZ' AND price BETWEEN 20 AND 30",
    "bob": "'tech' IN tags OR price < 19.5",
}

# One column more, with the ids of the alerts that match.
match(quotes, alerts).orderBy("price").show()

# Or a row for each alert, ready to be joined and counted.
match(quotes, alerts, ids="alert", explode=True).groupBy("alert").count().orderBy("alert").show()

# The filters may come from a table, too.
table = spark.createDataFrame(list(alerts.items()), "id string, filter string")
print(match(quotes, table).where("size(matches) = 0").count(), "quotes set off no alert")  # noqa: T201
