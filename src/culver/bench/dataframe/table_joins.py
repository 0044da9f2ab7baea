"""Joins without Spark, on all cores: Polars and DuckDB, from events in memory to pairs in memory."""

from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from culver.bench.dataframe.dataframe_plan import MatchingRate, Task
from culver.bench.dataframe.growing_rounds import measure


def polars_join(task: Task) -> MatchingRate:
    import polars

    forms = [polars.read_parquet(task.form(number)) for number in range(len(task.conditions))]

    @cache
    def events(count: int) -> Any:
        return polars.from_arrow(pq.read_table(task.events(count)))

    def pairs(count: int) -> int:
        found = 0
        for form, condition in zip(forms, task.conditions, strict=True):
            predicates = [
                polars.sql_expr(each.replace("e.", "").replace("s.", "")) for each in condition.split(" AND ")
            ]
            found += events(count).join_where(form, *predicates).height
        return found

    return measure(task, pairs, pairs)


def duckdb_join(task: Task) -> MatchingRate:
    import duckdb

    connection = duckdb.connect()
    for number in range(len(task.conditions)):
        path = task.form(number)
        connection.execute(f"CREATE TABLE form_{number} AS SELECT * FROM read_parquet('{path}')")
    selects = [
        f"SELECT e.*, s.id FROM events e JOIN form_{number} s ON {condition}"
        for number, condition in enumerate(task.conditions)
    ]

    @cache
    def events(count: int) -> pa.Table:
        return pq.read_table(task.events(count))

    def pairs(count: int) -> int:
        connection.register("events", events(count))
        return int(connection.sql(" UNION ALL ".join(selects)).to_arrow_table().num_rows)

    return measure(task, pairs, pairs)
