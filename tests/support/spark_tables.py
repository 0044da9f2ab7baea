"""Random tables whose types Spark has, and what the slow reference finds in them."""

import random
from collections.abc import Mapping

import pyarrow as pa

from culver.matcher.event_values import event_of
from culver.matching import predicate_of
from culver.model import COLUMNAR
from culver.model.columns import encode
from culver.plugins import filter_named
from support.filters import random_filter
from support.tables import Rows, random_table


def random_filters(rng: random.Random, count: int) -> dict[str, str]:
    return {f"id {rng.randrange(10**9)}": random_filter(rng) for _ in range(count)}


def random_spark_table(rng: random.Random, count: int) -> tuple[pa.Table, Rows]:
    """A table of so many events with a column `row` that numbers them, and the events as dictionaries."""
    table, rows = random_table(rng, count)
    columns = {
        # Made anew, because Arrow casts some lists to arrays that are not valid.
        name: pa.array(table.column(name).to_pylist(), _spark_type(table.schema.field(name).type))
        for name in table.column_names
    }
    for number, row in enumerate(rows):
        row["row"] = number
    return pa.table({"row": list(range(count)), **columns}), rows


def reference(filters: Mapping[str, str], rows: Rows) -> list[list[str]]:
    """The ids that each event matches, by the slow and obviously right filter."""
    ids = list(filters)
    slow = filter_named("reference")()
    slow.add((number, predicate_of(filters[each], COLUMNAR)) for number, each in enumerate(ids))
    found: list[list[str]] = []
    for batch in encode([event_of(row) for row in rows], 0):
        matches = slow.match(batch)
        for at in range(batch.num_rows):
            numbers = matches.numbers[matches.offsets[at] : matches.offsets[at + 1]]
            found.append([ids[number] for number in sorted(numbers.tolist())])
    return found


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark takes from Arrow."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(field.name, _spark_type(field.type)) for field in kind])
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _spark_type(kind.value_type)
    if types.is_string_view(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind):
        return pa.list_(pa.string())
    if types.is_unsigned_integer(kind):
        return pa.int64()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    return kind
