"""The newest ranges, while they are small and in memory only, become one as they come.

They come by the hundred in a second, and who looks for the rows of a registration looks at every range. What a range
brings is noted right away, so that little is left to do at once when there are enough of them:

    ranges     [0 .. 5)             [5 .. 9)
               7: 1 3    9: 0       7: 0    12: 3
    pairs      7-1 7-3 9-0          7-5 12-8             in the order in which they came
    together   7: 1 3 5    9: 0    12: 8                 [0 .. 9)
"""

import numpy as np
from numpy.typing import NDArray

from culver.delivery.delivery_kernels import N, group_pairs, note_pairs
from culver.delivery.mailboxes.mailbox_columns import NEVER
from culver.jit import read_only
from culver.matching import MOST_EVENTS, Groups, sorted_groups
from culver.pipeline import Notifications

_WIDEST = 1 << 24  # numbers, from the lowest to the highest, that are counted: some bytes are kept for each


class Loose:
    """Keeps its working memory. Not thread-safe."""

    def __init__(self) -> None:
        self._numbers = np.empty(0, np.int64)  # of the pairs
        self._rows = np.empty(0, np.uint16)
        # Both for each number, from the lowest on, and zero between calls.
        self._counts = np.zeros(0, np.int32)
        self._marks = np.zeros(0, np.uint64)
        self.clear()

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._parts)

    def clear(self) -> None:
        self._parts: list[Notifications] = []
        self._pairs = 0
        self._low, self._high = NEVER, -1  # of the numbers

    def add(self, part: Notifications) -> None:
        """The range that follows. Begins anew where there would be too many events for one."""
        numbers, rows = part.numbers, part.rows
        if self._parts and part.end - self._parts[0].start > MOST_EVENTS:
            self.clear()
        start = self._parts[0].start if self._parts else part.start
        if len(numbers):
            self._low, self._high = min(self._low, int(numbers[0])), max(self._high, int(numbers[-1]))
        end = self._pairs + len(rows)
        if end > len(self._rows):
            self._numbers = _larger(self._numbers, self._pairs, end)
            self._rows = _larger(self._rows, self._pairs, end)
        whole = read_only(numbers), read_only(part.bounds), read_only(rows)
        note_pairs(*whole, part.start - start, self._pairs, self._numbers, self._rows)
        self._parts.append(part)
        self._pairs = end

    def together(self) -> Notifications:
        """One content for all of them, which are then forgotten."""
        groups = self._grouped()
        sizes = np.concatenate([part.sizes for part in self._parts])
        first, last = self._parts[0], self._parts[-1]
        self.clear()
        return Notifications(first.start, last.end, last.index_version, *groups, sizes)

    def _grouped(self) -> Groups:
        low, width, pairs = self._low, max(self._high - self._low + 1, 0), self._pairs
        found = self._numbers[:pairs], self._rows[:pairs]
        if width > _WIDEST:
            return sorted_groups(*found)
        if width > len(self._counts):
            room = min(2 * width, _WIDEST)
            self._counts, self._marks = np.zeros(room, np.int32), np.zeros((room + 63) // 64, np.uint64)
        most = min(pairs, width)
        numbers, bounds = np.empty(most, np.int64), np.empty(most + 1, np.int64)
        rows = np.empty(pairs, np.uint16)
        marks = self._marks[: (width + 63) // 64]
        count = group_pairs(*found, low, self._counts, marks, numbers, bounds, rows)
        return Groups(numbers[:count], bounds[: count + 1], rows)


def _larger(array: NDArray[N], used: int, least: int) -> NDArray[N]:
    result = np.empty(max(2 * len(array), least), array.dtype)
    result[:used] = array[:used]
    return result
