"""The notification files of a site: those that nobody needs go, and small ones are merged.

The inline engine hands over ranges that have no file; they get one here, many in one. The order makes a crash at any
moment harmless: the base is on disk before the files below it go, a merged file before its inputs go.

Other gateways read the same files. They are told of each merged file, and what they may still be about to read stays
until they say that they are past it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailbox_columns import NEVER, NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.delivery.ranges.notification_directory import NotificationFiles
from culver.delivery.ranges.notification_ranges import (
    Range,
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
    """The gateways that read the same files in other processes."""

    def needed_from(self) -> int:
        """The lowest offset that one of them needs, also one that is down at the moment."""

    async def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Which registrations of a file one of them still has something to deliver for there; see
        `Mailboxes.wanted`. None where one of them cannot be asked."""

    def merged(self, item: Range, *, pruned: bool) -> None:
        """This range, which is on disk, has taken the place of those that it covers."""

    def release(self, names: Sequence[str]) -> list[str]:
        """These files are of no use here any more. Returns those, of all that were ever given, that may be deleted
        now; each once."""


class Nobody:
    """No followers."""

    def needed_from(self) -> int:
        return NEVER

    async def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.zeros(len(numbers), np.bool_)

    def merged(self, item: Range, *, pruned: bool) -> None:
        return

    def release(self, names: Sequence[str]) -> list[str]:
        return list(names)


class FileKeeper:
    """Runs on the event loop's thread, one call at a time; files are worked on in threads."""

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
        # What was accepted less than the grace time ago is kept, whoever wants it: its registration may
        # be on its way here.
        self._noted_us, self._noted = now_us, mailboxes.frontier
        self._settled = 0

    def surplus(self, name: str) -> None:
        """A file that repeats what others hold."""
        self._surplus.add(name)

    def settle(self, now_us: int) -> None:
        """Note what has been there for the grace time."""
        if now_us - self._noted_us >= _GRACE_US:
            self._settled = self._noted
            self._noted_us, self._noted = now_us, self._mailboxes.frontier

    async def tidy_files(self, now_us: int) -> None:
        """Delete what nobody needs, write what has no file, and merge what is small."""
        self.settle(now_us)
        await self._retire()
        await self.store_files()
        for group in plan_merges(self._mailboxes.ranges):
            await self._merge(group)

    async def store_files(self) -> None:
        """Write files for what is in memory only."""
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

    async def _merge(self, group: list[Range]) -> None:
        """Leaves the group empty."""
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
    """What becomes a merged file, worked on in threads. Large contents are let go of there too: to give back their
    pages takes milliseconds, for which the event loop would stand still."""

    content: Notifications

    def merge(self, group: Sequence[Range]) -> None:
        self.content = merge(group, Grouping(), aligned_rows)

    def prune(self, keep: NDArray[np.bool_]) -> None:
        self.content = select(self.content, keep, self.content.start)

    def store(self, files: NotificationFiles) -> Range:
        merged = files.store(self.content)
        del self.content
        return merged


def _end_of(name: str) -> int:
    bounds = parse_notification_file_name(name)
    return bounds[1] if bounds is not None else NONE
