"""Runs a real site, started as its users start it, in a process group of its own.

The site's Spark driver and its further gateways have groups of their own, and end when the site does.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from culver.bench.bench_frame import BenchmarkFailed

_POLL_SECONDS = 0.02
_REQUEST_SECONDS = 300.0
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
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
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

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self) -> httpx.Client:
        """A client for requests to this site; the caller closes it."""
        return httpx.Client(base_url=self.url, trust_env=False, timeout=_REQUEST_SECONDS)

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
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended
                fields = path.read_text().rpartition(")")[2].split()
                number = int(path.parent.name)
                parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
        family = {self._process.pid}
        while more := {number for number, parent in parents.items() if parent in family} - family:
            family |= more
        return sum(ticks.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")

    def _wait_until_ready(self, started: float) -> None:
        assert self._process is not None
        what = f"was not ready within {self._ready_limit_seconds:.0f} s"
        with self.client() as http:
            while time.perf_counter() - started < self._ready_limit_seconds:
                if self._process.poll() is not None:
                    what = f"ended with code {self._process.returncode} before it was ready"
                    break
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/readyz", timeout=5.0).status_code == 200:
                        return
                time.sleep(_POLL_SECONDS)
        tail = self._output.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:].strip()
        raise BenchmarkFailed(f"the site on the {self._engine} engine {what}; its output ends with:\n{tail}")


def site_status(http: httpx.Client) -> dict[str, Any]:
    """The status document of `/readyz`, whether the site is ready or not."""
    document: dict[str, Any] = http.get("/readyz").json()
    return document


def deliveries(
    http: httpx.Client, end: int, poll_seconds: float, limit_seconds: float
) -> Iterator[tuple[float, int]]:
    """Yield the time and the position up to which the site has delivered, whenever that has moved, until it reaches
    `end`. Raises BenchmarkFailed if it does not move for `limit_seconds`."""
    delivered, moved_at = -1, time.perf_counter()
    while delivered < end:
        at, now = site_status(http)["delivered_offset"], time.perf_counter()
        if at > delivered:
            delivered, moved_at = at, now
            yield now, at
        elif now - moved_at > limit_seconds:
            raise BenchmarkFailed(f"the site stopped delivering at {delivered} of {end}")
        if delivered < end:
            time.sleep(poll_seconds)
