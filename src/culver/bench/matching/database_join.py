"""A baseline: subscriptions as tables of DuckDB, with which a batch of events is joined.

Each form of subscription has a table with a column for each of its values, and one SELECT; the answer is their
UNION ALL:

    SELECT e.row, s.number FROM events e JOIN form_1 s ON e.symbol = s.v0 AND e.close >= s.v1

DuckDB joins on the first conditions (a hash join on an equality, a merge join on a range). Equalities therefore
come first, then attributes that are bounded on both sides: on W2 this is three times as fast as the order of the
text.
"""

import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.matching.drawn_subscriptions import DrawnSubscriptions, Form


class DuckDBJoin:
    """One connection to an in-memory database, on one thread."""

    def __init__(self) -> None:
        import duckdb  # here, because it is installed for benchmarks only

        self._connection: Any = duckdb.connect(config={"threads": 1})
        self._query = ""
        self._attributes: set[str] = set()

    def load(self, subscriptions: DrawnSubscriptions) -> float:
        started = time.perf_counter()
        selects = []
        for number, form in enumerate(subscriptions.forms):
            values = {f"v{i}": pa.array(column) for i, column in enumerate(form.columns)}
            self._connection.register("drawn", pa.table({"number": form.numbers, **values}))
            self._connection.execute(f"CREATE TABLE form_{number} AS SELECT * FROM drawn")
            self._connection.unregister("drawn")
            selects.append(
                f"SELECT e.row, s.number FROM events e JOIN form_{number} s ON {_conditions(form)}"
            )
            self._attributes.update(bound.attribute for bound in form.bounds)
        self._query = " UNION ALL ".join(selects)
        return time.perf_counter() - started

    def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        columns = {"row": pa.array(np.arange(batch.num_rows))}
        for name in batch.schema.names:
            attribute = name[len("d:s:") :]
            if attribute in self._attributes:
                columns[attribute] = batch[name]
        self._connection.register("events", pa.table(columns))
        pairs = self._connection.execute(self._query).fetchnumpy()
        numbers: NDArray[np.int64] = pairs["number"]
        return numbers

    def stored_bytes(self) -> None:
        """None: DuckDB reports the size of its buffers, not that of a table."""

    def close(self) -> None:
        self._connection.close()


def _conditions(form: Form) -> str:
    sides: dict[str, int] = {}
    for bound in form.bounds:
        sides[bound.attribute] = sides.get(bound.attribute, 0) + 1
    order = sorted(
        range(len(form.bounds)),
        key=lambda i: (form.bounds[i].operator != "=", -sides[form.bounds[i].attribute]),
    )
    return " AND ".join(f"e.{form.bounds[i].attribute} {form.bounds[i].operator} s.v{i}" for i in order)
