"""Two models of what an event costs a matcher, by the set that it is matched against.

    proportional   the paper's model: the time is proportional to the subscriptions searched. Its one constant makes
                   full replication on 20 matchers saturate where the paper's does, at 114,000 / 67 events a second
    measured       our matcher: builds an index for every set and matches events against it, in large batches and in
                   small ones, which gives a cost for each batch and a cost for each event

Our matcher needs well below a microsecond for an event, so a simulation at full speed would have to simulate tens
of millions of events a second. The simulated matchers are some hundred times slower and report their load every
second, which is equivalent to full speed with load reports that much more often. Reported rates are at full speed.
"""

import hashlib
import time
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.bench.bluedove import bluedove_paper
from culver.bench.matching.drawn_subscriptions import Form
from culver.matching import ColumnarFilter
from culver.model.language import prepare

_LARGE, _SMALL = 2_048, 64  # events in a batch
_SMALL_BATCHES = 16


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds for a batch of at most `most` events and for each event in it, by set."""

    fixed: NDArray[np.float64]
    each: NDArray[np.float64]
    most: int


class Service(Protocol):
    name: ClassVar[str]
    scale: float  # by which simulated rates are multiplied

    def times(
        self, form: Form, held: NDArray[np.bool_], events: pa.RecordBatch, candidates: NDArray[np.int64]
    ) -> Times:
        """`held`: (subscriptions, sets); `candidates`: (events, candidates) the sets that an event may go to."""


class Proportional:
    """The paper's model. `subscriptions` is the number that replication searches for every event."""

    name: ClassVar[str] = "proportional"

    def __init__(self, subscriptions: int = bluedove_paper.SUBSCRIPTIONS) -> None:
        replicated = bluedove_paper.SATURATION / bluedove_paper.OVER_REPLICATED[bluedove_paper.MATCHERS]
        self.scale = 1.0
        self.seconds_each = bluedove_paper.MATCHERS / replicated / subscriptions

    def times(
        self, form: Form, held: NDArray[np.bool_], events: pa.RecordBatch, candidates: NDArray[np.int64]
    ) -> Times:
        sizes = np.count_nonzero(held, axis=0)
        return Times(np.zeros(len(sizes)), sizes * self.seconds_each, 1)


class Measured:
    """Costs of our matcher. Caches what it has measured, because many systems have sets in common."""

    name: ClassVar[str] = "measured"

    def __init__(self, rounds: int, slowed: float, batch: int) -> None:
        self.scale = slowed
        self._rounds = rounds
        self._batch = batch
        self._known: dict[bytes, tuple[float, float]] = {}

    def times(
        self, form: Form, held: NDArray[np.bool_], events: pa.RecordBatch, candidates: NDArray[np.int64]
    ) -> Times:
        sets = held.shape[1]
        fixed, each = np.zeros(sets), np.zeros(sets)
        for number in range(sets):
            chosen = np.flatnonzero(held[:, number])
            rows = np.flatnonzero((candidates == number).any(axis=1))
            if not len(chosen) or not len(rows):
                continue
            key = hashlib.blake2b(form.columns[0][chosen].tobytes() + rows[:_LARGE].tobytes()).digest()
            if key not in self._known:
                self._known[key] = self._measure(form, chosen, events, rows)
            fixed[number], each[number] = self._known[key]
        return Times(self.scale * fixed, self.scale * each, self._batch)

    def _measure(
        self, form: Form, chosen: NDArray[np.int64], events: pa.RecordBatch, rows: NDArray[np.int64]
    ) -> tuple[float, float]:
        """Seconds for a batch, and for each event of it."""
        index = ColumnarFilter()
        index.add_rows(prepare(form.text), form.numbers[chosen], [column[chosen] for column in form.columns])
        batch = events.take(pa.array(np.resize(rows, _LARGE)))
        small = [batch.slice(place * _SMALL, _SMALL) for place in range(_SMALL_BATCHES)]
        index.match(batch)
        in_large = min(_seconds(index, [batch]) for _ in range(self._rounds)) / _LARGE
        in_small = min(_seconds(index, small) for _ in range(self._rounds)) / (_SMALL * _SMALL_BATCHES)
        fixed = max(0.0, in_small - in_large) / (1 / _SMALL - 1 / _LARGE)
        return fixed, in_large - fixed / _LARGE


def _seconds(index: ColumnarFilter, batches: list[pa.RecordBatch]) -> float:
    """Processor seconds, because other processes may use this machine."""
    started = time.process_time()
    for batch in batches:
        index.match(batch)
    return time.process_time() - started
