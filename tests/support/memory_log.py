"""A publication log in memory, the second implementation: it proves that a log can be replaced."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import ClassVar, Self

import pyarrow as pa

from culver.config import LogSettings
from culver.errors import NotFound, StorageCorrupt, StorageError, StorageFull, Unavailable
from culver.log import CommitObserver, CommitReceipt, DamagedEvents
from culver.model import Event
from culver.model.columns import encode, received_times


class MemoryLogReader:
    """Implements LogReader on batches that a MemoryLog adds to. The tuple is replaced as a whole."""

    def __init__(self) -> None:
        self.batches: tuple[tuple[int, pa.RecordBatch], ...] = ()
        self.first_offset = 0
        self.next_offset = 0
        self.damage: Sequence[DamagedEvents] = ()

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if start >= end:
            return iter(())
        if start < self.first_offset:
            raise NotFound(f"offset {start} is trimmed")
        if end > self.next_offset:
            raise StorageCorrupt(f"the log ends at {self.next_offset}, and events up to {end} were promised")
        return (
            (max(start, offset), batch.slice(max(start - offset, 0), end - max(start, offset)))
            for offset, batch in self.batches
            if offset < end and start < offset + batch.num_rows
        )

    def offset_at(self, received_us: int, end: int) -> int:
        for offset, batch in self.batches:
            for row, time_us in enumerate(received_times(batch).tolist()):
                if time_us >= received_us:
                    return min(offset + row, end)
        return end


class MemoryLog:
    """Implements PublicationLog. What is stored under an address stays as long as the process."""

    _stored: ClassVar[dict[str, MemoryLogReader]] = {}
    _written: ClassVar[set[str]] = set()

    def __init__(self, address: str) -> None:
        if address in self._written:
            raise StorageError(f"the log {address} has a writer already")
        self._written.add(address)
        self._events = self.open_reader(address)
        self._open = True
        self._paused: str | None = None
        self.address = address

    @classmethod
    def open(cls, address: str, settings: LogSettings) -> Self:
        return cls(address)

    @classmethod
    def open_reader(cls, address: str) -> MemoryLogReader:
        return cls._stored.setdefault(address, MemoryLogReader())

    @property
    def first_offset(self) -> int:
        return self._events.first_offset

    @property
    def next_offset(self) -> int:
        return self._events.next_offset

    @property
    def damage(self) -> Sequence[DamagedEvents]:
        return self._events.damage

    @property
    def refusal(self) -> str | None:
        return None if self._open else f"the log {self.address} is closed"

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._events.read(start, min(end, self.next_offset))

    def offset_at(self, received_us: int) -> int:
        return self._events.offset_at(received_us, self.next_offset)

    def committer(self, observer: CommitObserver, clock_us: Callable[[], int]) -> "MemoryCommitter":
        return MemoryCommitter(self, observer, clock_us)

    def append(self, batches: Sequence[pa.RecordBatch]) -> int:
        if not self._open:
            raise StorageError(f"the log {self.address} is closed")
        if self._paused is not None:
            raise StorageFull(self._paused)
        first = end = self.next_offset
        added = []
        for batch in batches:
            added.append((end, batch))
            end += batch.num_rows
        self._events.batches += tuple(added)
        self._events.next_offset = end
        return first

    def pause(self, reason: str | None) -> None:
        self._paused = reason

    def trim(self, before: int) -> None:
        kept = tuple(each for each in self._events.batches if each[0] + each[1].num_rows > before)
        self._events.first_offset = kept[0][0] if kept else self.next_offset
        self._events.batches = kept

    def close(self) -> None:
        if self._open:
            self._written.remove(self.address)
        self._open = False


class MemoryCommitter:
    """Implements Committer: each publication is a commit of its own, on the next turn of the loop."""

    def __init__(self, log: MemoryLog, observer: CommitObserver, clock_us: Callable[[], int]) -> None:
        self._log = log
        self._observer = observer
        self._clock_us = clock_us
        self._waiting: deque[tuple[Sequence[Event], asyncio.Future[CommitReceipt]]] = deque()
        self._open = False

    @property
    def pending_events(self) -> int:
        return sum(len(events) for events, answer in self._waiting if not answer.done())

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._open = False
        while self._waiting:
            self._commit()

    def publish(self, events: Sequence[Event]) -> "asyncio.Future[CommitReceipt]":
        if not self._open:
            raise Unavailable("the committer is not open")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[CommitReceipt] = loop.create_future()
        self._waiting.append((events, answer))
        loop.call_soon(self._commit)
        return answer

    def _commit(self) -> None:
        if not self._waiting:
            return
        events, answer = self._waiting.popleft()
        if answer.cancelled():
            return
        batches = encode(events, self._clock_us()) if events else []
        self._observer.committing(self._log.next_offset, batches)
        try:
            first = self._log.append(batches)
        except StorageError as exc:
            answer.set_exception(exc)
            return
        answer.set_result(CommitReceipt(first, self._log.next_offset))
        if events:
            self._observer.committed(first, events)
