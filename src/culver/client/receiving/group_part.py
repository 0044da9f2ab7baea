"""A group at one gateway, which has the mailboxes of some of its members.

following ──> followed ──┬─ connection lost ──> wait (backoff) ──> following
    ^                    ├─ buffer full, or told to: detach, wait until it is low ──┐
    │                    ├─ no member left here: tell the owner ────────────────────┤
    └────────────────────┴──────────────────────────────────────────────────────────┘
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any, Protocol

from culver.client.link import Link, backoff
from culver.client.receiving.group_progress import GroupProgress
from culver.client.receiving.group_selection import GroupSelection
from culver.client.websocket_connection import Connection, GroupEvent
from culver.errors import ClientError, ConnectionFailed, RequestRefused
from culver.messages import Ack, Detach, Followed, GapFor

logger = logging.getLogger("culver.client")

# Behind everything that a site has: a group that is followed from here receives nothing old.
_END = 2**63 - 1


class GroupOwner(Protocol):
    """The feed of the group. What the connection's reading task calls must not block."""

    @property
    def full(self) -> bool: ...

    def take(
        self, part: "GroupPart", offset: int, event: dict[str, Any], names: tuple[str, ...], size: int
    ) -> None:
        """An event for some members that did not have it. There is room, unless `full`."""

    def take_gap(self, names: tuple[str, ...], gap: GapFor) -> None: ...

    def overflowed(self) -> None:
        """`drained` is to wait until the reader has caught up."""

    async def drained(self) -> None: ...

    def followed(self, part: "GroupPart", answer: Followed) -> None:
        """The part is followed, perhaps not for the first time. May raise what ends the stream."""

    def ended(self, part: "GroupPart") -> bool:
        """No member is left at the part's gateway. Whether to go on."""

    async def refused(self, error: RequestRefused) -> bool:
        """Whether to follow again at once, although the site refused."""

    def worth_another_try(self, error: ClientError) -> bool: ...

    def attachment_changed(self) -> None:
        """A part has been attached, or is not any more."""


class GroupPart:
    """`run` is a task of the owner's. `gateway` is the address, or None for that of the client."""

    def __init__(
        self, owner: GroupOwner, link: Link, selection: GroupSelection, gateway: str | None = None
    ) -> None:
        self.gateway = gateway
        self.progress = GroupProgress()
        self.count = 0
        """How many members there were when it was followed."""
        self.is_empty = True
        """Whether there was none then, and none has received anything since."""
        self.is_attached = False
        self._owner = owner
        self._link = link
        self._selection = selection
        self._delays = backoff(random.Random())
        self._interrupted = asyncio.Event()
        self._connection: Connection | None = None  # the one it is followed on, while it is
        self._group = 0
        self._acknowledged = -1
        self._loss: ClientError | None = None
        self._overflowed = False
        self._ended = False

    async def run(self) -> None:
        """Returns when the owner says so; raises what ends the stream."""
        while True:
            try:
                await self._follow()
            except ClientError as exc:
                if isinstance(exc, RequestRefused) and await self._owner.refused(exc):
                    continue
                await self._wait_before_another_try(exc)
                continue
            self._delays = backoff(random.Random())
            await self._interrupted.wait()
            if self._loss is not None:
                if not self._owner.worth_another_try(self._loss):
                    raise self._loss
                logger.warning("%s: %s; connecting again", self._selection, self._loss)
            elif self._ended:
                if not self._owner.ended(self):
                    return
            else:
                await self.detach()
                if self._overflowed:
                    await self._owner.drained()

    def follow_again(self) -> None:
        """Ask anew how many members there are."""
        self._interrupted.set()

    async def acknowledge(self, number: int, highest: int) -> None:
        """Acknowledge for a reader that is done with all events up to `number`, of which `highest` was the highest
        here. Raises ConnectionFailed, and RequestRefused where the group is gone."""
        offset = self.progress.acknowledgeable(number, highest)
        if offset <= self._acknowledged:
            return
        if self._connection is not None:
            try:
                await self._connection.request(Ack(group=self._group, offset=offset))
            except ConnectionFailed as exc:
                logger.debug("%s: acknowledging %d: %s", self._selection, offset, exc)
                await self._acknowledge_aside(offset)
        else:
            await self._acknowledge_aside(offset)
        self._acknowledged = max(self._acknowledged, offset)

    async def detach(self) -> None:
        """End what the site holds on the connection; a lost connection has ended it already."""
        connection, self._connection = self._connection, None
        self._note_attached(False)
        if connection is not None:
            await _leave(connection, self._group)

    async def _follow(self) -> None:
        self._interrupted.clear()
        self._loss, self._overflowed, self._ended = None, False, False
        async with self._link.attaching:
            connection = await self._link.stream_connection(self.gateway)
            answer = await connection.follow(self, self._selection.follow(self.progress.resume_after()))
        if self._loss is None and not self._ended:
            self._connection, self._group = connection, answer.group
            self._note_attached(True)
        self.count, self.is_empty = answer.count, answer.count == 0
        self._owner.followed(self, answer)

    async def _acknowledge_aside(self, offset: int) -> None:
        """Without being followed, as while the reader catches up: a group that gets nothing stands in."""
        async with self._link.aside:
            connection = await self._link.stream_connection(self.gateway)
            answer = await connection.follow(_Ignored(), self._selection.follow(_END))
            try:
                await connection.request(Ack(group=answer.group, offset=offset))
            finally:
                await _leave(connection, answer.group)

    async def _wait_before_another_try(self, error: ClientError) -> None:
        if not self._owner.worth_another_try(error):
            raise error
        delay = next(self._delays)
        logger.warning("%s: %s; trying again in %.1f s", self._selection, error, delay)
        await asyncio.sleep(delay)

    def _note_attached(self, is_attached: bool) -> None:
        self.is_attached = is_attached
        self._owner.attachment_changed()

    # --- for the connection (GroupReceiver) ---

    def deliver(self, events: Sequence[GroupEvent], size: int) -> None:
        share = size // max(1, len(events))
        for offset, event, names in events:
            if self._overflowed:
                self.progress.refuse(offset)
            elif not (new := self.progress.missing(offset, names)):
                self.progress.pass_over(offset)
            elif self._owner.full:
                self._overflowed = True
                self.progress.refuse(offset)
            else:
                self.is_empty = False
                self._owner.take(self, offset, event, new, share)
        if (self._overflowed or self._owner.full) and not self._interrupted.is_set():
            self._overflowed = True
            self._owner.overflowed()
            self._interrupted.set()

    def gap(self, gap: GapFor, names: Sequence[str]) -> None:
        if new := self.progress.take_gap(names, gap.end, gap.reason):
            self._owner.take_gap(new, gap)

    def ended(self, error: ClientError | None) -> None:
        self._ended = error is None
        self._loss = error
        self._connection = None
        self._note_attached(False)
        self._interrupted.set()


class _Ignored:
    """Receives for nobody."""

    def deliver(self, events: Sequence[GroupEvent], size: int) -> None: ...

    def gap(self, gap: GapFor, names: Sequence[str]) -> None: ...

    def ended(self, error: ClientError | None) -> None: ...


async def _leave(connection: Connection, group: int) -> None:
    connection.release(group)
    try:
        await connection.request(Detach(group=group))
    except ClientError as exc:
        logger.debug("detaching group %d: %s", group, exc)
