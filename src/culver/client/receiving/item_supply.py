"""What a stream reads from, whoever fills it."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from culver.errors import CulverError

Item = TypeVar("Item")
_Out = TypeVar("_Out", covariant=True)


class _Items(Protocol[_Out]):
    @property
    def low(self) -> bool: ...

    def take(self) -> _Out | None: ...


class ItemSupply(ABC, Generic[Item]):
    """`run` is the task that fills the buffer; the rest is called by the stream that reads it, in the same event
    loop. The first attachment must succeed, or it fails with its error. After that a lost connection is made again
    for as long as it lives (unless `reconnect` is off), and only a refusal ends it."""

    def __init__(self, buffer: _Items[Item]) -> None:
        self._items = buffer
        self._changed = asyncio.Event()  # something for the reader: an item, or the end
        self._drained = asyncio.Event()
        self._finished = False
        self._error: CulverError | None = None

    async def next(self) -> Item | None:
        """The next item; None at the end. Raises, after all items, what ended it. Cancelling loses nothing."""
        while True:
            self._changed.clear()
            item = self._items.take()
            if item is not None:
                if self._items.low:
                    self._drained.set()
                return item
            if self._error is not None:
                raise self._error
            if self._finished:
                return None
            await self._changed.wait()

    async def ready(self) -> None:
        """Wait for the first attachment. Raises what prevents it."""
        while not self._finished and not self.started:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None and not self.started:
            raise self._error

    @property
    @abstractmethod
    def started(self) -> bool:
        """Whether it has been attached once."""

    @abstractmethod
    def done_with(self, item: Any) -> None:
        """Everything up to this message is done with; it is acknowledged in the background."""

    @abstractmethod
    def describe(self, gap: Any) -> str:
        """Whom a gap concerns, for people."""

    @abstractmethod
    async def run(self) -> None: ...
