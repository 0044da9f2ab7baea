"""What is done about once a second for the mailboxes: limits are enforced, and what has ended is forgotten.

Gaps are on disk before anything that was dropped may go.
"""

import asyncio

from culver.delivery.deliveries import DeliveryGap
from culver.delivery.mailboxes.cursor_store import CursorStore
from culver.delivery.mailboxes.mailbox_columns import NONE
from culver.delivery.mailboxes.mailboxes import Mailboxes
from culver.log import ReadableLog
from culver.registry import Block

_DROPS_AT_A_TIME = 64  # mailboxes, before the event loop gets a turn


class Housekeeper:
    """Runs on the event loop's thread, one call at a time."""

    def __init__(self, mailboxes: Mailboxes, cursors: CursorStore, log: ReadableLog) -> None:
        self._mailboxes = mailboxes
        self._cursors = cursors
        self._log = log
        self._forgotten: list[tuple[str, int]] = []
        self._forgotten_blocks: list[Block] = []
        # Mailboxes with a gap that is not on disk: while there are any, nothing that it names may go.
        self.unwritten: set[str] = set()

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

    def _note(self, gap: DeliveryGap | None) -> None:
        """At once: a subscription may be gone after a pause, and the gaps of others must not be lost with it."""
        if gap is not None:
            self.unwritten.add(gap.subscription)

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


async def _pause(done: int) -> None:
    if done % _DROPS_AT_A_TIME == _DROPS_AT_A_TIME - 1:
        await asyncio.sleep(0)
