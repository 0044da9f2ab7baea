"""The Spark engine as the site sees it: a driver process to watch, notification files to collect."""

import asyncio
import contextlib
import json
import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from culver.config import PipelineSettings
from culver.errors import StorageCorrupt
from culver.pipeline.batch_plan import LoadFile, LoadReport
from culver.pipeline.engine import EngineSetup
from culver.pipeline.engine_totals import EngineObservation, EngineTally
from culver.pipeline.head import Head, HeadFile
from culver.pipeline.notifications import (
    NotificationSink,
    notification_file_name,
    parse_notification_file_name,
    read_notifications,
)
from culver.pipeline.spark import java
from culver.pipeline.spark.checkpoint import damage_in, set_aside
from culver.pipeline.spark.class_archive import start_recording
from culver.pipeline.spark.session_settings import (
    check_master,
    executors_follow_slices,
    parallelism,
    trouble_with,
)

logger = logging.getLogger(__name__)

# How often the engine looks at the directory without a signal.
_LOOK_SECONDS = 0.1
_STOP_SECONDS = 8.0
# How often the engine tries a master that does not answer.
_MASTER_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0
_MOST_LOG_BYTES = 16 * 1024 * 1024
# A driver that was ready for so long has not failed at its start.
_SETTLED_SECONDS = 5.0
# So many failed starts in a row cast doubt on the checkpoint.
_MOST_FAILURES = 3
_RUNNING, _NO_DRIVER = "running", "no driver"


class NotificationCollector:
    """Not thread-safe. `position` is the offset up to which the sink has everything. `damaged` is set when a file had
    to be removed: its range stays open until an engine matches it again. `tally` counts what was taken."""

    def __init__(self, directory: Path, sink: NotificationSink, position: int) -> None:
        self._directory = directory
        self._sink = sink
        self.tally = EngineTally()
        self.position = position
        self.damaged = False
        self.waiting_files = 0
        """Files behind a hole, when `collect` last looked."""
        self.ahead = 0
        """Events in them."""

    def collect(self) -> None:
        """Hand on every file that continues the sequence. Files may come in any order and overlap; of those that
        cover the next offset, it takes the longest."""
        waiting = self._list()
        while True:
            candidates = [item for item in waiting if item[0] <= self.position < item[1]]
            if not candidates:
                break
            longest = max(candidates, key=lambda item: item[1])
            waiting.remove(longest)
            path = self._directory / notification_file_name(*longest)
            try:
                found = read_notifications(path, check_rows=False)
            except FileNotFoundError:
                continue
            except StorageCorrupt as exc:
                logger.error("%s; removing it, its range is matched again", exc)
                path.unlink(missing_ok=True)
                self.damaged = True
                continue
            self._sink.accept(found, stored=True)
            self.tally.add(found.work)
            self.position = longest[1]
        reached = self.position
        self.waiting_files = self.ahead = 0
        for start, end in sorted(waiting):
            if end > self.position:
                self.waiting_files += 1
                self.ahead += max(0, end - max(start, reached))
                reached = max(reached, end)
            else:
                # The sink has not seen it, and others cover its range: a batch ran again with other bounds, or
                # finished twice.
                (self._directory / notification_file_name(start, end)).unlink(missing_ok=True)

    def _list(self) -> list[tuple[int, int]]:
        parsed = (parse_notification_file_name(path.name) for path in self._directory.iterdir())
        return [item for item in parsed if item is not None and item[1] > self.position]


