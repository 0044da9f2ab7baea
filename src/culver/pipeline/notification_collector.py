"""Takes the notification files that other processes write, and hands them to the sink in order."""

import logging
from pathlib import Path

from culver.errors import StorageCorrupt
from culver.pipeline.engine_totals import EngineTally
from culver.pipeline.notifications import (
    NotificationSink,
    notification_file_name,
    parse_notification_file_name,
    read_notifications,
)

logger = logging.getLogger(__name__)


class NotificationCollector:
    """Not thread-safe. `position` is the offset up to which the sink has everything. `damaged` is set when a file had
    to be removed: its range stays open until an engine matches it again. `tally` counts what was taken."""

    def __init__(self, directory: Path, sink: NotificationSink, position: int) -> None:
        self._directory = directory
        self._sink = sink
        self.tally = EngineTally()
        self.position = position
        self.damaged = False
        self.waiting_files = 0
        """Files behind a hole, when `collect` last looked."""
        self.ahead = 0
        """Events in them."""

    def collect(self) -> None:
        """Hand on every file that continues the sequence. Files may come in any order and overlap; of those that
        cover the next offset, it takes the longest."""
        waiting = self._list()
        while True:
            candidates = [item for item in waiting if item[0] <= self.position < item[1]]
            if not candidates:
                self._remove_covered(waiting)
                self._look_ahead(waiting)
                return
            longest = max(candidates, key=lambda item: item[1])
            waiting.remove(longest)
            path = self._directory / notification_file_name(*longest)
            try:
                found = read_notifications(path, check_rows=False)
            except FileNotFoundError:
                continue
            except StorageCorrupt as exc:
                logger.error("%s; removing it, its range is matched again", exc)
                path.unlink(missing_ok=True)
                self.damaged = True
                continue
            self._sink.accept(found, stored=True)
            self.tally.add(found.work)
            self.position = longest[1]

    def _remove_covered(self, waiting: list[tuple[int, int]]) -> None:
        """Remove files whose ranges others cover: a batch ran again with other bounds, or finished twice. The sink
        has not seen them."""
        for start, end in waiting:
            if end <= self.position:
                (self._directory / notification_file_name(start, end)).unlink(missing_ok=True)

    def _look_ahead(self, waiting: list[tuple[int, int]]) -> None:
        reached = self.position
        self.waiting_files = self.ahead = 0
        for start, end in sorted(waiting):
            if end > self.position:
                self.waiting_files += 1
                self.ahead += max(0, end - max(start, reached))
                reached = max(reached, end)

    def _list(self) -> list[tuple[int, int]]:
        parsed = (parse_notification_file_name(path.name) for path in self._directory.iterdir())
        return [item for item in parsed if item is not None and item[1] > self.position]
