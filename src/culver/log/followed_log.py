"""A log that another process appends to, as that process tells how far it goes."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from culver.log.file_log_reader import FileLogReader


class FollowedLog:
    """Implements ReadableLog. `next_offset` is what it was told last, and never goes back."""

    def __init__(self, directory: Path, next_offset: int) -> None:
        self._reader = FileLogReader(directory)
        self._next_offset = next_offset

    @property
    def first_offset(self) -> int:
        return self._reader.first_offset

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def extend(self, next_offset: int) -> None:
        """Everything below is on disk."""
        self._next_offset = max(self._next_offset, next_offset)

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._reader.read(start, min(end, self._next_offset))

    def offset_at(self, received_us: int) -> int:
        return self._reader.offset_at(received_us, self._next_offset)
