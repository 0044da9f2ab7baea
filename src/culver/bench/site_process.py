"""Runs a real site, started as its users start it, in a process of its own.

All processes that the site starts (Spark's JVM, its workers) are in its process group, so that none outlives it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from culver.bench.bench_frame import BenchmarkFailed

_POLL_SECONDS = 0.02
_LOG_TAIL = 4_000  # characters of the site's output that a failure shows


class SiteProcess:
    """A context manager: the site is ready on entry and gone on exit.

    `command` replaces `culver serve` and gets the same flags. `settings` are further settings of the site, by
    their full names (`pipeline.placement`)."""

    def __init__(
        self,
        engine: str,
        data_dir: Path,
        *,
        command: Sequence[str] = (sys.executable, "-m", "culver", "serve"),
        settings: Mapping[str, str | int] | None = None,
        ready_limit_seconds: float = 180.0,
        stop_limit_seconds: float = 30.0,
    ) -> None:
        self._engine = engine
        self._data_dir = data_dir
        self._command = command
        self._settings = settings or {}
        self._ready_limit_seconds = ready_limit_seconds
        self._stop_limit_seconds = stop_limit_seconds
        self._output = data_dir / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.ready_seconds = 0.0
        """How long it took from the start of the process to its being ready."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def websocket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    def __enter__(self) -> "SiteProcess":
        self.port = _free_port()
        self._data_dir.mkdir(parents=True, exist_ok=True)
        # A benchmark measures what a site can do, not what it grants to one address.
        environment = {
            **os.environ,
            "CULVER_GATEWAY_EVENTS_PER_SECOND": "0",
            "CULVER_GATEWAY_REQUESTS_PER_SECOND": "0",
            **{
                f"CULVER_{name.replace('.', '_').upper()}": str(value)
                for name, value in self._settings.items()
            },
        }
        flags = ["--engine", self._engine, "--host", "127.0.0.1", "--port", str(self.port)]
        flags += ["--data-dir", str(self._data_dir / "site")]
        started = time.perf_counter()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*self._command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(started)
        except BaseException:
            self.stop()
            raise
        self.ready_seconds = time.perf_counter() - started
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the site to stop, as Ctrl-C does; kill it and all that it started if that takes too long. Does
        nothing if the site is already gone."""
        process = self._process
        if process is None:
            return
        self._process = None
        try:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._stop_limit_seconds)
        finally:
            # The group's id stays its own as long as any member lives, even once the leader is gone.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def cpu_seconds(self) -> float:
        """Processor time of the site and of all its running descendants. Linux only."""
        assert self._process is not None
        return _cpu_seconds(self._process.pid)

    def output_tail(self) -> str:
        """The end of what the site printed."""
        try:
            return self._output.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:].strip()
        except OSError:
            return ""

    def _wait_until_ready(self, started: float) -> None:
        assert self._process is not None
        with httpx.Client(base_url=self.url, trust_env=False, timeout=5.0) as http:
            while time.perf_counter() - started < self._ready_limit_seconds:
                if self._process.poll() is not None:
                    raise BenchmarkFailed(
                        f"the site on the {self._engine} engine ended with code {self._process.returncode} "
                        f"before it was ready; its output ends with:\n{self.output_tail()}"
                    )
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/readyz").status_code == 200:
                        return
                time.sleep(_POLL_SECONDS)
        raise BenchmarkFailed(
            f"the site on the {self._engine} engine was not ready within {self._ready_limit_seconds:.0f} s; "
            f"its output ends with:\n{self.output_tail()}"
        )


def site_status(http: httpx.Client) -> dict[str, Any]:
    """The status document of `/readyz`, whether the site is ready or not."""
    document: dict[str, Any] = http.get("/readyz").json()
    return document


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _cpu_seconds(root: int) -> float:
    """Processor time of a process and its descendants, from /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    family = {root}
    while more := {number for number, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")
