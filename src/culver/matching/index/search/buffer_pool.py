"""A pool of buffers for results, which are used again once nobody holds the result that was in them.

The system hands out new memory page by page and fills it with zeros first, which takes a tenth of the time of
matching W3. A result is a view of its buffer, so the reference count tells whether anybody still holds it. Buffers
begin at a page of memory, so that a direct write to disk takes them as they are.
"""

import sys
import threading

import numpy as np

from culver.jit import Integers

# In entries; the allocator reuses smaller memory by itself.
_SMALLEST = 1 << 17
_LARGEST = 1 << 24
_KEPT = 2
# A page of memory, in entries.
_PAGE = 512
# What `getrefcount` says of a buffer that only the pool holds: the list's reference and its own.
_UNUSED = 2

_lock = threading.Lock()
_buffers: list[Integers] = []


def result_buffer(size: int) -> Integers:
    """A buffer for so many numbers, not initialised. It belongs to whoever holds it or a view of it."""
    if not _SMALLEST <= size <= _LARGEST:
        return np.empty(size, np.int64)
    with _lock:
        for place in range(len(_buffers)):
            if len(_buffers[place]) >= size + _PAGE and sys.getrefcount(_buffers[place]) <= _UNUSED:
                return _aligned(_buffers[place])
        # NumPy asks for huge pages, Numba does not.
        buffer = np.empty(size + _PAGE, np.int64)
        _buffers.append(buffer)
        del _buffers[:-_KEPT]
        return _aligned(buffer)


def _aligned(buffer: Integers) -> Integers:
    return buffer[-buffer.ctypes.data % (8 * _PAGE) // 8 :]
