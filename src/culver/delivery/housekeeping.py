"""What is done about once a second: limits are enforced, files are let go of and merged.

The inline engine hands over ranges that have no file; they get one here, many in one. The order makes a crash at any
moment harmless. Gaps are on disk before the files of the dropped rows go; the base
is on disk before the files below it go; a merged file is on disk before its inputs go.
"""

import asyncio
from collections.abc import Iterable, Sequence

from culver.delivery.cursors import CursorStore
from culver.delivery.files import NotificationFiles
from culver.delivery.mailboxes import Mailboxes
from culver.delivery.messages import Gap
from culver.delivery.ranges import LEVELS, Range, merge, merge_in_steps, plan_merges, plan_storing, prune
from culver.delivery.slots import NONE
from culver.log.log import PublicationLog
from culver.pipeline.notifications import Notifications, parse_file_name
from culver.registry.block import Block

_GRACE_US = 1_000_000
_AT_A_TIME = 32  # mailboxes or small ranges, before others on the event loop have their turn
_SMALL_BYTES = 512 * 1024  # of a range that is merged on the loop, in half a millisecond


class Housekeeper:
    """Runs on the event loop's thread, one call at a time; files are worked on in threads."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        files: NotificationFiles,
        cursors: CursorStore,
        log: PublicationLog,
        waiting: Iterable[str],
        now_us: int,
    ) -> None:
        self._mailboxes = mailboxes
        self._files = files
        self._cursors = cursors
        self._log = log
        self._surplus = set(waiting)  # files that are of no use once the frontier has passed them
        self._forgotten: list[tuple[str, int]] = []
        self._forgotten_blocks: list[Block] = []
        # What was accepted less than the grace time ago is kept, whoever wants it: its registration may
        # be on its way here.
        self._noted_us, self._noted = now_us, mailboxes.frontier
        self._settled = 0
        # Mailboxes with a gap that is not on disk: while there are any, nothing that it names may go.
        self.unwritten: set[str] = set()

    def surplus(self, name: str) -> None:
        """A file that repeats what others hold."""
        self._surplus.add(name)

    def forget(self, subscription: str, number: int) -> None:
        """A subscription, up to this registration, has ended. On disk after the next `flush`."""
        self._forgotten.append((subscription, number))
        # At once, to be in front of whatever a new subscription of this id writes; `flush` sees to it.
        self._cursors.forget([(subscription, number)])

    def forget_block(self, block: Block) -> None:
        """The members of a block have ended. On disk after the next `flush`."""
        self._forgotten_blocks.append(block)
        self._cursors.forget([], [block])

    async def flush(self) -> None:
        """Wait until all that was handed over is on disk."""
        forgotten, blocks = tuple(self._forgotten), tuple(self._forgotten_blocks)
        await asyncio.wrap_future(self._cursors.forget(forgotten, blocks))
        self._forgotten = self._forgotten[len(forgotten) :]
        self._forgotten_blocks = self._forgotten_blocks[len(blocks) :]

    async def enforce_limits(self, now_us: int) -> list[str]:
        """Drop what is too old or too much; returns the subscriptions that lost something."""
        if now_us - self._noted_us >= _GRACE_US:
            self._settled = self._noted
            self._noted_us, self._noted = now_us, self._mailboxes.frontier
        mailboxes = self._mailboxes
        for done, (slot, end) in enumerate(mailboxes.expiring(await self._bounds(now_us))):
            self._note(mailboxes.drop(slot, end, "expired"))
            await _pause(done)
        for done, slot in enumerate(mailboxes.overflowing()):
            self._note(mailboxes.drop_overflow(slot))
            await _pause(done)
        slots = {name: mailboxes.slot_of(name) for name in self.unwritten}
        if slots:
            # A subscription may have been removed during a pause, or since an earlier try.
            stored = [(name, mailboxes.stored(slot)) for name, slot in slots.items() if slot != NONE]
            await asyncio.wrap_future(self._cursors.write(stored))
            self.unwritten.difference_update(slots)
        return list(slots)

    def _note(self, gap: Gap | None) -> None:
        """At once: a subscription may be gone after a pause, and the gaps of others must not be lost with it."""
        if gap is not None:
            self.unwritten.add(gap.subscription)

    async def tidy_files(self) -> None:
        """Delete what nobody needs, write what has no file, merge what is small, and move large contents out of
        memory."""
        await self._retire()
        await self.store_files()
        for group in plan_merges(self._mailboxes.ranges):
            await self._merge(group)
        for item in list(self._mailboxes.ranges):
            if item.stored and not item.mapped and item.size >= LEVELS[0].below_bytes:
                secured = await asyncio.to_thread(self._files.secure, item)
                self._mailboxes.exchange([item], secured)

    async def store_files(self) -> None:
        """Write files for what is in memory only."""
        for group in plan_storing(self._mailboxes.ranges):
            await self._merge(group)

    async def _bounds(self, now_us: int) -> dict[int, int]:
        """For each age limit that matters, the first offset that is young enough."""
        shortest = self._mailboxes.shortest_age()
        if shortest is None:
            return {}
        # No mailbox can have lost anything but what lies below the bound of the shortest age.
        bound = await asyncio.to_thread(self._log.offset_at, now_us - shortest)
        ages = self._mailboxes.ages(bound)

        def look_up() -> dict[int, int]:
            return {age: self._log.offset_at(now_us - age) for age in ages}

        return await asyncio.to_thread(look_up) if ages else {}

    async def _retire(self) -> None:
        below = min(self._mailboxes.needed_from(), self._settled)
        ends = [item.end for item in list(self._mailboxes.ranges)[:-1] if item.end <= below]
        names: list[str] = []
        if ends:
            await asyncio.wrap_future(self._cursors.write([], base=ends[-1]))
            names = [item.name for item in self._mailboxes.retire(ends[-1]) if item.stored]
        passed = {name for name in self._surplus if _end_of(name) <= self._mailboxes.frontier}
        self._surplus -= passed
        await self._delete([*names, *passed])

    async def _merge(self, group: list[Range]) -> None:
        content = await _merged(group)
        pruned = False
        if content.end <= self._settled:
            wanted = self._mailboxes.wanted(content)
            pruned = not wanted.all()
            if pruned:
                content = await asyncio.to_thread(prune, content, wanted)
        merged = await asyncio.to_thread(self._files.store, content)
        self._mailboxes.exchange(group, merged, pruned=pruned)
        await self._delete([item.name for item in group if item.stored])

    async def _delete(self, names: Iterable[str]) -> None:
        used = {item.name for item in self._mailboxes.ranges}
        unused = [name for name in names if name not in used]
        if unused:
            await asyncio.to_thread(self._files.delete, unused)


async def _merged(group: Sequence[Range]) -> Notifications:
    """On the loop, between other work, where the ranges are small: in a thread, each step would have the loop wait
    for the interpreter. In a thread where a step takes long."""
    if max(item.size for item in group) > _SMALL_BYTES:
        return await asyncio.to_thread(merge, group)
    for done, content in enumerate(merge_in_steps(group)):
        if content is not None:
            return content
        await _pause(done)
    raise AssertionError("the last step has the content")


def _end_of(name: str) -> int:
    bounds = parse_file_name(name)
    return bounds[1] if bounds is not None else NONE


async def _pause(done: int) -> None:
    if done % _AT_A_TIME == _AT_A_TIME - 1:
        await asyncio.sleep(0)
