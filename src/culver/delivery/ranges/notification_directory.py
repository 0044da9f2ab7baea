"""The directory of notification files: recovery at start-up, then writing and deleting.

Recovery walks the files by position from the base, below which nobody needs anything, and takes each that continues
the sequence:

    base 20   [0 - 10)  [20 - 30)  [25 - 40)  [40 - 4x       [60 - 70)
              below it   taken      taken      torn, removed  waits: a hole comes before it
                                    from 30 on

The engine matches the hole again, and whatever follows it.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from culver.delivery.ranges.retained_ranges import LEVELS, RetainedRange
from culver.disk import make_directory
from culver.errors import StorageCorrupt
from culver.pipeline import (
    NOTIFICATION_SUFFIX,
    Notifications,
    notification_file_name,
    parse_notification_file_name,
    read_notifications,
    write_notifications,
)

logger = logging.getLogger(__name__)

_SMALL_BYTES = LEVELS[0].below_bytes
# The log, whose commits somebody waits for, is mostly on the same disk: a write must not keep it for long.
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class RecoveredRanges:
    ranges: list[RetainedRange]
    frontier: int
    waiting: list[str]
    """Names of files behind a hole."""
    damaged: list[str]
    """Names of files that are gone because they were torn or altered."""


class NotificationFiles:
    """Every method but `recover` only touches files that it is told about. Safe to call from any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_directory(directory)

    def recover(self, base: int, first_offset: int) -> RecoveredRanges:
        """Find the contiguous files from `base` on; remove those that are torn, half written or covered by others.
        Pass over a hole beyond which the log has been trimmed: nobody needed it."""
        found: list[tuple[int, int]] = []
        for path in self._directory.iterdir():
            parsed = parse_notification_file_name(path.name)
            if parsed is not None:
                found.append(parsed)
            elif path.suffix == ".tmp":
                logger.warning("removing the unfinished file %s", path.name)
                path.unlink(missing_ok=True)
        ranges: list[RetainedRange] = []
        waiting: list[str] = []
        damaged: list[str] = []
        frontier = base
        # The longest of the files that begin together comes first. So it covers the inputs of a merge that was cut
        # off before it could delete them.
        for start, end in sorted(found, key=lambda bounds: (bounds[0], -bounds[1])):
            name = notification_file_name(start, end)
            if start > frontier and frontier < first_offset:
                frontier = min(start, first_offset)
            if end <= frontier:
                self.delete([name])
            elif (content := self._read_or_remove(name)) is None:
                damaged.append(name)
            elif start > frontier:
                waiting.append(name)
            else:
                ranges.append(_range(frontier, content))
                frontier = end
        return RecoveredRanges(ranges, max(frontier, first_offset), waiting, damaged)

    @property
    def empty(self) -> bool:
        return not any(path.suffix == NOTIFICATION_SUFFIX for path in self._directory.iterdir())

    def store(self, content: Notifications) -> RetainedRange:
        """Write a merged file, on disk on return, and map it."""
        path = write_notifications(self._directory, content, durable=True, most_bytes_at_once=_BYTES_AT_ONCE)
        return _range(content.start, read_notifications(path))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self._directory / name).unlink(missing_ok=True)

    def _read_or_remove(self, name: str) -> Notifications | None:
        path = self._directory / name
        try:
            return read_notifications(path)
        except FileNotFoundError:
            return None
        except (StorageCorrupt, ValueError, KeyError) as exc:
            logger.warning("removing %s, its range is matched again: %s", name, exc)
            path.unlink(missing_ok=True)
            return None


def _range(start: int, content: Notifications) -> RetainedRange:
    """The range of a file. A small one is copied into memory, because a mapping holds a file descriptor."""
    item = RetainedRange(start, content)
    if item.size >= _SMALL_BYTES:
        return item
    n = content
    copied = Notifications(
        n.start,
        n.end,
        n.index_version,
        n.numbers.copy(),
        n.bounds.copy(),
        n.rows.copy(),
        n.sizes.copy(),
        damage=n.damage,
    )
    return RetainedRange(start, copied)
