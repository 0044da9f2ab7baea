"""The composition root of a further gateway: started by the site alone, as
`python -m culver.assembly_gateway SOCKET LISTENER DATA_DIR`.

    1. the site's welcome: settings, share, the files there are; from then on announcements come, and wait
    2. a hub over those files, with the cursors of the share
    3. the registrations of the share, from the registry
    4. the announcements that waited, then each as it comes
    5. clients are answered

The files are listed before the registry is read: a registration is in the registry before there can be a file with
rows for it, so none is missed.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from numpy.typing import NDArray

from culver.delivery import FollowedFiles, Hub
from culver.gateway import GatewayServer, create_app
from culver.log import FollowedLog
from culver.pipeline import SiteFiles
from culver.plugins import open_reader
from culver.registry import Block, Registration, SqliteRegistry
from culver.site import (
    Accepted,
    Announcement,
    Merged,
    Peer,
    Reached,
    Registered,
    RemoteSite,
    Report,
    Welcome,
    gateway_lock,
)

logger = logging.getLogger(__name__)

_LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_HOUSEKEEPING_SECONDS = 1.0
_REACHED_SECONDS = 0.01  # between two messages of how far this gateway has come


class FollowingGateway:
    """One run of a gateway: what the site announces goes into the hub."""

    def __init__(self) -> None:
        self.peer = Peer({"pending": self._pending, "wanted": self._wanted}, self._on_message)
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._waiting: deque[Announcement] = deque()
        self._hub: Hub | None = None
        self._files: FollowedFiles | None = None
        self._log: FollowedLog | None = None
        self._worked_off = 0
        self._telling: asyncio.TimerHandle | None = None
        self.failed = asyncio.Event()
        self.live: list[str] = []
        """Live subscriptions of the share that the registry has."""

    async def open(self, welcome: Welcome) -> Hub:
        """Make the hub, and bring it up to what is announced."""
        files = SiteFiles(welcome.settings.data_dir)
        log = FollowedLog(open_reader(welcome.log_address), welcome.next_offset)
        hub, followed = Hub.follow(
            files.delivery, log, welcome.settings.delivery, welcome.share, welcome.ranges, welcome.frontier
        )
        registered = await asyncio.to_thread(_registrations, welcome)
        hub.register(registered)
        followed.narrow(hub.knows)
        self._hub, self._files, self._log = hub, followed, log
        self.live = [each.id for each in registered if isinstance(each, Registration) and _is_live(each)]
        while self._waiting:
            self._work_off(self._waiting.popleft())
        self._tell()
        return hub

    def _on_message(self, message: object) -> None:
        if isinstance(message, Welcome):
            self.welcome.set_result(message)
        elif isinstance(message, Registered | Accepted | Merged):
            if self._hub is None:
                self._waiting.append(message)
                return
            try:
                self._work_off(message)
            except Exception:
                # A hub that has missed something is of no use: the next process begins with what is there.
                logger.exception("cannot follow the site; starting again")
                self.failed.set()
                return
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_later(_REACHED_SECONDS, self._tell)

    def _work_off(self, message: Announcement) -> None:
        assert self._hub is not None
        assert self._files is not None
        assert self._log is not None
        match message:
            case Registered(registrations):
                self._hub.register(registrations)
            case Accepted(start, end, next_offset):
                self._log.extend(next_offset)
                self._hub.accept(self._files.read(start, end, self._hub.knows))
            case Merged(start, end, pruned):
                self._files.merged(start, end, self._hub.knows, pruned=pruned)
        self._worked_off += 1

    def _tell(self) -> None:
        assert self._hub is not None
        self._telling = None
        self.peer.send(Reached(self._worked_off, self._hub.frontier))

    def _pending(self, subscriptions: list[str]) -> list[int]:
        assert self._hub is not None
        return [self._hub.pending(subscription) for subscription in subscriptions]

    def _wanted(self, numbers: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.bool_]:
        assert self._hub is not None
        return self._hub.mailboxes.wanted(numbers, last)


def _registrations(welcome: Welcome) -> list[Registration | Block]:
    """Those of the share, ended ones too; of blocks all, for each gateway has a part of every one."""
    files = SiteFiles(welcome.settings.data_dir)
    with SqliteRegistry(files.registry, welcome.settings.registry) as registry:
        return [
            each
            for each in registry.registrations()
            if isinstance(each, Block) or welcome.share.owns(each.id)
        ]


def _is_live(registration: Registration) -> bool:
    return not registration.durable and registration.until is None


async def _run(half: socket.socket, listener: socket.socket) -> int:
    gateway = FollowingGateway()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await gateway.peer.connect(half)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(gateway.peer.close)
        ends: list[asyncio.Future[Any]] = [
            asyncio.create_task(event.wait()) for event in (stop, gateway.peer.lost, gateway.failed)
        ]
        for task in ends:
            stack.callback(task.cancel)
        await asyncio.wait([gateway.welcome, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not gateway.welcome.done():
            return 0
        welcome = gateway.welcome.result()
        logging.getLogger().setLevel(welcome.log_level)
        hub = await gateway.open(welcome)
        stack.push_async_callback(hub.close)
        site = RemoteSite(welcome.settings, welcome.share, welcome.ports, gateway.peer, hub)
        # Their connections ended with the gateway that was here before.
        for subscription in gateway.live:
            await site.live.end(subscription)
        if gateway.peer.lost.is_set():
            return 0
        app = create_app(site)
        await stack.enter_async_context(GatewayServer(app, welcome.settings.gateway, listener=listener))
        keeper = asyncio.create_task(
            _keep_house(gateway.peer, hub, site, app.state.gateway.metrics.deliveries_sent)
        )
        stack.callback(keeper.cancel)
        gc.collect()
        gc.freeze()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # First of all: what is acknowledged from now on belongs to whoever comes next.
        await hub.close()
        return 1 if gateway.failed.is_set() else 0


async def _keep_house(peer: Peer, hub: Hub, site: RemoteSite, deliveries_sent: Callable[[], int]) -> None:
    while True:
        try:
            await site.live.try_again()
            finished = await hub.housekeep(time.time_ns() // 1000)
            peer.send(
                Report(
                    hub.needed_from(),
                    finished,
                    hub.subscriptions,
                    hub.sessions,
                    hub.mailboxes.all_pending(),
                    deliveries_sent(),
                )
            )
        except Exception:
            logger.exception("housekeeping failed and is tried again")
        await asyncio.sleep(_HOUSEKEEPING_SECONDS)


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT, stream=sys.stderr)
    half, listener = (socket.socket(fileno=int(handle)) for handle in sys.argv[1:3])
    data_dir = Path(sys.argv[3])
    # As in the site: see `culver.assembly`.
    sys.setswitchinterval(0.00005)
    gc.set_threshold(10_000, 10, 50)
    with half, listener, gateway_lock(data_dir):
        return uvloop.run(_run(half, listener))


if __name__ == "__main__":
    sys.exit(main())
