"""Culver for people who have Spark jobs: DataFrames are matched with filters, and a site is read and written with
`format("culver")`.

    from culver import spark as culver_spark

    alerts = culver_spark.match(events, {"a1": "price > 20 AND symbol = 'XYZ'"})

    culver_spark.register(spark)
    events = spark.readStream.format("culver").option("url", url).option("subscription", "alerts").load()

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.spark.data_source import CulverDataSource as CulverDataSource, register as register
    from culver.spark.matching.frame_matching import match as match
    from culver.spark.matching.replaceable_filters import Filters as Filters
else:
    __getattr__ = lazy_names(__name__, extra="spark")
