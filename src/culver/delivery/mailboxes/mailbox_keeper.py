"""Keeps the mailboxes, about once a second: enforces their limits, and forgets those that have ended.

A gap is on disk before anything that it names may go.
"""

import asyncio

from culver.delivery.deliveries import DeliveryGap
from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.log import ReadableLog
from culver.registry import Block

# How many mailboxes are cut down before the event loop gets a turn.
_DROPS_AT_A_TIME = 64


class MailboxKeeper:
    """Runs on the event loop's thread, one call at a time."""

    def __init__(self, mailboxes: Mailboxes, cursors: CursorStore, log: ReadableLog) -> None:
        self._mailboxes = mailboxes
        self._cursors = cursors
        self._log = log
        self._forgotten: list[tuple[str, int]] = []
        self._forgotten_blocks: list[Block] = []
        self.unwritten: set[str] = set()
        """Subscriptions with a gap that is not on disk. While there are any, nothing that it names may go."""

    def forget(self, subscription: str, number: int) -> None:
        """Forget a subscription that has ended with this registration; on disk after the next `flush`."""
        self._forgotten.append((subscription, number))
        # Hand it over at once, before a new subscription of this id writes anything. `flush` repeats it.
        self._cursors.forget([(subscription, number)])

    def forget_block(self, block: Block) -> None:
        """Forget the members of a block that has ended; on disk after the next `flush`."""
        self._forgotten_blocks.append(block)
        self._cursors.forget([], [block])

    async def flush(self) -> None:
        """Wait until everything that was handed over is on disk."""
        forgotten, blocks = tuple(self._forgotten), tuple(self._forgotten_blocks)
        await asyncio.wrap_future(self._cursors.forget(forgotten, blocks))
        self._forgotten = self._forgotten[len(forgotten) :]
        self._forgotten_blocks = self._forgotten_blocks[len(blocks) :]

    async def enforce_limits(self, now_us: int) -> list[str]:
        """Drop deliveries that are too old or too many. Returns the subscriptions that lost something."""
        mailboxes = self._mailboxes
        for done, (slot, end) in enumerate(mailboxes.columns.expiring(await self._bounds(now_us))):
            self._note(mailboxes.drop(slot, end, "expired"))
            await _pause(done)
        for done, slot in enumerate(mailboxes.columns.overflowing()):
            self._note(mailboxes.drop_overflow(slot))
            await _pause(done)
        slots = {name: mailboxes.slot_of(name) for name in self.unwritten}
        if slots:
            # A subscription may have been removed during a pause, or since an earlier try.
            stored = [(name, mailboxes.stored(slot)) for name, slot in slots.items() if slot != NONE]
            await asyncio.wrap_future(self._cursors.write(stored))
            self.unwritten.difference_update(slots)
        return list(slots)

    def _note(self, gap: DeliveryGap | None) -> None:
        """Note a gap at once: its subscription may be gone after a pause."""
        if gap is not None:
            self.unwritten.add(gap.subscription)

    async def _bounds(self, now_us: int) -> dict[int, int]:
        """For each age limit that matters, the first offset that is young enough."""
        columns = self._mailboxes.columns
        shortest = columns.shortest_age()
        if shortest is None:
            return {}
        # The shortest age limit has the highest bound. Nothing above it is too old for any mailbox.
        bound = await asyncio.to_thread(self._log.offset_at, now_us - shortest)
        ages = columns.ages(bound)
        offsets = await asyncio.to_thread(lambda: [self._log.offset_at(now_us - age) for age in ages])
        return dict(zip(ages, offsets, strict=True))


async def _pause(done: int) -> None:
    if done % _DROPS_AT_A_TIME == _DROPS_AT_A_TIME - 1:
        await asyncio.sleep(0)
