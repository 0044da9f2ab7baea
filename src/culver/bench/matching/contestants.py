"""The contestants of the benchmark: Culver's filters and the baselines, behind one small interface."""

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.matching.baselines import DuckDBJoin, NumpyScan
from culver.bench.matching.drawn_subscriptions import DrawnSubscriptions
from culver.matching import ColumnarFilter, Filter
from culver.model.columns import concat
from culver.model.language import prepare
from culver.plugins import filter_named


class Contestant(Protocol):
    """A filter that is loaded once and then asked for matches. Works in the calling thread only."""

    def load(self, subscriptions: DrawnSubscriptions) -> float:
        """Load the subscriptions, until the first event could be matched. Returns the seconds that this took,
        without the conversion of the drawn subscriptions into the form that the contestant takes."""

    def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the subscription number of each matching pair (event, subscription), in any order."""

    def stored_bytes(self) -> int | None:
        """The memory that the subscriptions take; None if unknown."""

    def close(self) -> None: ...


Loader = Callable[[Filter, DrawnSubscriptions], float]


def load_predicates(target: Filter, subscriptions: DrawnSubscriptions) -> float:
    """Add the subscriptions as predicates."""
    made = list(subscriptions.predicates())
    started = time.perf_counter()
    target.add(made)
    target.match(concat([]))  # filters that compile when they are first asked do it now
    return time.perf_counter() - started


def load_rows(target: Filter, subscriptions: DrawnSubscriptions) -> float:
    """Add the subscriptions of each form in columns, if they have forms and the filter accepts columns."""
    if not subscriptions.forms or not isinstance(target, ColumnarFilter):
        return load_predicates(target, subscriptions)
    started = time.perf_counter()
    for form in subscriptions.forms:
        target.add_rows(prepare(form.text), form.numbers, form.columns)
    target.match(concat([]))
    return time.perf_counter() - started


class PluggedFilter:
    """One of Culver's filters."""

    def __init__(self, name: str, loader: Loader = load_predicates) -> None:
        self._filter = filter_named(name)()
        self._loader = loader

    def load(self, subscriptions: DrawnSubscriptions) -> float:
        return self._loader(self._filter, subscriptions)

    def match(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        return self._filter.match(batch).numbers

    def stored_bytes(self) -> int | None:
        size = getattr(self._filter, "nbytes", None)
        return size if isinstance(size, int) else None

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ContestantKind:
    """How to make a contestant, and when it cannot take part or would take minutes."""

    make: Callable[[], Contestant]
    most_subscriptions: int | None = None
    only_forms: bool = False  # takes columns of values, so no workload whose filters have no common form
    library: str | None = None
    plugged: bool = False

    def hindrance(self, subscriptions: int, has_forms: bool) -> str | None:
        """Why the contestant cannot be measured, as the end of a sentence; None if it can."""
        if self.library is not None and importlib.util.find_spec(self.library) is None:
            return f"{self.library} is not installed (pip install 'culver[bench]')"
        if self.only_forms and not has_forms:
            return "it takes ranges and equalities only"
        if self.most_subscriptions is not None and subscriptions > self.most_subscriptions:
            return f"beyond {self.most_subscriptions:,} subscriptions it would take minutes"
        return None


KINDS: Mapping[str, ContestantKind] = {
    "columnar": ContestantKind(lambda: PluggedFilter("columnar", load_rows), plugged=True),
    "counting": ContestantKind(lambda: PluggedFilter("counting"), 100_000, plugged=True),
    "numpy-scan": ContestantKind(NumpyScan, 1_000_000, only_forms=True),
    "duckdb": ContestantKind(DuckDBJoin, 1_000_000, only_forms=True, library="duckdb"),
}
"""In the order in which they are shown; all others are checked against the first that takes part."""
