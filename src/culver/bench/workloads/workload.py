"""The interface of a workload: filters and events drawn from a seed, always the same ones for the same seed.

A workload is never edited once figures have been quoted on it: a new need is a new name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from culver.model.columns import PAYLOAD, RECEIVED

RECEIVED_US = 1_700_000_000_000_000
"""When the events of a batch are said to have been received."""


class Workload(Protocol):
    """Filters and events are drawn from streams of their own, so the same seed may serve for both."""

    @property
    def name(self) -> str: ...

    def __hash__(self) -> int: ...

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions that the workload's figures are quoted on."""

    def filters(self, count: int, seed: int) -> list[str]:
        """The texts of `count` filters."""

    def events(self, count: int, seed: int) -> list[dict[str, Any]]:
        """`count` events, as plain JSON objects."""

    def event_batch(self, count: int, seed: int) -> pa.RecordBatch:
        """The events of `events(count, seed)` as columns, laid out as in `model.batch`."""


def filter_stream(seed: int) -> np.random.Generator:
    """The random generator for filters."""
    return np.random.default_rng([seed, 1])


def event_stream(seed: int) -> np.random.Generator:
    """The random generator for events."""
    return np.random.default_rng([seed, 2])


def batch_of(events: Sequence[Mapping[str, Any]], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Make a batch of plain events from known data columns (`d:KIND:NAME`), which is much faster than parsing a
    million objects that a generator has just made."""
    payloads = pa.array([msgspec.json.encode(event) for event in events], pa.binary())
    received = pa.array(np.full(len(events), RECEIVED_US))
    return pa.RecordBatch.from_pydict({PAYLOAD: payloads, RECEIVED: received, **columns})
