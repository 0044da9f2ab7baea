"""A whole Culver service as separate processes, started, killed and stopped from outside."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = range(20_000 + 1_000 * (_WORKER % 12), 21_000 + 1_000 * (_WORKER % 12))

_given: deque[int] = deque(maxlen=100)


def free_port(count: int = 1) -> int:
    """The first of so many free ports in a row. Each worker of the test run has ports of its own, below those that
    the system gives to clients: nobody takes one while the service that has it is being started again. Nor is one
    given out again soon: a test may ask for all its ports before it uses the first."""
    while True:
        port = random.randrange(_PORTS.start, _PORTS.stop - count)
        wanted = range(port, port + count)
        if any(each in _given for each in wanted):
            continue
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for number in range(count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + number))
            _given.extend(wanted)
            return port


class Service:
    """`culver serve` on a free port. Used as a context manager, it is stopped at the end, whatever happens."""

    def __init__(
        self,
        data_dir: Path,
        engine: str = "inline",
        *arguments: str,
        gateways: int = 1,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """`prefix` goes before the command: `ip netns exec`, for one."""
        self.data_dir = data_dir
        self.engine = engine
        self.gateways = gateways
        self.port = free_port(gateways)
        self.url = f"http://{host}:{self.port}"
        self._host = host
        self._prefix = prefix
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._arguments = arguments
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.http.close()

    def start(self) -> None:
        command = [*self._prefix, sys.executable, "-m", "culver", "serve", "--engine", self.engine]
        command += ["--host", self._host, "--port", str(self.port)]
        command += ["--data-dir", str(self.data_dir), "--gateways", str(self.gateways), *self._arguments]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def wait_until_listening(self, timeout_seconds: float = 60) -> None:
        self._wait(lambda: self.http.get("/healthz").status_code == 200, "listen", timeout_seconds)

    def wait_until_ready(self, timeout_seconds: float = 120) -> None:
        self._wait(lambda: self.http.get("/readyz").status_code == 200, "be ready", timeout_seconds)

    def wait_until_delivered(self, timeout_seconds: float = 120) -> None:
        def done() -> bool:
            status = self.status()
            return bool(status["delivered_offset"] == status["log_next_offset"])

        self._wait(done, "deliver everything", timeout_seconds)

    def wait_until_printed(self, text: str, timeout_seconds: float = 10) -> str:
        """All that the service has printed so far, once `text` is in it."""
        self._wait(lambda: text in self.log_path.read_text(), f"print {text!r}", timeout_seconds)
        return self.log_path.read_text()

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = self.http.get("/readyz").json()
        return document

    def _wait(self, condition: Any, what: str, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if condition():
                    return
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended with {self.process.returncode}:\n{self.log_tail()}")
            time.sleep(0.02)
        raise AssertionError(f"the service did not {what} in {timeout_seconds} s:\n{self.log_tail()}")

    def log_tail(self) -> str:
        text = self.log_path.read_text(errors="replace")
        driver = self.data_dir / "spark" / "driver.log"
        if driver.exists():
            text += "\n--- driver.log\n" + driver.read_text(errors="replace")
        return text[-6000:]

    def processes(self) -> list[psutil.Process]:
        """The service's process and all its descendants."""
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """`kill -9` of every process of the service."""
        if self._process is None:
            return
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def interrupt(self, timeout_seconds: float = 15) -> int:
        """What Ctrl-C does; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout_seconds)

    def receive_all(self, subscription: str) -> Iterator[dict[str, Any]]:
        """Everything in a mailbox, acknowledged as it is read."""
        while True:
            answer = self.http.get(
                f"/v1/subscriptions/{subscription}/events", params={"limit": 1000, "wait": 0}
            )
            answer.raise_for_status()
            items = answer.json()["items"]
            if not items:
                return
            yield from items
            last = {"delivery_id": items[-1]["delivery_id"]}
            self.http.post(f"/v1/subscriptions/{subscription}/ack", json=last).raise_for_status()
