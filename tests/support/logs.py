"""Batches for a log in which event number n says so in its attribute `n`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from culver.config import LogSettings
from culver.log import LogReader, ReadableLog
from culver.model.columns.event_batch import encode
from culver.model.event import Event

ONE_SEGMENT = LogSettings()
SMALL_SEGMENTS = LogSettings(segment_bytes=4096)


def event(number: int, padding: int = 0) -> Event:
    return Event({}, {"n": number}, b'{"n": %d}' % number + b" " * padding)


def batch(start: int, count: int = 1, received_us: int = 0, padding: int = 0) -> pa.RecordBatch:
    """Events `start` to `start + count - 1` in one batch."""
    (made,) = encode([event(start + i, padding) for i in range(count)], received_us)
    return made


def numbers(log: ReadableLog | LogReader, start: int, end: int) -> list[int]:
    """The numbers of the events in `[start, end)`, having checked that offsets go on without a hole."""
    found: list[int] = []
    for offset, part in log.read(start, end):
        assert offset == start + len(found)
        found += part.column("d:i:n").to_pylist()
    return found


class Listener:
    """A CommitObserver that passes on what it hears."""

    def __init__(
        self,
        committed: Callable[[int, Sequence[Event]], None] = lambda first, events: None,
        committing: Callable[[int, Sequence[pa.RecordBatch]], None] = lambda first, batches: None,
    ) -> None:
        self.committed = committed
        self.committing = committing


def last_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))
