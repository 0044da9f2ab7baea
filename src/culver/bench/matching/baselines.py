"""Baselines: what one would write without Culver, with NumPy and with a database."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.matching.drawn_subscriptions import DrawnSubscriptions, Form

_ANY = -1


class NumpyScan:
    """Tests every subscription against each event with vectorised comparisons.

        close >=   12.5   -inf   83.1  ...      one array for each attribute and side, over all subscriptions
        close <=   inf    inf    90.4  ...
        symbol =   17     -1     3     ...      a code for each value; -1 asks for none

    An event costs one comparison of each array with its value; the subscriptions that pass all of them match. Most
    people write this first, and it is hard to beat while everything fits into the cache.
    """

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.int64)
        self._low: dict[str, NDArray[np.float64]] = {}
        self._high: dict[str, NDArray[np.float64]] = {}
        self._codes: dict[str, NDArray[np.int32]] = {}
        self._values: dict[str, NDArray[np.str_]] = {}  # per attribute sorted; the code is the place

    def load(self, subscriptions: DrawnSubscriptions) -> float:
        started = time.perf_counter()
        self._numbers = np.concatenate([form.numbers for form in subscriptions.forms])
        equalities = [each for form in subscriptions.forms for each in form.bounds if each.operator == "="]
        for name in {each.attribute for each in equalities}:
            asked_for = [each.values for each in equalities if each.attribute == name]
            self._values[name] = np.unique(np.concatenate(asked_for))
            self._codes[name] = np.full(len(self._numbers), _ANY, np.int32)
        at = 0
        for form in subscriptions.forms:
            rows = slice(at, at + len(form.numbers))
            at = rows.stop
            for bound in form.bounds:
                match bound.operator:
                    case "=":
                        known = self._values[bound.attribute]
                        self._codes[bound.attribute][rows] = np.searchsorted(known, bound.values)
                    case ">=":
                        self._side(self._low, bound.attribute, -np.inf)[rows] = bound.values
                    case "<=":
                        self._side(self._high, bound.attribute, np.inf)[rows] = bound.values
                    case _:  # the reals below a bound are those up to the one next to it
                        self._side(self._high, bound.attribute, np.inf)[rows] = np.nextafter(
                            bound.values, -np.inf
                        )
        return time.perf_counter() - started

    def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        low = [(self._reals(batch, name), bounds) for name, bounds in self._low.items()]
        high = [(self._reals(batch, name), bounds) for name, bounds in self._high.items()]
        equal = [(self._codes_of(batch, name), codes) for name, codes in self._codes.items()]
        held = np.empty(len(self._numbers), np.bool_)
        holds = np.empty_like(held)
        found: list[NDArray[np.int64]] = []
        for row in range(batch.num_rows):
            held[:] = True
            for values, bounds in low:
                held &= np.less_equal(bounds, values[row], out=holds)
            for values, bounds in high:
                held &= np.greater_equal(bounds, values[row], out=holds)
            for event_codes, codes in equal:
                np.equal(codes, event_codes[row], out=holds)
                holds |= codes == _ANY
                held &= holds
            found.append(np.flatnonzero(held))
        places = np.concatenate([np.empty(0, np.int64), *found])
        numbers: NDArray[np.int64] = self._numbers[places]
        return numbers

    def stored_bytes(self) -> int:
        sides = sum(side.nbytes for side in [*self._low.values(), *self._high.values()])
        return self._numbers.nbytes + sides + sum(codes.nbytes for codes in self._codes.values())

    def close(self) -> None:
        pass

    def _side(
        self, sides: dict[str, NDArray[np.float64]], attribute: str, unbounded: float
    ) -> NDArray[np.float64]:
        if attribute not in sides:
            sides[attribute] = np.full(len(self._numbers), unbounded)
        return sides[attribute]

    def _codes_of(self, batch: pa.RecordBatch, attribute: str) -> NDArray[np.int64]:
        """The code of each event's value; a value that no subscription asks for gets a code that none has."""
        known = self._values[attribute]
        values = np.array(batch[f"d:s:{attribute}"].to_pylist(), np.str_)
        places = np.searchsorted(known, values)
        inside = np.minimum(places, len(known) - 1)
        codes: NDArray[np.int64] = np.where(known[inside] == values, inside, len(known))
        return codes

    @staticmethod
    def _reals(batch: pa.RecordBatch, attribute: str) -> NDArray[np.float64]:
        kind = "r" if f"d:r:{attribute}" in batch.schema.names else "i"
        values: NDArray[np.float64] = batch[f"d:{kind}:{attribute}"].to_numpy().astype(np.float64)
        return values


class DuckDBJoin:
    """Joins a batch of events with subscriptions in tables of DuckDB, in memory and on one thread.

    Each form of subscription has a table with a column for each of its values, and one SELECT; the answer is their
    UNION ALL:

        SELECT e.row, s.number FROM events e JOIN form_1 s ON e.symbol = s.v0 AND e.close >= s.v1

    DuckDB joins on the first conditions (a hash join on an equality, a merge join on a range). Equalities therefore
    come first, then attributes that are bounded on both sides: on W2 this is three times as fast as the order of the
    text.
    """

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
