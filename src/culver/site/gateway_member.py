"""One further gateway as the site sees it: a process that is started, watched, and started again when it dies.

The site keeps the gateway's listening socket and hands it to each new process: while there is none, connections
wait in the socket's queue, and the port is never lost. Between the two there is a pair of sockets; when the site
ends, however it does, the gateway reads the end of the stream and stops.
"""

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from culver.delivery import Finished, Share
from culver.errors import Unavailable
from culver.site.gateway_messages import Announcement, Reached, Report, Welcome
from culver.site.peer import Methods, Peer

logger = logging.getLogger(__name__)

_MODULE = "culver.assembly_gateway"
_SILENCE_SECONDS = 20.0  # a gateway that runs reports every second
_STOP_SECONDS = 6.0
_SETTLED_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 5.0


class Attachment:
    """One run of a gateway, from its welcome on."""

    def __init__(self, methods: Methods, on_message: Callable[[object], None]) -> None:
        self.peer = Peer(methods, on_message)
        self.announced = 0
        self.reached = 0

    def announce(self, message: Announcement) -> None:
        self.announced += 1
        self.peer.send(message)

    def is_past(self, announced: int) -> bool:
        """Whether it has worked off that many announcements, or never will."""
        return self.reached >= announced or self.peer.lost.is_set()


class Member:
    """What it last told stays known while it is down: its needs above all."""

    def __init__(
        self,
        share: Share,
        listener: socket.socket,
        data_dir: Path,
        on_finished: Callable[[Finished], None],
    ) -> None:
        self.share = share
        self.port: int = listener.getsockname()[1]
        self.state = "starting"
        self.report = Report()
        self.frontier = 0
        self.started = False
        """It has run at least once."""
        self.attachment: Attachment | None = None
        self._listener = listener
        self._data_dir = data_dir
        self._on_finished = on_finished
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = 0.0

    @property
    def peer(self) -> Peer:
        """Raises Unavailable while there is no process, or it is not done with its start."""
        if self.attachment is None or self.state != "running":
            raise Unavailable(f"gateway {self.share.number} of the site is {self.state}; try again soon")
        return self.attachment.peer

    def announce(self, message: Announcement) -> None:
        if self.attachment is not None:
            self.attachment.announce(message)

    async def run(self, methods: Methods, welcome: Callable[[Share], Welcome]) -> None:
        """Keep a process running until cancelled."""
        pause_seconds = 0.1
        while True:
            began = time.monotonic()
            try:
                await self._run_once(methods, welcome)
                logger.error("gateway %d has ended and is started again", self.share.number)
            except Exception:
                logger.exception("gateway %d cannot be started; trying again", self.share.number)
            finally:
                self.attachment = None
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

    async def _run_once(self, methods: Methods, welcome: Callable[[Share], Welcome]) -> None:
        attachment = Attachment(methods, self._on_message)
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process = self._start(theirs)
        try:
            await attachment.peer.connect(ours)
            # No turn of the loop lies between the two: whatever happens from now on is announced.
            attachment.peer.send(welcome(self.share))
            self.attachment = attachment
            await self._watch(attachment)
            process.kill()
            await asyncio.to_thread(process.wait)
        finally:
            attachment.peer.close()

    def _start(self, half: socket.socket) -> "subprocess.Popen[bytes]":
        handles = (half.fileno(), self._listener.fileno())
        # A session of its own, so that Ctrl-C in a terminal reaches the site alone, which then stops it.
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, *map(str, handles), str(self._data_dir)],
            stdin=subprocess.DEVNULL,
            pass_fds=handles,
            start_new_session=True,
        )

    async def _watch(self, attachment: Attachment) -> None:
        """Returns when the process is gone, or hangs."""
        while not attachment.peer.lost.is_set():
            try:
                async with asyncio.timeout(1.0):
                    await attachment.peer.lost.wait()
            except TimeoutError:
                if self.state == "running" and time.monotonic() - self._heard > _SILENCE_SECONDS:
                    logger.error("gateway %d is silent and is killed", self.share.number)
                    return

    def _on_message(self, message: object) -> None:
        self._heard = time.monotonic()
        if self.attachment is None:
            return
        match message:
            case Reached(announcements, frontier):
                self.attachment.reached = announcements
                self.frontier = frontier
            case Report():
                self.report = message
                self.state = "running"
                self.started = True
                self._on_finished(message.finished)
