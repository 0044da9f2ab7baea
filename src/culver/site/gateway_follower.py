"""A further gateway process follows its site: it applies announcements to its own hub, and reports.

    1. the site sends a welcome: settings, share, the files there are; announcements that follow it wait
    2. the process opens a hub over those files, with the cursors of its share
    3. it reads the registrations of the share from the registry
    4. it applies the announcements that wait, then each as it comes
    5. it serves clients

The files are listed before the registry is read: a registration is in the registry before there can be a file with
rows for it, so none is missed.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from culver.control import SiteClock
from culver.delivery import FollowedFiles, Hub
from culver.errors import CulverError
from culver.gateway import GatewayServer, create_app
from culver.log import FollowedLog
from culver.process_setup import freeze_objects, repeated
from culver.registry import Block, Registration
from culver.site.gateway_messages import (
    Announcement,
    GatewayReport,
    RangeAccepted,
    RangesMerged,
    Reached,
    RegistrationsChanged,
    Welcome,
)
from culver.site.peer import Peer
from culver.site.remote_site import RemoteSite

logger = logging.getLogger(__name__)

# The shortest time between two messages of how far the gateway has come.
_REACHED_SECONDS = 0.01
_RESERVE_SECONDS = 10.0


class GatewayFollower:
    """One run of a gateway process. It ends with SIGTERM, with its site, and when it cannot follow any more. Answers
    the site's requests `pending` and `wanted`."""

    def __init__(self) -> None:
        self.peer = Peer(self, self._on_message)
        self._loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._waiting: deque[Announcement] = deque()
        self._hub: Hub | None = None
        self._files: FollowedFiles | None = None
        self._log: FollowedLog | None = None
        self._applied = 0
        self._report_timer: asyncio.TimerHandle | None = None
        self._terminated = asyncio.Event()
        self._failed = asyncio.Event()
        self._ends: list[asyncio.Future[Any]] = []
        self._orphans: list[str] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, half: socket.socket) -> AsyncIterator[Self]:
        """Takes the socket over."""
        follower = cls()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, follower._terminated.set)
        await follower.peer.connect(half)
        follower._ends = [
            asyncio.create_task(event.wait())
            for event in (follower._terminated, follower.peer.lost, follower._failed)
        ]
        try:
            yield follower
        finally:
            for task in follower._ends:
                task.cancel()
            follower.peer.close()

    def ask_for_reserve(self) -> None:
        """Have the site give up its disk reserve, so that an acknowledgement can be written. Blocks, in a thread of
        the caller."""
        with contextlib.suppress(CulverError, TimeoutError):
            asyncio.run_coroutine_threadsafe(self._ask_for_reserve(), self._loop).result(_RESERVE_SECONDS)

    async def _ask_for_reserve(self) -> None:
        await self.peer.request("give_up_reserve")

    async def welcome(self) -> Welcome | None:
        """Wait for the site's first message; None if the end comes before it."""
        first: list[asyncio.Future[Any]] = [self._welcome, *self._ends]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        return self._welcome.result() if self._welcome.done() else None

    def follow(
        self,
        hub: Hub,
        files: FollowedFiles,
        log: FollowedLog,
        registered: Sequence[Registration | Block],
    ) -> None:
        """Bring the hub up to the last announcement. `registered` is what the registry has of the share."""
        hub.register(registered)
        files.narrow(hub.knows)
        self._hub, self._files, self._log = hub, files, log
        singles = [each for each in registered if isinstance(each, Registration)]
        self._orphans = [each.id for each in singles if not each.durable and each.until is None]
        while self._waiting:
            self._apply(self._waiting.popleft())
        self._tell_reached()

    async def serve(self, site: RemoteSite, listener: socket.socket) -> int:
        hub = self._hub
        assert hub is not None
        # The connections of these live subscriptions ended with the process before this one.
        for subscription in self._orphans:
            await site.live.end(subscription)
        if self.peer.lost.is_set():
            return 0
        app = create_app(site)
        clock = SiteClock(self._welcome.result().now_us)
        sent: Callable[[], int] = app.state.gateway.metrics.deliveries_sent

        async def keep_house() -> None:
            await site.live.try_again()
            clock.follow()
            finished = await hub.housekeep(clock.now_us())
            figures = (hub.subscriptions, hub.sessions, hub.mailboxes.columns.all_pending(), sent())
            self.peer.send(GatewayReport(hub.needed_from(), finished, *figures))

        async with GatewayServer(app, site.settings.gateway, listener=listener):
            freeze_objects()
            async with repeated(keep_house, first_after_seconds=0):
                await asyncio.wait(self._ends, return_when=asyncio.FIRST_COMPLETED)
            # The hub closes before the server: later acknowledgements belong to the next process.
            await hub.close()
        return 1 if self._failed.is_set() else 0

    # --- requests of the site -------------------------------------------------------------------------

    def pending(self, subscriptions: Sequence[str]) -> list[int]:
        assert self._hub is not None
        return [self._hub.pending(subscription) for subscription in subscriptions]

    def wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
        assert self._hub is not None
        return self._hub.mailboxes.wanted(numbers, last)

    # --- announcements --------------------------------------------------------------------------------

    def _on_message(self, message: object) -> None:
        if isinstance(message, Welcome):
            self._welcome.set_result(message)
        elif isinstance(message, RegistrationsChanged | RangeAccepted | RangesMerged):
            if self._hub is None:
                self._waiting.append(message)
                return
            try:
                self._apply(message)
            except Exception:
                # A hub that has missed an announcement is useless. The next process starts from the files.
                logger.exception("cannot follow the site; starting again")
                self._failed.set()
                return
            if self._report_timer is None:
                loop = asyncio.get_running_loop()
                self._report_timer = loop.call_later(_REACHED_SECONDS, self._tell_reached)

    def _apply(self, message: Announcement) -> None:
        assert self._hub is not None
        assert self._files is not None
        assert self._log is not None
        match message:
            case RegistrationsChanged(registrations):
                self._hub.register(registrations)
            case RangeAccepted(start, end, next_offset):
                self._log.extend(next_offset)
                self._hub.accept(self._files.read(start, end, self._hub.knows))
            case RangesMerged(start, end, pruned):
                self._files.merged(start, end, self._hub.knows, pruned=pruned)
        self._applied += 1

    def _tell_reached(self) -> None:
        assert self._hub is not None
        self._report_timer = None
        self.peer.send(Reached(self._applied, self._hub.frontier))
