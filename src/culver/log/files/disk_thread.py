"""A thread that writes to the disk and never takes the GIL.

A Python thread that waits for the disk takes the GIL twice for each write, before and after, while the event loop
works, and then both wait for each other. This thread is compiled: it reads orders from a pipe, writes, syncs, and
answers through another pipe, which the loop watches.

    order    | descriptor | address of the bytes | length | position in the file | zeros behind them |
               each int64; descriptor -1 ends the thread
    answer   | 0: written and synced; an errno: the write failed; below 0: an errno, the sync failed |
"""

import asyncio
import errno
import os
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import types

from culver.jit import Bytes, Integers, compiled

PREALLOCATED_BYTES = 256 * 1024

_ORDER = struct.Struct("<5q")
_ANSWER = struct.Struct("<q")
_ORDER_BYTES, _ANSWER_BYTES = _ORDER.size, _ANSWER.size
_END = _ORDER.pack(-1, 0, 0, 0, 0)
_INTERRUPTED = errno.EINTR


class StagedWrite(NamedTuple):
    """Bytes for a position of a file, and how many zeros to write behind them, at most PREALLOCATED_BYTES.

    The zeros preallocate space for later writes: a sync takes little more than half the time where the file does not
    grow, because the file system has no metadata to write. They are no part of what is promised, so it is harmless
    if the disk has no space for them."""

    descriptor: int
    position: int
    data: bytes
    preallocate: int = 0


class WriteFailure(NamedTuple):
    """The reason why bytes are not on disk. After a failed sync (`syncing`), nobody knows whether they are."""

    error: OSError
    syncing: bool


class DiskThread:
    """Belongs to one event loop and does one write at a time. Its owner starts and closes it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._orders = self._answers = -1
        self._descriptors: tuple[int, ...] = ()
        self._writing: tuple[StagedWrite, Callable[[WriteFailure | None], None]] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        orders, self._orders = os.pipe2(os.O_CLOEXEC)
        self._answers, answers = os.pipe2(os.O_CLOEXEC)
        self._descriptors = (orders, self._orders, self._answers, answers)
        memory = np.zeros(_ORDER_BYTES // 8, np.int64), np.zeros(PREALLOCATED_BYTES, np.uint8)
        self._thread = threading.Thread(
            target=serve, args=(orders, answers, *memory), name="culver-disk", daemon=True
        )
        self._thread.start()
        self._loop.add_reader(self._answers, self._answered)

    def write(self, staged: StagedWrite, done: Callable[[WriteFailure | None], None]) -> None:
        """Write and sync; never blocks. `done` is called on the loop, with None once all bytes are on disk."""
        if self._writing is not None or self._loop is None:
            raise ValueError("the disk thread takes one write at a time, and only while it runs")
        self._writing = (staged, done)  # keeps the bytes alive
        # Hot: Arrow gives the address of bytes in a fraction of the time that NumPy and ctypes take.
        data = pa.py_buffer(staged.data)
        order = _ORDER.pack(staged.descriptor, data.address, data.size, staged.position, staged.preallocate)
        os.write(self._orders, order)

    def close(self) -> None:
        """Wait for a running write, whose answer is then lost, and end the thread. Harmless to call again."""
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


def load() -> None:
    """Load the kernel, or compile it where it never was, before publications wait for it."""
    serve(-1, -1, np.zeros(1, np.int64), np.zeros(1, np.uint8))  # there is nothing to read from -1


# The C library's functions are bound by name, so that Numba's cache can keep the compiled code.
_read: Any = types.ExternalFunction("read", types.int64(types.int32, types.uintp, types.uintp))
_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.uintp, types.uintp))
_pwrite: Any = types.ExternalFunction(
    "pwrite", types.int64(types.int32, types.uintp, types.uintp, types.int64)
)
_fdatasync: Any = types.ExternalFunction("fdatasync", types.int32(types.int32))
_errno_location: Any = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())


@compiled
def serve(orders: int, answers: int, memory: Integers, zeros: Bytes) -> None:
    """Carry out orders until the last. `memory` holds one order, `zeros` as many as an order may ask for."""
    place = memory.ctypes.data
    while True:
        if _read(orders, place, _ORDER_BYTES) != _ORDER_BYTES:
            if _errno_location()[0] == _INTERRUPTED:
                continue
            return
        descriptor, address, left, position = memory[0], memory[1], memory[2], memory[3]
        preallocate = memory[4]
        if descriptor < 0:
            return
        answer = 0
        while left > 0 and answer == 0:
            written = _pwrite(descriptor, address, left, position)
            if written > 0:
                address, left, position = address + written, left - written, position + written
            elif _errno_location()[0] != _INTERRUPTED:
                answer = _errno_location()[0]
        if answer == 0 and preallocate > 0:
            _pwrite(descriptor, zeros.ctypes.data, preallocate, position)
        while answer == 0 and _fdatasync(descriptor) != 0:
            if _errno_location()[0] != _INTERRUPTED:
                answer = -_errno_location()[0]
        memory[0] = answer
        _write(answers, place, _ANSWER_BYTES)