class SparkEngine:
    """Starts the driver, starts it again when it dies, and hands the workers' notification files on."""

    name = "spark"
    writes_files = True

    def __init__(self, setup: EngineSetup) -> None:
        settings, files = setup.settings, setup.files
        self._settings = settings
        self._files = files
        self._checkpoint = files.spark / "checkpoint"
        self._log_path = files.spark / "driver.log"
        self._log_address = setup.log.address
        self._head = setup.head
        self._head_file: HeadFile | None = None
        self._master = settings.spark_master
        ui = {"spark.ui.enabled": "true"} if settings.spark_ui else {}
        self._spark_conf = {**ui, **settings.spark_conf}
        self._allocate = executors_follow_slices(self._master, setup.elastic, self._spark_conf)
        # The cores of a cluster's executors; 0 while unknown.
        self._cores = 0
        self._load_file = LoadFile(files.load)
        self._load_before = self._load_file.read()
        self._progress = setup.progress
        self._collector = NotificationCollector(files.notifications, setup.sink, setup.head.frontier)
        self._tally = self._collector.tally
        self._ui: str | None = None
        self._state = "starting"
        # Why the last driver failed, until another has settled.
        self._failure: str | None = None
        self._signals_dir: Path | None = None
        self._drivers = 0
        self._socket: socket.socket | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self._recorder: subprocess.Popen[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._seen_mtime_ns = 0

    @staticmethod
    def parallelism(settings: PipelineSettings) -> int:
        return parallelism(settings.spark_master)

    @property
    def ready(self) -> bool:
        return self._state == _RUNNING

    @property
    def signals_path(self) -> str:
        """The socket on which the present driver and its workers reach the site. Each driver has its own, so that
        nothing that an earlier one left running can speak for this one. It is not in the data directory, because the
        path of a socket may have 108 characters at most."""
        return f"{self._signals_dir}/signals-{self._drivers}"

    @property
    def state(self) -> str:
        if self._failure is None or self.ready:
            return self._state
        return f"{self._state}; the driver before failed: {self._failure}"

    def observe(self) -> EngineObservation:
        collector = self._collector
        return self._tally.observe(collector.position, collector.ahead, collector.waiting_files, self._ui)

    async def start(self) -> None:
        check_master(self._master)
        java.find_java()
        self._head_file = HeadFile.create(self._files.head)
        self._head_file.write(self._head)
        self._signals_dir = Path(tempfile.mkdtemp(prefix="culver-"))
        self._tasks = [asyncio.create_task(self._supervise()), asyncio.create_task(self._look())]

    def foresee(self, start: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Nothing to do: Spark works on a batch only after it is planned."""

    def follow(self, head: Head) -> None:
        self._head = head
        if self._head_file is not None:
            self._head_file.write(head)

    def tell(self, load: LoadReport) -> None:
        """Write the load file, which the planner of the next batch reads."""
        self._load_file.write(replace(load, cores=self._cores).or_as_before(self._load_before))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_children()
        self._stop_listening()
        if self._signals_dir is not None:
            shutil.rmtree(self._signals_dir, ignore_errors=True)
        if self._head_file is not None:
            self._head_file.close()
            self._head_file = None
        self._state, self._failure = "stopped", None

    # --- signals of the workers and the driver --------------------------------------------------------

    def _listen(self) -> None:
        self._stop_listening()  # to a driver that could not be started
        self._drivers += 1
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(self.signals_path)
        asyncio.get_running_loop().add_reader(self._socket, self._on_signals)

    def _stop_listening(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            Path(self.signals_path).unlink(missing_ok=True)

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
                        self._state = _RUNNING
                        self._recorder = self._recorder or start_recording(self._log_path)
                    case "batch":
                        self._tally.add_batch(message["events"], message["seconds"])
                    case "stages":
                        self._tally.stages = {k: ms / 1000 for k, ms in message["milliseconds"].items()}
                    case "cores":
                        self._cores = message["count"]
                    case "ui":
                        self._ui = message["url"]
                    case "progress" if not self.ready:  # the first worker may be quicker than the driver
                        self._state = message["text"]
                        self._progress(message["text"])
                    case "failed":
                        self._state, self._failure = _NO_DRIVER, message["text"]
        if collect:
            try:
                self._collect()
            except Exception:
                self._seen_mtime_ns = 0  # `_look` tries again, and logs a second failure

    def _collect(self) -> None:
        self._collector.collect()
        if self._collector.damaged and self._driver is not None:
            # A new query starts by filling the holes below its checkpoint.
            self._collector.damaged = False
            self._driver.kill()

    async def _look(self) -> None:
        """Collect without signals: workers on other machines send none, and a datagram may be dropped."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                mtime_ns = self._files.notifications.stat().st_mtime_ns
                # The clock of mtime is coarse: a file right after the last look may not have changed it.
                if mtime_ns != self._seen_mtime_ns or time.time_ns() - mtime_ns < 1_000_000_000:
                    self._collect()
                    self._seen_mtime_ns = mtime_ns
            except Exception:
                logger.exception("cannot collect notification files; trying again")
                await asyncio.sleep(1.0)

    # --- the driver process ---------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Keep a driver running. Set a damaged checkpoint aside (a power cut can leave one), and one with which
        several drivers in a row fail. That loses nothing: a new query starts at the frontier, which follows from the
        notification files."""
        pause_seconds, failures = 1.0, 0
        while True:
            await self._wait_for_master()
            try:
                if (damage := damage_in(self._checkpoint)) is not None:
                    self._set_checkpoint_aside(damage)
                ready_seconds, code = await self._run_driver()
                # A driver that was killed, or has lost its cluster, says nothing about the checkpoint.
                failures = failures + 1 if code == 1 and ready_seconds < _SETTLED_SECONDS else 0
                if failures == _MOST_FAILURES and self._checkpoint.exists():
                    self._set_checkpoint_aside(f"{failures} drivers in a row have failed with it")
                # After a driver that was ready, the next one starts at once.
                grown = min(max(2 * pause_seconds, 1.0), _LONGEST_PAUSE_SECONDS)
                pause_seconds = 0.1 if ready_seconds > 0 and failures < _MOST_FAILURES else grown
            except Exception as exc:
                self._state = f"cannot start the Spark driver: {exc}"
                logger.exception("cannot start the Spark driver; trying again in %.0f s", pause_seconds)
            await asyncio.sleep(pause_seconds)

    async def _wait_for_master(self) -> None:
        """Return when a master answers; tell the trouble as long as none does."""
        while (trouble := await asyncio.to_thread(trouble_with, self._master)) is not None:
            if self._state != trouble:
                self._state = trouble
                logger.error("%s; trying again every %.0f s", trouble, _MASTER_SECONDS)
                self._progress(trouble)
            await asyncio.sleep(_MASTER_SECONDS)

    async def _run_driver(self) -> tuple[float, int]:
        """Start a driver and wait for its end; returns for how many seconds it was ready, and its exit code."""
        self._listen()
        driver = self._start_driver()
        ready_since: float | None = None
        while driver.poll() is None:
            if self.ready and ready_since is None:
                ready_since = time.monotonic()
            if ready_since is not None and time.monotonic() - ready_since > _SETTLED_SECONDS:
                self._failure = None
            await asyncio.sleep(_LOOK_SECONDS)
        self._on_signals()  # what it has said last
        self._stop_listening()
        self._state = _NO_DRIVER
        self._ui = None
        self._cores = 0
        _close_input(driver)
        logger.error(
            "the Spark driver ended with code %s (%s) and is started again; its log is %s",
            driver.returncode,
            self.state,
            self._log_path,
        )
        return 0.0 if ready_since is None else time.monotonic() - ready_since, driver.returncode

    def _start_driver(self) -> "subprocess.Popen[bytes]":
        self._files.spark.mkdir(exist_ok=True)
        for leftover in (self._files.spark / "local", self._files.partials):
            shutil.rmtree(leftover, ignore_errors=True)
        options = {
            "data_dir": str(self._files.data_dir.absolute()),
            "log": self._log_address,
            "master": self._master,
            "batch_events": self._settings.batch_events,
            "signals": self.signals_path,
            "forwarding": self._settings.forwarding,
            "checkpoint": str(self._checkpoint.absolute()),
            "work_dir": str(self._files.spark.absolute()),
            "conf": self._spark_conf,
            "allocate": self._allocate,
        }
        command = [sys.executable, "-m", "culver.pipeline.spark.driver"]
        with self._log_path.open("ab") as log:
            if log.tell() > _MOST_LOG_BYTES:
                log.truncate(0)
            # A session of its own: Ctrl-C in a terminal reaches only the site, which then stops the driver.
            self._driver = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        assert self._driver.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and `_run_driver` notices
            self._driver.stdin.write(json.dumps(options).encode() + b"\n")
            self._driver.stdin.flush()
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

    def _set_checkpoint_aside(self, reason: str) -> None:
        aside = set_aside(self._checkpoint)
        logger.error(
            "Spark's checkpoint is set aside as %s (%s); starting anew at the frontier", aside, reason
        )


def _close_input(driver: "subprocess.Popen[bytes]") -> None:
    """Tell the driver to stop, and give the descriptor back."""
    assert driver.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        driver.stdin.close()
