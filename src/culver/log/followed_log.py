"""A log that another process appends to and announces the end of."""

from collections.abc import Iterator

import pyarrow as pa

from culver.log.publication_log import LogReader


class FollowedLog:
    """Implements ReadableLog on any reader. `next_offset` is the last one announced, and never goes back."""

    def __init__(self, reader: LogReader, next_offset: int) -> None:
        self._reader = reader
        self._next_offset = next_offset

    @property
    def first_offset(self) -> int:
        return self._reader.first_offset

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def extend(self, next_offset: int) -> None:
        """The writer has announced that everything below is durable."""
        self._next_offset = max(self._next_offset, next_offset)

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._reader.read(start, min(end, self._next_offset))

    def offset_at(self, received_us: int) -> int:
        return self._reader.offset_at(received_us, self._next_offset)
