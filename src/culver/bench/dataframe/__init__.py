"""`culver bench dataframe`: filters on the rows of DataFrames, beside the joins that one would write without Culver.

`dataframe_bench` runs each contestant in a process of its own, with a limit of time. `spark_frames` has those on
Spark, `table_joins` Polars and DuckDB, and `bare_matchers` the `culver.Matcher` that `culver.spark.match` runs.
"""
