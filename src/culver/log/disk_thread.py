"""A thread that writes to the disk and never needs the interpreter.

A thread of the interpreter that waits for the disk has to ask for the interpreter twice for each write, before and
after, while the event loop works; both then wait for each other. This one is compiled: it takes its orders out of a
pipe, writes, syncs, and answers through another pipe, which the loop watches.

    order    | descriptor | address of the bytes | how many | where in the file | zeros behind them |
               each int64; descriptor -1: end
    answer   | 0: written and synced; an errno: it could not write; less than 0: an errno, it could not sync |
"""

import asyncio
import errno
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from culver.log.publication_log import MOST_ROOM, Staged, WriteFailure

_ORDER = struct.Struct("<5q")
_ANSWER = struct.Struct("<q")
_ORDER_BYTES, _ANSWER_BYTES = _ORDER.size, _ANSWER.size
_END = _ORDER.pack(-1, 0, 0, 0, 0)
_INTERRUPTED = errno.EINTR


class DiskThread:
    """Belongs to one event loop. Its owner starts and closes it; one write at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._orders = self._answers = -1
        self._descriptors: tuple[int, ...] = ()
        self._writing: tuple[Staged, Callable[[WriteFailure | None], None]] | None = None

    def start(self) -> None:
        """On the loop."""
        self._loop = asyncio.get_running_loop()
        orders, self._orders = os.pipe2(os.O_CLOEXEC)
        self._answers, answers = os.pipe2(os.O_CLOEXEC)
        self._descriptors = (orders, self._orders, self._answers, answers)
        self._thread = threading.Thread(
            target=serve, args=(orders, answers, *_memory()), name="culver-disk", daemon=True
        )
        self._thread.start()
        self._loop.add_reader(self._answers, self._answered)

    def write(self, staged: Staged, done: Callable[[WriteFailure | None], None]) -> None:
        """Write and sync; never blocks. `done` is called on the loop, with None where all of it is on disk."""
        if self._writing is not None or self._loop is None:
            raise ValueError("one write at a time, while it is running")
        self._writing = (staged, done)  # keeps the bytes where they are
        # Hot: Arrow tells where bytes are for a fraction of what NumPy and ctypes take.
        data = pa.py_buffer(staged.data)
        order = _ORDER.pack(staged.descriptor, data.address, data.size, staged.position, staged.room)
        os.write(self._orders, order)

    def close(self) -> None:
        """Waits for a write that is going on, whose answer is then lost. Harmless to call again."""
        if self._loop is None or self._thread is None:
            return
        os.write(self._orders, _END)
        self._thread.join()
        self._loop.remove_reader(self._answers)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._loop = self._thread = None

    def _answered(self) -> None:
        assert self._writing is not None
        (answer,) = _ANSWER.unpack(os.read(self._answers, _ANSWER_BYTES))
        _, done = self._writing
        self._writing = None
        number = abs(answer)
        done(WriteFailure(OSError(number, os.strerror(number)), answer < 0) if answer else None)


# The C library's functions, by their names: so the compiled code can be kept in Numba's cache.
_read: Any = types.ExternalFunction("read", types.int64(types.int32, types.uintp, types.uintp))
_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.uintp, types.uintp))
_pwrite: Any = types.ExternalFunction(
    "pwrite", types.int64(types.int32, types.uintp, types.uintp, types.int64)
)
_fdatasync: Any = types.ExternalFunction("fdatasync", types.int32(types.int32))
_errno_location: Any = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def serve(orders: int, answers: int, memory: NDArray[np.int64], zeros: NDArray[np.uint8]) -> None:
    """Carry out orders until there are no more. `memory` is for one, `zeros` are as many as one may ask for."""
    place = memory.ctypes.data
    while True:
        if _read(orders, place, _ORDER_BYTES) != _ORDER_BYTES:
            if _errno_location()[0] == _INTERRUPTED:
                continue
            return
        descriptor, address, left, position = memory[0], memory[1], memory[2], memory[3]
        room = memory[4]
        if descriptor < 0:
            return
        answer = 0
        while left > 0 and answer == 0:
            written = _pwrite(descriptor, address, left, position)
            if written > 0:
                address, left, position = address + written, left - written, position + written
            elif _errno_location()[0] != _INTERRUPTED:
                answer = _errno_location()[0]
        if answer == 0 and room > 0:
            _pwrite(descriptor, zeros.ctypes.data, room, position)
        while answer == 0 and _fdatasync(descriptor) != 0:
            if _errno_location()[0] != _INTERRUPTED:
                answer = -_errno_location()[0]
        memory[0] = answer
        _write(answers, place, _ANSWER_BYTES)


def load() -> None:
    """Compile the thread, where it never was: it is told to end at once."""
    orders, orders_in = os.pipe2(os.O_CLOEXEC)
    try:
        os.write(orders_in, _END)
        serve(orders, orders_in, *_memory())
    finally:
        os.close(orders)
        os.close(orders_in)


def _memory() -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """For `serve`."""
    return np.zeros(_ORDER_BYTES // 8, np.int64), np.zeros(MOST_ROOM, np.uint8)
