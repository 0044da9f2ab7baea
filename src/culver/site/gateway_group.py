"""All gateways of a site, seen from the site: told what happens, asked for what they need.

The site's own process is gateway 0 and has a share like the others; with one gateway the group is empty, and
everything is as if there were none.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.control import GatewayInfo
from culver.delivery import NEVER, Finished, Range, Share, share_of
from culver.errors import Unavailable
from culver.registry import Block, Registration
from culver.site.gateway_member import Attachment, Member
from culver.site.gateway_messages import Accepted, Announcement, Merged, Registered, Welcome
from culver.site.peer import Methods


class Group:
    """Implements delivery's Followers and the catalogue's RegistrationSink, for the gateways from 1 on. Owns their
    listening sockets. Lives on the event loop."""

    def __init__(self, listeners: Sequence[socket.socket], data_dir: Path) -> None:
        self.gateways = 1 + len(listeners)
        self._finished: list[int] = []
        self._finished_blocks: dict[int, set[int]] = {}  # and which gateways have done with them
        self._released: list[tuple[Sequence[str], list[tuple[Attachment, int]]]] = []
        self._members = [
            Member(Share(number, self.gateways), listener, data_dir, partial(self._note, number))
            for number, listener in enumerate(listeners, 1)
        ]

    @contextlib.asynccontextmanager
    async def running(
        self, methods: Callable[[int], Methods], welcome: Callable[[Share], Welcome]
    ) -> AsyncIterator[None]:
        """`methods` are what a gateway may ask, by its number."""
        tasks = [asyncio.create_task(each.run(methods(each.share.number), welcome)) for each in self._members]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(each.stop() for each in self._members))

    def watch(self, number: int) -> Callable[[], bool]:
        """Tells whether the process that gateway has now is gone."""
        run = self._members[number - 1].attachment
        return lambda: run is None or run.peer.lost.is_set()

    @property
    def started(self) -> bool:
        """Every gateway has run, if not at this moment."""
        return all(each.started for each in self._members)

    @property
    def trouble(self) -> str | None:
        down = [str(each.share.number) for each in self._members if each.started and each.state != "running"]
        return f"gateway {', '.join(down)} is being started again" if down else None

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(each.port for each in self._members)

    @property
    def pending(self) -> int:
        return sum(each.report.pending for each in self._members)

    def deliveries_sent(self, without: int = 0) -> int:
        """By all of them but one."""
        return sum(each.report.deliveries_sent for each in self._members if each.share.number != without)

    def frontier(self, own: int) -> int:
        """All gateways have accepted what lies below, `own` being how far the site itself has come."""
        return min([own, *(each.frontier for each in self._members)])

    def infos(self) -> list[GatewayInfo]:
        return [
            GatewayInfo(
                each.share.number, each.port, each.state, each.report.subscriptions, each.report.sessions
            )
            for each in self._members
        ]

    # --- what happens at the site ---------------------------------------------------------------------

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        shares: dict[int, list[Registration | Block]] = {each.share.number: [] for each in self._members}
        for registration in registrations if self._members else ():
            if isinstance(registration, Block):
                # Each has a part of it, and needs no values for that.
                for share in shares.values():
                    share.append(replace(registration, values=b""))
            elif number := share_of(registration.id, self.gateways):
                shares[number].append(registration)
        for each in self._members:
            if shares[each.share.number]:
                each.announce(Registered(tuple(shares[each.share.number])))

    def accepted(self, start: int, end: int, next_offset: int) -> None:
        if self._members:
            self._announce(Accepted(start, end, next_offset))

    def _announce(self, message: Announcement) -> None:
        for each in self._members:
            each.announce(message)

    # --- delivery.tidying.Followers -------------------------------------------------------------------

    def needed_from(self) -> int:
        """Nothing goes before every gateway has told once what it needs."""
        return min((each.report.needed_from for each in self._members), default=NEVER)

    async def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        # Their registrations were announced before this is asked: whoever has a row there knows of it.
        try:
            peers = [each.peer for each in self._members]
            answers = await asyncio.gather(*(peer.request("wanted", numbers, last) for peer in peers))
        except Unavailable:
            return None
        wanted = np.zeros(len(numbers), np.bool_)
        for answer in answers:
            wanted |= answer
        return wanted

    def merged(self, item: Range, *, pruned: bool) -> None:
        self._announce(Merged(item.notifications.start, item.notifications.end, pruned))

    def release(self, names: Sequence[str]) -> list[str]:
        """A gateway that runs may be about to read any file that it has been told of."""
        readers = [(run, run.announced) for each in self._members if (run := each.attachment) is not None]
        if names:
            self._released.append((names, readers))
        done = [item for item in self._released if all(run.is_past(count) for run, count in item[1])]
        self._released = [item for item in self._released if item not in done]
        return [name for names, _ in done for name in names]

    # --- what gateways tell ---------------------------------------------------------------------------

    def _note(self, number: int, finished: Finished) -> None:
        self._finished += finished.numbers
        for block in finished.blocks:
            self._finished_blocks.setdefault(block, set()).add(number)

    def take_finished(self, own: Finished) -> Finished:
        """What all gateways that had to do with it have done with, the site being one; each once."""
        self._note(0, own)
        blocks = [block for block, by in self._finished_blocks.items() if len(by) == self.gateways]
        for block in blocks:
            del self._finished_blocks[block]
        numbers, self._finished = self._finished, []
        return Finished(sorted(numbers), sorted(blocks))

    async def ask_pending(self, subscriptions: Sequence[str]) -> Mapping[str, int]:
        """How much waits in the mailboxes of the subscriptions of the group. Raises Unavailable."""
        shares: dict[int, list[str]] = {}
        for subscription in subscriptions if self._members else ():
            if number := share_of(subscription, self.gateways):
                shares.setdefault(number, []).append(subscription)
        peers = [(self._members[number - 1].peer, ids) for number, ids in shares.items()]
        answers = await asyncio.gather(*(peer.request("pending", ids) for peer, ids in peers))
        return {
            subscription: count
            for ids, counts in zip(shares.values(), answers, strict=True)
            for subscription, count in zip(ids, counts, strict=True)
        }
