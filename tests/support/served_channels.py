"""`culver channels serve` as a process of its own, driven from outside."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import msgspec

from culver.channels import ServiceStatus

_PATIENCE_SECONDS = 30.0


class ServedChannels:
    """Starts on entering, on a free port that it keeps, and stops on leaving."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the service is ready."""
        command = [
            sys.executable,
            "-m",
            "culver",
            "channels",
            "serve",
            "--data-dir",
            str(self._folder / "data"),
        ]
        command += ["--port", str(self._port), *self._arguments]
        with (self._folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("Channels are ready on "), (line, (self._folder / "serve.log").read_text())
        self.url = line.split()[4]
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Ends the process with SIGKILL; its servers go on."""
        self._end(signal.SIGKILL)

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Ends the process in an orderly way; returns its exit code."""
        return self._end(with_signal)

    def plan(self) -> ServiceStatus:
        answer = httpx.get(f"{self.url}/v1/channels/plan", timeout=5.0)
        return msgspec.json.decode(answer.content, type=ServiceStatus)

    def _end(self, with_signal: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
        code = self._process.wait(_PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code
