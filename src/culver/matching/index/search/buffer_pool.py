"""Memory for results, used again once nobody holds the result that was in it.

Rooms begin at a page of memory, so that the disk can be given what is in them as it is.

A large result is mostly new memory, which the system hands out page by page and fills with zeros first: a tenth of
the time of matching W3. A result is a view of its room, so the count of references tells whether anybody looks at it.
"""

import sys
import threading

import numpy as np
from numpy.typing import NDArray

_SMALLEST = 1 << 17  # entries; what is smaller, the allocator gives again by itself
_LARGEST = 1 << 24
_KEPT = 2
_PAGE = 512  # entries
_UNUSED = (
    2  # references to a room that only `_rooms` has, as `getrefcount` counts them: the list's and its own
)

_lock = threading.Lock()
_rooms: list[NDArray[np.int64]] = []


def result_buffer(size: int) -> NDArray[np.int64]:
    """Room for so many numbers; what is in it is nonsense. It belongs to whoever holds it or a view of it."""
    if not _SMALLEST <= size <= _LARGEST:
        return np.empty(size, np.int64)
    with _lock:
        for place in range(len(_rooms)):
            if len(_rooms[place]) >= size + _PAGE and sys.getrefcount(_rooms[place]) <= _UNUSED:
                return _aligned(_rooms[place])
        # NumPy asks for large pages where Numba would not.
        room = np.empty(size + _PAGE, np.int64)
        _rooms.append(room)
        del _rooms[:-_KEPT]
        return _aligned(room)


def _aligned(room: NDArray[np.int64]) -> NDArray[np.int64]:
    return room[-room.ctypes.data % (8 * _PAGE) // 8 :]
