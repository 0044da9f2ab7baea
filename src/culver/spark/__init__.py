"""Culver for people who have Spark jobs: `spark.read`, `spark.readStream` and their writers with `format("culver")`.

    from culver import spark as culver_spark

    culver_spark.register(spark)
    events = spark.readStream.format("culver").option("url", url).option("subscription", "alerts").load()

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.spark.data_source import CulverDataSource as CulverDataSource, register as register
else:
    __getattr__ = lazy_names(__name__, extra="spark")
