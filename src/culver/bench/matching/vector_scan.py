"""A baseline: tests every subscription against each event with vectorised comparisons.

    close >=   12.5   -inf   83.1  ...      one array for each attribute and side, over all subscriptions
    close <=   inf    inf    90.4  ...
    symbol =   17     -1     3     ...      a code for each value; -1 asks for none

An event costs one comparison of each array with its value; the subscriptions that pass all of them match. Most
people write this first, and it is hard to beat while everything fits into the cache.
"""

import time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.matching.drawn_subscriptions import DrawnSubscriptions

_ANY = -1


class NumpyScan:
    def __init__(self) -> None:
        self._numbers = np.empty(0, np.int64)
        self._low: dict[str, NDArray[np.float64]] = {}
        self._high: dict[str, NDArray[np.float64]] = {}
        self._codes: dict[str, NDArray[np.int32]] = {}
        self._values: dict[str, NDArray[np.str_]] = {}  # per attribute sorted; the code is the place

    def load(self, subscriptions: DrawnSubscriptions) -> float:
        started = time.perf_counter()
        self._numbers = np.concatenate([form.numbers for form in subscriptions.forms])
        at = 0
        for form in subscriptions.forms:
            rows = slice(at, at + len(form.numbers))
            at = rows.stop
            for bound in form.bounds:
                match bound.operator:
                    case "=":
                        self._put_code(bound.attribute, rows, bound.values)
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

    def _put_code(self, attribute: str, rows: slice, values: NDArray[np.str_]) -> None:
        if attribute not in self._codes:
            self._codes[attribute] = np.full(len(self._numbers), _ANY, np.int32)
            self._values[attribute] = np.empty(0, values.dtype)
        known, codes = self._values[attribute], self._codes[attribute]
        merged = np.union1d(known, values)
        if len(merged) > len(known):  # codes given before move up
            coded = codes != _ANY
            codes[coded] = np.searchsorted(merged, known)[codes[coded]]
            self._values[attribute] = merged
        codes[rows] = np.searchsorted(merged, values)

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
