"""Keeps the notification files of a site: deletes those that nobody needs, and merges small ones.

The inline engine hands over ranges without a file. The keeper writes them, many in one file. A crash at any moment is
harmless, because of the order: the base is on disk before the files below it go, a merged file before its inputs go.

Other gateways read the same files. The keeper tells them of each merged file, and deletes no file before they say
that they do not need it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.ranges.notification_directory import NotificationFiles
from culver.delivery.ranges.retained_ranges import (
    RetainedRange,
    last_offsets,
    merge,
    plan_merges,
    plan_storing,
    select,
)
from culver.matching import Grouping
from culver.pipeline import Notifications, aligned_rows, parse_notification_file_name

_GRACE_US = 1_000_000


class Followers(Protocol):
    """The gateways that read the same files in other processes, if there are any."""

    def needed_from(self) -> int:
        """The lowest offset that one of them needs. A gateway that is down at the moment counts too."""

    async def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Which registrations of a file have something left to deliver there at one of them; see `Mailboxes.wanted`.
        None where one of them cannot be asked."""

    def merged(self, item: RetainedRange, *, pruned: bool) -> None:
        """Tell them that this range, which is on disk, has taken the place of those it covers."""

    def release(self, names: Sequence[str]) -> list[str]:
        """Take note of files that are of no use here. Returns each once, as soon as it may be deleted."""


class FileKeeper:
    """Runs on the event loop's thread, one call at a time. Work on files is done in threads."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        files: NotificationFiles,
        cursors: CursorStore,
        waiting: Iterable[str],
        followers: Followers,
        now_us: int,
    ) -> None:
        self._mailboxes = mailboxes
        self._files = files
        self._cursors = cursors
        self._followers = followers
        self._surplus = set(waiting)  # files that are of no use once the frontier has passed them
        # Notifications stay for a grace time even if nobody wants them: their registration may be on its way here.
        self._noted_us, self._noted = now_us, mailboxes.frontier
        self._settled = 0  # below, the grace time is over

    def surplus(self, name: str) -> None:
        """Take note of a file that repeats what others hold."""
        self._surplus.add(name)

    def settle(self, now_us: int) -> None:
        """Note how far the grace time is over."""
        if now_us - self._noted_us >= _GRACE_US:
            self._settled = self._noted
            self._noted_us, self._noted = now_us, self._mailboxes.frontier

    async def tidy_files(self, now_us: int) -> None:
        """Delete the files that nobody needs, write the ranges that have none, and merge small files."""
        self.settle(now_us)
        await self._retire()
        await self.store_files()
        for group in plan_merges(self._mailboxes.ranges):
            await self._merge(group)

    async def store_files(self) -> None:
        """Write files for the ranges that are in memory only."""
        self._mailboxes.ranges.leave_as_is()
        for group in plan_storing(self._mailboxes.ranges):
            await self._merge(group)

    async def _retire(self) -> None:
        below = min(self._mailboxes.needed_from(), self._followers.needed_from(), self._settled)
        ends = [item.end for item in list(self._mailboxes.ranges)[:-1] if item.end <= below]
        names: list[str] = []
        if ends:
            await asyncio.wrap_future(self._cursors.write([], base=ends[-1]))
            names = [item.name for item in self._mailboxes.retire(ends[-1]) if item.stored]
        passed = {name for name in self._surplus if _end_of(name) <= self._mailboxes.frontier}
        self._surplus -= passed
        await self._delete([*names, *passed])

    async def _merge(self, group: list[RetainedRange]) -> None:
        """Merge a group into one file. Leaves the group empty."""
        draft = _Draft()
        await asyncio.to_thread(draft.merge, group)
        pruned = False
        if draft.content.end <= self._settled:
            numbers, last = draft.content.numbers, await asyncio.to_thread(last_offsets, draft.content)
            others = await self._followers.wanted(numbers, last)
            if others is not None:
                wanted = others | self._mailboxes.wanted(numbers, last)
                pruned = not wanted.all()
                if pruned:
                    await asyncio.to_thread(draft.prune, wanted)
        merged = await asyncio.to_thread(draft.store, self._files)
        self._mailboxes.exchange(group, merged, pruned=pruned)
        self._followers.merged(merged, pruned=pruned)
        names = [item.name for item in group if item.stored]
        await asyncio.to_thread(group.clear)
        await self._delete(names)

    async def _delete(self, names: Iterable[str]) -> None:
        names = list(names)
        used = {item.name for item in self._mailboxes.ranges} if names else set()
        unused = self._followers.release([name for name in names if name not in used])
        if unused:
            await asyncio.to_thread(self._files.delete, unused)


class _Draft:
    """A merged file in the making, worked on in threads. The threads let go of large contents too: giving back their
    pages takes milliseconds, for which the event loop would stand still."""

    content: Notifications

    def merge(self, group: Sequence[RetainedRange]) -> None:
        self.content = merge(group, Grouping(), aligned_rows)

    def prune(self, keep: NDArray[np.bool_]) -> None:
        self.content = select(self.content, keep, self.content.start)

    def store(self, files: NotificationFiles) -> RetainedRange:
        merged = files.store(self.content)
        del self.content
        return merged


def _end_of(name: str) -> int:
    bounds = parse_notification_file_name(name)
    return bounds[1] if bounds is not None else NONE
