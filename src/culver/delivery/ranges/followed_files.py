"""The notification files of a site as another of its gateways sees them: it reads its share, and changes no file.

    site      [0 - 500)  [500 - 730)  [730 - 731)       merged: [0 - 730)
    told            accepted 500-730       ...          merged 0-730
    here       rows of    rows of       rows of         large: the file itself, mapped
               our 7, 12  our 12        nobody          small: our rows of it, in memory

A file is grouped by registration, so a gateway finds its share by looking up its numbers, and reads no other rows.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.ranges.retained_ranges import LEVELS, RetainedRange, select
from culver.pipeline import Notifications, notification_file_name, read_notifications

Knows = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Which of a file's registrations, in ascending numbers, belong to this gateway."""

FileRange = tuple[int, int, int]
"""The offset from which a file answers, and the bounds of its name."""


class FollowedFiles:
    """Keeps the ranges of `mailboxes` in step with the site's. A hub that follows has it in place of a FileKeeper."""

    def __init__(self, directory: Path, mailboxes: Mailboxes) -> None:
        self._directory = directory
        self._mailboxes = mailboxes

    def restore(self, ranges: Iterable[FileRange], frontier: int) -> None:
        """Begin with the ranges that the site has. Raises FileNotFoundError where a file is gone."""
        found = [RetainedRange(start, self._read(low, high)) for start, low, high in ranges]
        self._mailboxes.restore(found, frontier)

    def narrow(self, knows: Knows) -> None:
        """Keep only the rows of this gateway's registrations, once these are known."""
        for item in list(self._mailboxes.ranges):
            ours = RetainedRange(item.start, self._ours(item.notifications, knows))
            self._mailboxes.exchange([item], ours)

    def read(self, start: int, end: int, knows: Knows) -> Notifications:
        """The part of a file for this gateway's registrations."""
        return self._ours(self._read(start, end), knows)

    def merged(self, start: int, end: int, knows: Knows, *, pruned: bool) -> None:
        """Read the one file that has taken the place of those between `start` and `end`. A range that this gateway
        has let go of stays away."""
        old = [item for item in self._mailboxes.ranges if start <= item.start and item.end <= end]
        if old:
            new = RetainedRange(old[0].start, self.read(start, end, knows))
            self._mailboxes.exchange(old, new, pruned=pruned)

    def surplus(self, name: str) -> None:
        """Nothing to do: the site deletes it."""

    async def tidy_files(self, now_us: int) -> None:
        """Let go of the ranges in memory that no mailbox here needs."""
        self._mailboxes.retire(self._mailboxes.needed_from())

    async def store_files(self) -> None:
        """Nothing to do: the site has stored all of them."""

    def _read(self, start: int, end: int) -> Notifications:
        # The site has checked the rows, or has them from a worker that has seen them reach the disk.
        return read_notifications(self._directory / notification_file_name(start, end), check_rows=False)

    def _ours(self, content: Notifications, knows: Knows) -> Notifications:
        if content.rows.nbytes >= LEVELS[0].below_bytes:
            return content  # mapped: costs no memory of this process
        return select(content, knows(content.numbers), content.start)
