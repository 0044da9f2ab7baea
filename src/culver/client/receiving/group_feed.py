"""Feeds the stream of a group: follows it at every gateway, and joins what comes.

    part at gateway 1 ──╮
    part at gateway 2 ──┼──> buffer ──> stream
    part at gateway 3 ──╯

Every event that comes has a number, in the order of arrival, which is the order of the stream. A mark is the number
of a message, and the highest offset of each part up to there: being done with a message is being done with all before
it, at each gateway with what came from there.
"""

import asyncio
import logging
from typing import Any

from culver.client.link import Link, subscription_path
from culver.client.receiving.acknowledgements import Acknowledger
from culver.client.receiving.group_part import GroupPart
from culver.client.receiving.group_selection import GroupSelection
from culver.client.receiving.item_supply import ItemSupply
from culver.client.receiving.message_buffer import GroupBuffer
from culver.client.receiving.received_messages import GroupGap, GroupMessage
from culver.errors import ClientError, ConnectionFailed, CulverError, RequestRefused
from culver.messages import Followed, GapFor

logger = logging.getLogger("culver.client")

_FLUSH_SECONDS = 2.0
_NAMED = 3  # subscriptions in a sentence
Mark = tuple[int, ...]


class GroupFeed(ItemSupply[GroupMessage | GroupGap]):
    """Implements GroupOwner for its parts.

    Where the site comes back with other gateways, their shares are other ones, too: the group is followed anew, and
    what is not acknowledged may come again."""

    def __init__(
        self, link: Link, selection: GroupSelection, *, reconnect: bool, buffer_count: int, buffer_bytes: int
    ) -> None:
        self._buffer = GroupBuffer(max_count=buffer_count, max_bytes=buffer_bytes)
        super().__init__(self._buffer)
        self.selection = selection
        self.count: int | None = None
        self._link = link
        self._reconnect = reconnect
        self._attached = asyncio.Event()  # all parts are
        self._acknowledger = Acknowledger[Mark](str(selection), self._send, self._attached)
        self._parts: list[GroupPart] = []
        self._gateways: dict[GroupPart, frozenset[str]] = {}  # the other ones, as each part was told first
        self._confirmed: set[GroupPart] = set()  # that they have no member
        self._group: asyncio.TaskGroup
        self._running: list[asyncio.Task[None]] = []
        self._number = 0  # of the newest event
        self._first_number = 0  # of the first event from these gateways
        self._any_ended = False
        self._over = False
        self._stopped = asyncio.Event()  # the parts are to stop: it is over, or there are other gateways

    # --- for the stream that reads ---

    @property
    def started(self) -> bool:
        return self.count is not None

    def done_with(self, item: GroupMessage) -> None:
        self._acknowledger.want(item.mark)

    def describe(self, gap: GroupGap) -> str:
        first = ", ".join(gap.subscriptions[:_NAMED])
        more = len(gap.subscriptions) - _NAMED
        return f"{self.selection}: {first}" + (f" and {more} more" if more > 0 else "")

    # --- the task ---

    async def run(self) -> None:
        try:
            while not self._over:
                await self._follow_everywhere()
        except CulverError as exc:
            self._error = exc
        finally:
            self._finished = True
            self._changed.set()
            await self._acknowledger.close(_FLUSH_SECONDS)
            await self._leave_all()

    async def _follow_everywhere(self) -> None:
        """Returns when the group has ended, and when it has other gateways than before."""
        self._stopped.clear()
        self._first_number = self._number + 1
        self._parts, self._gateways, self._confirmed = [], {}, set()
        try:
            async with asyncio.TaskGroup() as self._group:
                self._running = []
                self._start(None)
                await self._stopped.wait()
                for task in self._running:
                    task.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        if not self._over:
            logger.warning("%s: the site has other gateways; following it again", self.selection)
            await self._leave_all()

    def _start(self, gateway: str | None) -> None:
        part = GroupPart(self, self._link, self.selection, gateway)
        self._parts.append(part)
        self._running.append(self._group.create_task(part.run(), name=f"culver-client {self.selection}"))

    async def _leave_all(self) -> None:
        for part in self._parts:
            await part.detach()

    def _finish(self) -> None:
        self._over = True
        self._stopped.set()

    # --- acknowledging ---

    async def _send(self, mark: Mark) -> None:
        number, *highest = mark
        if number < self._first_number:
            return  # it came from other gateways, and comes again
        outcomes = await asyncio.gather(
            *(part.acknowledge(number, offset) for part, offset in zip(self._parts, highest, strict=False)),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not (self._any_ended and _is_missing(outcome)):
                raise outcome

    # --- for the parts (GroupOwner) ---

    @property
    def full(self) -> bool:
        return self._buffer.full

    def take(
        self, part: GroupPart, offset: int, event: dict[str, Any], names: tuple[str, ...], size: int
    ) -> None:
        self._number += 1
        part.progress.take(self._number, offset, names)
        mark = (self._number, *(each.progress.highest for each in self._parts))
        self._buffer.offer(GroupMessage(event, offset, names, self._acknowledger.reach, mark), size)
        self._changed.set()

    def take_gap(self, names: tuple[str, ...], gap: GapFor) -> None:
        self._buffer.announce(GroupGap(names, gap.start, gap.end, gap.dropped, gap.reason))
        self._changed.set()

    def overflowed(self) -> None:
        self._drained.clear()

    async def drained(self) -> None:
        await self._drained.wait()

    def followed(self, part: GroupPart, answer: Followed) -> None:
        gateways = frozenset(answer.gateways)
        known = self._gateways.setdefault(part, gateways)
        if known != gateways:
            self._stopped.set()
        elif len(self._gateways) == 1 and len(self._parts) == 1:
            for gateway in sorted(gateways):
                self._start(gateway)
        if self.started:
            self._check_end(part)
        elif all(each in self._gateways for each in self._parts):
            if self.selection.set_name is not None and all(each.is_empty for each in self._parts):
                raise self._missing_set()
            self.count = sum(each.count for each in self._parts)
            self._changed.set()

    def ended(self, part: GroupPart) -> bool:
        self._any_ended = True
        if len(self._parts) > 1:
            return True  # there may be members elsewhere, or new ones
        self._finish()
        return False

    def attachment_changed(self) -> None:
        if all(part.is_attached for part in self._parts):
            self._attached.set()
        else:
            self._attached.clear()

    async def refused(self, error: RequestRefused) -> bool:
        """Some of a list may be gone, which a site that is asked for it anew refuses."""
        if not self.started or not _is_missing(error) or self.selection.subscriptions is None:
            return False
        left = [name for name in self.selection.subscriptions if await self._exists(name)]
        if len(left) == len(self.selection.subscriptions):
            return False
        if left:
            self.selection.subscriptions = left
        else:
            self._finish()
        return True

    def worth_another_try(self, error: ClientError) -> bool:
        if not self.started or not self._reconnect:
            return False
        if isinstance(error, RequestRefused):
            return bool(error.details.get("retryable"))
        return isinstance(error, ConnectionFailed)

    def _check_end(self, part: GroupPart) -> None:
        """Ends the stream where no gateway has a member. A part hears nothing of it where it had none from the
        beginning; and others may have come, so each of them says so anew."""
        if not self.selection.can_end or not all(each.is_empty for each in self._parts):
            self._confirmed.clear()
            return
        self._confirmed.add(part)
        asked = [each for each in self._parts if each not in self._confirmed]
        for each in asked:
            each.follow_again()
        if asked:
            return
        if not self._any_ended:
            raise self._missing_set()
        self._finish()

    def _missing_set(self) -> RequestRefused:
        name = self.selection.set_name
        return RequestRefused(f"there is no set {name!r}", field="set", code="not_found", status=404)

    async def _exists(self, subscription: str) -> bool:
        status, _ = await self._link.http("GET", subscription_path(subscription), accept=(404,))
        return status != 404


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, RequestRefused) and error.details.get("code") == "not_found"
