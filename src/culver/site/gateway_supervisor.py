"""Runs one further gateway process for the site: starts it, watches it, and starts it again when it dies.

The site keeps the gateway's listening socket and hands it to each new process: while there is none, connections
wait in the socket's queue, and the port is never lost. Site and process share a pair of sockets; when the site
ends, however it does, the process reads the end of the stream and stops.
"""

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from culver.delivery import FinishedRegistrations, Share
from culver.errors import Unavailable
from culver.site.gateway_messages import Announcement, GatewayReport, Reached, Welcome
from culver.site.peer import Peer

logger = logging.getLogger(__name__)

# The composition root puts the process together.
_PROGRAM = ("culver.assembly", "gateway")
# A process that runs reports every second.
_SILENCE_SECONDS = 20.0
_STOP_SECONDS = 6.0
_SETTLED_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 5.0


class GatewayRun:
    """One run of a gateway's process, from its welcome on. `serve` makes the object that answers its requests."""

    def __init__(
        self, number: int, serve: Callable[["GatewayRun"], object], on_message: Callable[[object], None]
    ) -> None:
        self.number = number
        self.announced = 0
        self.reached = 0
        self.peer = Peer(serve(self), on_message)

    def announce(self, message: Announcement) -> None:
        self.announced += 1
        self.peer.send(message)

    def is_past(self, announced: int) -> bool:
        """Whether it has applied that many announcements, or never will."""
        return self.reached >= announced or self.peer.lost.is_set()


Serve = Callable[[GatewayRun], object]


class GatewaySupervisor:
    """Remembers the last report while the process is down: its needs above all."""

    def __init__(
        self,
        share: Share,
        listener: socket.socket,
        data_dir: Path,
        on_finished: Callable[[FinishedRegistrations], None],
    ) -> None:
        self.share = share
        self.port: int = listener.getsockname()[1]
        self.state = "starting"
        self.report = GatewayReport()
        self.frontier = 0
        self.started = False
        """Whether it has run at least once."""
        self.current: GatewayRun | None = None
        self._listener = listener
        self._data_dir = data_dir
        self._on_finished = on_finished
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = 0.0

    @property
    def peer(self) -> Peer:
        """Raises Unavailable while there is no process, or it is still starting."""
        if self.current is None or self.state != "running":
            raise Unavailable(f"gateway {self.share.number} of the site is {self.state}; try again soon")
        return self.current.peer

    def announce(self, message: Announcement) -> None:
        if self.current is not None:
            self.current.announce(message)

    async def run(self, serve: Serve, welcome: Callable[[Share], Welcome]) -> None:
        """Keep a process running until cancelled."""
        pause_seconds = 0.1
        while True:
            began = time.monotonic()
            try:
                await self._run_once(serve, welcome)
                logger.error("gateway %d has ended and is started again", self.share.number)
            except Exception:
                logger.exception("gateway %d cannot be started; trying again", self.share.number)
            finally:
                self.current = None
            settled = self.state == "running" and time.monotonic() - began > _SETTLED_SECONDS
            pause_seconds = 0.1 if settled else min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            self.state = "starting again"
            await asyncio.sleep(pause_seconds)

    async def stop(self) -> None:
        """After `run` has been cancelled. Nothing is left running."""
        self.state = "stopped"
        process = self._process
        if process is not None:
            try:
                await asyncio.to_thread(process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                logger.warning(
                    "gateway %d did not stop in %.0f s and is killed", self.share.number, _STOP_SECONDS
                )
                process.kill()
                await asyncio.to_thread(process.wait)
        self._listener.close()

    async def _run_once(self, serve: Serve, welcome: Callable[[Share], Welcome]) -> None:
        run = GatewayRun(self.share.number, serve, self._on_message)
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process = self._start(theirs)
        try:
            await run.peer.connect(ours)
            # The loop does not turn between the two, so the run hears of every later change.
            run.peer.send(welcome(self.share))
            self.current = run
            await self._watch(run)
            process.kill()
            await asyncio.to_thread(process.wait)
        finally:
            run.peer.close()

    def _start(self, half: socket.socket) -> "subprocess.Popen[bytes]":
        handles = (half.fileno(), self._listener.fileno())
        # A session of its own: Ctrl-C in a terminal reaches only the site, which then stops the process.
        return subprocess.Popen(
            [sys.executable, "-m", *_PROGRAM, *map(str, handles), str(self._data_dir)],
            stdin=subprocess.DEVNULL,
            pass_fds=handles,
            start_new_session=True,
        )

    async def _watch(self, run: GatewayRun) -> None:
        """Returns when the process is gone, or hangs."""
        while not run.peer.lost.is_set():
            try:
                async with asyncio.timeout(1.0):
                    await run.peer.lost.wait()
            except TimeoutError:
                if self.state == "running" and time.monotonic() - self._heard > _SILENCE_SECONDS:
                    logger.error("gateway %d is silent and is killed", self.share.number)
                    return

    def _on_message(self, message: object) -> None:
        self._heard = time.monotonic()
        if self.current is None:
            return
        match message:
            case Reached(announcements, frontier):
                self.current.reached = announcements
                self.frontier = frontier
            case GatewayReport():
                self.report = message
                self.state = "running"
                self.started = True
                self._on_finished(message.finished)
