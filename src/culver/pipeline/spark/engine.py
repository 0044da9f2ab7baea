"""The Spark engine as the site sees it: a driver process to watch, notification files to collect."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from culver.pipeline.collector import Collector
from culver.pipeline.engine import Progress
from culver.pipeline.files import SiteFiles
from culver.pipeline.head import Head
from culver.pipeline.notifications import NotificationSink
from culver.pipeline.observation import EngineObservation, Tally
from culver.pipeline.spark import java
from culver.pipeline.spark.archive import start_recording
from culver.pipeline.spark.masters import check_master, trouble_with

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1  # how often the directory is looked at without a signal
_STOP_SECONDS = 8.0
_MASTER_SECONDS = 2.0  # between two looks for a master that does not answer
_LONGEST_PAUSE_SECONDS = 30.0


class SparkEngine:
    """Starts the driver, starts it again when it dies, and hands on what the workers wrote."""

    name = "spark"
    reads_head_file = True

    def __init__(
        self,
        files: SiteFiles,
        sink: NotificationSink,
        head: Head,
        master: str,
        batch_events: int,
        progress: Progress,
        spark_conf: Mapping[str, str],
    ) -> None:
        self._files = files
        self._master = master
        self._batch_events = batch_events
        self._spark_conf = spark_conf
        self._progress = progress
        self._tally = Tally()
        self._collector = Collector(files.notifications, sink, head.frontier, self._tally)
        self._ui: str | None = None
        self._state = "starting"
        self._ready = False
        self._signals_dir: str | None = None
        self._socket: socket.socket | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self._recorder: subprocess.Popen[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._seen_mtime_ns = 0

    @property
    def ready(self) -> bool:
        return self._ready

    @property
    def state(self) -> str:
        return self._state

    def observe(self) -> EngineObservation:
        collector = self._collector
        return self._tally.observe(collector.position, collector.ahead, collector.waiting_files, self._ui)

    async def start(self) -> None:
        check_master(self._master)
        java.find_java()
        # A socket's path may have 108 characters at most, so it cannot be in the data directory.
        self._signals_dir = tempfile.mkdtemp(prefix="culver-")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(self._signals_path)
        asyncio.get_running_loop().add_reader(self._socket, self._on_signals)
        self._tasks = [asyncio.create_task(self._supervise()), asyncio.create_task(self._look())]

    def follow(self, head: Head) -> None:
        """Nothing to do: the source reads the head file."""

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_children()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        if self._signals_dir is not None:
            shutil.rmtree(self._signals_dir, ignore_errors=True)
        self._ready = False
        self._state = "stopped"

    # --- what the workers and the driver tell ---------------------------------------------------------

    @property
    def _signals_path(self) -> str:
        assert self._signals_dir is not None
        return os.path.join(self._signals_dir, "signals")

    def _on_signals(self) -> None:
        assert self._socket is not None
        collect = False
        with contextlib.suppress(BlockingIOError):
            while True:
                message = json.loads(self._socket.recv(4096))
                match message["kind"]:
                    case "notifications":
                        collect = True
                    case "warm":
                        self._on_warm()
                    case "batch":
                        self._tally.add_batch(message["events"], message["seconds"])
                    case "stages":
                        self._tally.stages = {k: ms / 1000 for k, ms in message["milliseconds"].items()}
                    case "ui":
                        self._ui = message["url"]
                    case "progress":
                        self._state = message["text"]
                        self._progress(message["text"])
                    case "failed":
                        self._state = f"failed: {message['text']}"
        if collect:
            try:
                self._collect()
            except Exception:
                self._seen_mtime_ns = 0  # `_look` tries again, and says so if it fails there too

    def _on_warm(self) -> None:
        self._ready = True
        self._state = "running"
        if self._recorder is None:
            self._recorder = start_recording(self._log_path)

    def _collect(self) -> None:
        self._collector.collect()
        if self._collector.damaged and self._driver is not None:
            # A new query starts by filling what is missing below its checkpoint.
            self._collector.damaged = False
            self._driver.kill()

    async def _look(self) -> None:
        """The way without signals: workers on other machines, or a datagram that was dropped."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                mtime_ns = self._files.notifications.stat().st_mtime_ns
                # Its clock is coarse: a file that came right after the last look may not have changed it.
                if mtime_ns != self._seen_mtime_ns or time.time_ns() - mtime_ns < 1_000_000_000:
                    self._collect()
                    self._seen_mtime_ns = mtime_ns
            except Exception:
                logger.exception("cannot collect notification files; trying again")
                await asyncio.sleep(1.0)

    # --- the driver process ---------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Keep a driver running. One that dies before it was ever ready, twice, may have a checkpoint that
        cannot be read (a power cut can leave one): it is set aside. That loses nothing, because a new
        query starts at the frontier, which follows from the notification files."""
        pause_seconds, failures = 1.0, 0
        while True:
            await self._wait_for_master()
            try:
                was_ready = await self._run_driver()
                failures = 0 if was_ready else failures + 1
                if failures == 2:
                    self._set_checkpoint_aside()
                # One that was ready has run for a while: the next need not wait.
                pause_seconds = 0.1 if was_ready else min(max(2 * pause_seconds, 1.0), _LONGEST_PAUSE_SECONDS)
            except Exception as exc:
                self._state = f"cannot start the Spark driver: {exc}"
                logger.exception("cannot start the Spark driver; trying again in %.0f s", pause_seconds)
            await asyncio.sleep(pause_seconds)

    async def _wait_for_master(self) -> None:
        """Return when a master answers, and say so as long as none does."""
        while (trouble := await asyncio.to_thread(trouble_with, self._master)) is not None:
            if self._state != trouble:
                self._state = trouble
                logger.error("%s; trying again every %.0f s", trouble, _MASTER_SECONDS)
                self._progress(trouble)
            await asyncio.sleep(_MASTER_SECONDS)

    async def _run_driver(self) -> bool:
        """Start a driver and wait for its end; returns whether it was ready in between."""
        driver = self._start_driver()
        was_ready = False
        while driver.poll() is None:
            was_ready = was_ready or self._ready
            await asyncio.sleep(_LOOK_SECONDS)
        self._ready = False
        self._ui = None
        _close_input(driver)
        logger.error(
            "the Spark driver ended with code %s (%s) and is started again; its log is %s",
            driver.returncode,
            self._state,
            self._log_path,
        )
        return was_ready

    @property
    def _checkpoint(self) -> Path:
        return self._files.spark / "checkpoint"

    @property
    def _log_path(self) -> Path:
        return self._files.spark / "driver.log"

    def _start_driver(self) -> "subprocess.Popen[bytes]":
        self._files.spark.mkdir(exist_ok=True)
        for leftover in (self._files.spark / "local", self._files.partials):
            shutil.rmtree(leftover, ignore_errors=True)
        options = {
            "data_dir": str(self._files.data_dir.absolute()),
            "master": self._master,
            "batch_events": self._batch_events,
            "signals": self._signals_path,
            "checkpoint": str(self._checkpoint.absolute()),
            "work_dir": str(self._files.spark.absolute()),
            "conf": dict(self._spark_conf),
        }
        command = [sys.executable, "-m", "culver.pipeline.spark.driver", json.dumps(options)]
        with self._log_path.open("ab") as log:
            _bound(log)
            # Its own session, so that Ctrl-C in a terminal reaches the site alone, which then stops it.
            self._driver = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        return self._driver

    async def _stop_children(self) -> None:
        children = [child for child in (self._driver, self._recorder) if child is not None]
        for child in children:
            _close_input(child)
        for child in children:
            try:
                await asyncio.to_thread(child.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                logger.warning("a process of Spark did not stop in %.0f s and is killed", _STOP_SECONDS)
                child.kill()
                await asyncio.to_thread(child.wait)

    def _set_checkpoint_aside(self) -> None:
        if self._checkpoint.exists():
            aside = self._checkpoint.with_name("checkpoint.unusable")
            shutil.rmtree(aside, ignore_errors=True)
            self._checkpoint.rename(aside)
            logger.error("Spark's checkpoint is set aside as %s; starting anew at the frontier", aside)


def _close_input(driver: "subprocess.Popen[bytes]") -> None:
    """The sign to stop, and in any case a descriptor to give back."""
    assert driver.stdin is not None
    driver.stdin.close()


def _bound(log: IO[bytes], most_bytes: int = 16 * 1024 * 1024) -> None:
    """Begin the driver's log again when it has grown large."""
    if log.tell() > most_bytes:
        log.truncate(0)
