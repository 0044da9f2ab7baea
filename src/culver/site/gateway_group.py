"""All gateways of a site, seen from the site.

The site's own process is gateway 0 and has a share like the others. With one gateway the group is empty and does
nothing.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from culver.config import GatewaySettings
from culver.control import GatewayInfo
from culver.delivery import NEVER, FinishedRegistrations, RetainedRange, Share, share_of
from culver.errors import InvalidConfiguration, Unavailable
from culver.gateway import OriginPolicy, bind
from culver.pipeline import Engine
from culver.registry import Block, Registration
from culver.site.gateway_messages import RangeAccepted, RangesMerged, RegistrationsChanged, Welcome
from culver.site.gateway_supervisor import GatewayRun, GatewaySupervisor, Serve

_MOST_GATEWAYS = 64


def check_gateways(settings: GatewaySettings, engine: type[Engine]) -> None:
    """Raises InvalidConfiguration for settings of the gateways that the site cannot have."""
    OriginPolicy(settings)
    count = settings.processes
    if not 1 <= count <= _MOST_GATEWAYS:
        raise InvalidConfiguration(
            f"gateway.processes must be from 1 to {_MOST_GATEWAYS}, it is {count}", field="gateway.processes"
        )
    if count > 1 and not engine.writes_files:
        raise InvalidConfiguration(
            f"the {engine.name} engine hands its results on in memory, to the one gateway in its own process; "
            "several gateways need the spark engine",
            field="gateway.processes",
        )


def listeners(settings: GatewaySettings) -> Iterator[socket.socket]:
    """Bind the further gateways' sockets, on ports behind the site's own, or on any. Raises InvalidConfiguration."""
    for number in range(1, settings.processes):
        yield bind(replace(settings, port=settings.port + number if settings.port else 0))


class GatewayGroup:
    """Tells the gateways from 1 on what happens at the site, and collects what they need. Implements delivery's
    Followers. Owns the gateways' listening sockets. Lives on the event loop."""

    def __init__(self, listeners: Sequence[socket.socket], data_dir: Path) -> None:
        self.gateways = 1 + len(listeners)
        self.share = Share(0, self.gateways)
        """The share of the site's own gateway."""
        self.own_port = 0
        self.own_deliveries_sent: Callable[[], int] = lambda: 0
        self._finished: list[int] = []
        # The gateways that have finished each block.
        self._finished_blocks: dict[int, set[int]] = {}
        self._released: list[tuple[Sequence[str], list[tuple[GatewayRun, int]]]] = []
        self._supervisors = [
            GatewaySupervisor(Share(number, self.gateways), listener, data_dir, partial(self._note, number))
            for number, listener in enumerate(listeners, 1)
        ]

    @contextlib.asynccontextmanager
    async def running(self, serve: Serve, welcome: Callable[[Share], Welcome]) -> AsyncIterator[None]:
        """Keep all processes running. `serve` makes the object that answers the requests of a run."""
        tasks = [asyncio.create_task(each.run(serve, welcome)) for each in self._supervisors]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(each.stop() for each in self._supervisors))

    @property
    def started(self) -> bool:
        return all(each.started for each in self._supervisors)

    @property
    def trouble(self) -> str | None:
        down = [
            str(each.share.number) for each in self._supervisors if each.started and each.state != "running"
        ]
        return f"gateway {', '.join(down)} is being started again" if down else None

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.own_port, *(each.port for each in self._supervisors))

    @property
    def pending(self) -> int:
        return sum(each.report.pending for each in self._supervisors)

    def deliveries_sent(self, without: int) -> int:
        """How many deliveries all gateways but one have sent."""
        sent = [self.own_deliveries_sent(), *(each.report.deliveries_sent for each in self._supervisors)]
        return sum(sent) - sent[without]

    def frontier(self, own: int) -> int:
        """The position below which all gateways have accepted everything; `own` is the site's frontier."""
        return min([own, *(each.frontier for each in self._supervisors)])

    def infos(self) -> list[GatewayInfo]:
        return [
            GatewayInfo(
                each.share.number, each.port, each.state, each.report.subscriptions, each.report.sessions
            )
            for each in self._supervisors
        ]

    # --- announcements --------------------------------------------------------------------------------

    def register(self, registrations: Sequence[Registration | Block]) -> None:
        for each in self._supervisors:
            # Each gateway has a part of every block, and needs no values for that.
            own = tuple(
                replace(item, values=b"") if isinstance(item, Block) else item
                for item in registrations
                if isinstance(item, Block) or each.share.owns(item.id)
            )
            if own:
                each.announce(RegistrationsChanged(own))

    def accepted(self, start: int, end: int, next_offset: int) -> None:
        for each in self._supervisors:
            each.announce(RangeAccepted(start, end, next_offset))

    # --- delivery's Followers -------------------------------------------------------------------------

    def needed_from(self) -> int:
        """0 until every gateway has reported its needs once."""
        return min((each.report.needed_from for each in self._supervisors), default=NEVER)

    async def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        # The gateways heard of their registrations before this question, so each knows all its rows.
        try:
            peers = [each.peer for each in self._supervisors]
            answers = await asyncio.gather(*(peer.request("wanted", numbers, last) for peer in peers))
        except Unavailable:
            return None
        wanted = np.zeros(len(numbers), np.bool_)
        for answer in answers:
            wanted |= answer
        return wanted

    def merged(self, item: RetainedRange, *, pruned: bool) -> None:
        for each in self._supervisors:
            each.announce(RangesMerged(item.notifications.start, item.notifications.end, pruned))

    def release(self, names: Sequence[str]) -> list[str]:
        """Hold each name back until no running gateway can be about to read its file."""
        readers = [(run, run.announced) for each in self._supervisors if (run := each.current) is not None]
        if names:
            self._released.append((names, readers))
        done = [item for item in self._released if all(run.is_past(count) for run, count in item[1])]
        self._released = [item for item in self._released if item not in done]
        return [name for names, _ in done for name in names]

    # --- reports --------------------------------------------------------------------------------------

    def _note(self, number: int, finished: FinishedRegistrations) -> None:
        self._finished += finished.numbers
        for block in finished.blocks:
            self._finished_blocks.setdefault(block, set()).add(number)

    def take_finished(self, own: FinishedRegistrations) -> FinishedRegistrations:
        """Return, once, what every gateway with a part in it has finished; `own` is from the site's own gateway."""
        self._note(0, own)
        blocks = [block for block, by in self._finished_blocks.items() if len(by) == self.gateways]
        for block in blocks:
            del self._finished_blocks[block]
        numbers, self._finished = self._finished, []
        return FinishedRegistrations(sorted(numbers), sorted(blocks))

    async def count_pending(
        self, registrations: Sequence[Registration], own: Callable[[str], int]
    ) -> list[int]:
        """Count what waits in each mailbox; `own` counts for the site's own share. Raises Unavailable."""
        shares: dict[int, list[str]] = {}
        for registration in registrations:
            if registration.durable and (number := share_of(registration.id, self.gateways)):
                shares.setdefault(number, []).append(registration.id)
        peers = [(self._supervisors[number - 1].peer, ids) for number, ids in shares.items()]
        answers = await asyncio.gather(*(peer.request("pending", ids) for peer, ids in peers))
        others = {
            subscription: count
            for ids, counts in zip(shares.values(), answers, strict=True)
            for subscription, count in zip(ids, counts, strict=True)
        }
        return [others[each.id] if each.id in others else own(each.id) for each in registrations]
