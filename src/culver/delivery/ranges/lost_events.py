"""Events that were damaged in the log before the engine matched them, so that nobody knows who should have got them.

Every registration has one row for them, at the last of them that concerns it. The row stands for a gap, and never for
a delivery, even if the log can be read again:

    lost [10 - 20)   row 19 of a registration     a gap [10, 20)
                     that began at 13             a gap [13, 20)
                     that ended at 17, row 16     a gap [10, 17)
                     acknowledged up to 15        a gap [16, 20)
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from culver.log import DamagedEvents
from culver.pipeline import Notifications

_START = attrgetter("start")


class LostEvents:
    """All that this process has heard of, ascending. Each entry takes damage of a file, so there are few."""

    def __init__(self) -> None:
        self.damage: list[DamagedEvents] = []

    def note(self, notifications: Notifications, start: int) -> None:
        """Take note of what is lost of the next range, which answers for the offsets from `start` on."""
        self.damage += damage_from(notifications, start)

    def start_of(self, offset: int) -> int | None:
        """The first of the lost events that the row at `offset` stands for; None for the row of a delivery."""
        if not self.damage:
            return None  # hot: asked for every delivery
        at = bisect_right(self.damage, offset, key=_START) - 1
        return self.damage[at].start if at >= 0 and offset < self.damage[at].end else None

    def any_within(self, start: int, end: int) -> bool:
        return any(each.start < end and start < each.end for each in self.damage)


def damage_from(notifications: Notifications, start: int) -> tuple[DamagedEvents, ...]:
    """Returns what is lost of a range at or above `start`."""
    return tuple(
        each._replace(start=max(each.start, start)) for each in notifications.damage if each.end > start
    )


def told_once(damage: Sequence[DamagedEvents]) -> list[DamagedEvents]:
    """One entry, ascending, for each place of a file, where several processes or ranges tell of the same."""
    places: dict[tuple[str, int], DamagedEvents] = {}
    for each in damage:
        known = places.get((each.path, each.position), each)
        start, end = min(known.start, each.start), max(known.end, each.end)
        places[each.path, each.position] = each._replace(start=start, end=end)
    return sorted(places.values(), key=_START)
