"""One event as kernels read it: the memory of an Arrow batch of one row (see `key_kernels`), written without Arrow.

A match of one event against W2's 100,000 filters takes 14 µs with it, and 34 µs by way of a batch.

    batch       ... address of `columns` (at 48) ...
    columns     address of column 0, of column 1, ...
    column      ... offset 0 (at 16) ... address of its buffers (at 40) ...
    buffers     no validity, address of its cell, address of `text`
    cells       | integer, time or boolean | real | where a string begins and ends in `text` |
    text        the strings, one after another
"""

import functools
import struct
from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from culver.jit import Integers
from culver.matching.index.keys.key_kernels import Programs
from culver.model import KIND_OF_TYPE, Timestamp, Value
from culver.model.columns import attributes, column_name

_WORD = 8
# The words of a structure of Arrow's C data interface, and which of them the kernel looks at.
_STRUCTURE, _BUFFERS_AT, _CHILDREN_AT = 10, 5, 6
_BUFFERS = 3
_TEXT_BYTES = 1024

_CODES = {int: "q", float: "d", str: "ii", bool: "q", Timestamp: "q", tuple: "q"}

Shape = tuple[tuple[str, ...], tuple[type, ...]]
"""The names and types of an event's data."""


class EventLayout:
    """Events of one shape. Threads may share it: memory that one of them uses belongs to no other meanwhile."""

    def __init__(self, shape: Shape) -> None:
        names, self._types = shape
        self._names = tuple(
            column_name(KIND_OF_TYPE[kind], name) for name, kind in zip(names, self._types, strict=True)
        )
        self._known = attributes(self._names)
        self._cells = struct.Struct("=" + "".join(_CODES[kind] for kind in self._types))
        self._free: list[EventMemory] = []

    def program(self, programs: Programs) -> Integers:
        return programs.program(self._names, self._known)

    def put(self, data: Mapping[str, Value]) -> "EventMemory":
        """The memory with an event of this shape, until `done`."""
        cells: list[int | float] = []
        texts: list[bytes] = []
        end = 0
        for value in data.values():
            if isinstance(value, str):
                text = value.encode()
                texts.append(text)
                cells.append(end)
                end += len(text)
                cells.append(end)
            elif isinstance(value, Timestamp):
                cells.append(value.microseconds)
            elif isinstance(value, tuple):
                cells.append(0)  # kernels ask whether there is a list, not what it holds
            else:
                cells.append(value)
        try:
            memory = self._free.pop()
        except IndexError:
            memory = EventMemory(len(self._names), self._cells, _TEXT_BYTES)
        if end > memory.room:
            memory = EventMemory(len(self._names), self._cells, 2 * end)
        memory.write(cells, texts, end)
        return memory

    def done(self, memory: "EventMemory") -> None:
        """Let other events of this shape use the memory."""
        if memory.room <= _TEXT_BYTES:
            self._free.append(memory)


class EventMemory:
    """Memory for the events of one layout, with `room` for so many bytes of strings."""

    def __init__(self, columns: int, cells: struct.Struct, room: int) -> None:
        self.room = room
        parts = _STRUCTURE, columns, _STRUCTURE * columns, _BUFFERS * columns, columns
        _, children, structures, buffers, cell, text = accumulate(parts, initial=0)
        words = np.zeros(text + -(-room // _WORD), np.int64)
        self._memory = words.data.cast("B")
        self._pack = cells.pack_into
        self._cells_at, self._text_at = _WORD * cell, _WORD * text
        self.address = words.ctypes.data
        """Valid for as long as this object lives."""
        words[_CHILDREN_AT] = self.address + _WORD * children
        for place in range(columns):
            structure, own = structures + _STRUCTURE * place, buffers + _BUFFERS * place
            words[children + place] = self.address + _WORD * structure
            words[structure + _BUFFERS_AT] = self.address + _WORD * own
            words[own + 1] = self.address + _WORD * (cell + place)
            words[own + 2] = self.address + self._text_at

    def write(self, cells: list[int | float], texts: list[bytes], end: int) -> None:
        self._pack(self._memory, self._cells_at, *cells)
        if texts:
            self._memory[self._text_at : self._text_at + end] = b"".join(texts)


@functools.lru_cache(maxsize=256)
def layout_of(shape: Shape) -> EventLayout:
    return EventLayout(shape)
