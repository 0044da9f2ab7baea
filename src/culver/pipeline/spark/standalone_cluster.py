"""A standalone Spark cluster on this machine, to try out what usually runs on many: a Master and some Workers.

    its directory
      cluster.json     the master's address and the processes; there while the cluster is up
      master.log, worker-1.log, ...
      work             what executors write
      recovery         the Master's state: after a restart it knows its applications and Workers again

Everything listens on the loopback address only.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from culver.disk import write_whole
from culver.errors import Conflict, InvalidConfiguration, Unavailable, counted
from culver.pipeline.spark import java

HOST = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05
# The processes only pass messages. They start a killed executor again, however often that happens.
_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dspark.deploy.maxExecutorRetries=-1",
    "-Dspark.deploy.recoveryMode=FILESYSTEM",
)
_MASTER_IS_UP = "I have been elected leader"
_WORKER_IS_UP = "Successfully registered with master"


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process that outlives the command which started it, as a later command finds it again. The system reuses a
    process id some time after the process has ended; only one that agrees in its start, too, is ever signalled."""

    role: str
    pid: int
    started: str  # boot id, and clock ticks from boot to the process's start

    @classmethod
    def of(cls, role: str, pid: int) -> Self:
        """The record of a running process. Raises ProcessLookupError if it has ended."""
        started = start_of(pid)
        if started is None:
            raise ProcessLookupError(f"{role} ended at once")
        return cls(role, pid, started)

    @property
    def running(self) -> bool:
        return start_of(self.pid) == self.started

    def stop(self, patience_seconds: float) -> bool:
        """Ask it to end, then kill it; returns whether there was something to stop."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # From here on the descriptor means this process, even if its id is reused.
            if not self.running:
                return False
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], patience_seconds)[0]:
                    break
            return True
        except ProcessLookupError:
            return True
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What `cluster.json` says about a cluster that is up."""

    master_url: str
    processes: tuple[ProcessRecord, ...]
    cores: int = 1
    memory: str = "1g"

    @property
    def running(self) -> list[ProcessRecord]:
        return [process for process in self.processes if process.running]


class StandaloneCluster:
    """The cluster of one directory. Only one command at a time may use it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    @property
    def _path(self) -> Path:
        return self._directory / "cluster.json"

    def state(self) -> ClusterState | None:
        """None where no cluster was started, or it was taken down."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=ClusterState)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as exc:
            raise InvalidConfiguration(f"cannot read {self._path}: {exc}") from exc

    def up(
        self, workers: int, cores: int, memory: str, port: int, progress: Callable[[str], None]
    ) -> ClusterState:
        """Start it and wait until every Worker is registered; if that fails, stop what was started.

        Raises Conflict if it is up already or the port is taken, InvalidConfiguration without Java, Unavailable if
        a process does not start."""
        found = self.state()
        if found is not None and found.running:
            raise Conflict(f"a cluster is up already: {found.master_url}; `culver cluster down` stops it")
        java.find_java()
        port = _usable(port)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._directory / "work").mkdir(exist_ok=True)
        except OSError as exc:
            raise InvalidConfiguration(f"cannot use {self._directory}: {exc.strerror}") from exc
        state = ClusterState(f"spark://{HOST}:{port}", (), cores, memory)
        shutil.rmtree(self._recovery, ignore_errors=True)
        try:
            progress("starting the Master")
            state = self._start(state, "master")
            self._wait_for(state.processes[-1])
            progress(f"starting {counted(workers, 'Worker')}")
            for number in range(1, workers + 1):
                state = self._start(state, f"worker-{number}")
            for process in state.processes[1:]:
                self._wait_for(process)
        except BaseException:
            self.down()
            raise
        return state

    def down(self) -> list[ProcessRecord]:
        """Stop the processes that `up` started, and no others; returns those that still ran."""
        state = self.state()
        if state is None:
            return []
        stopped = [process for process in reversed(state.processes) if process.stop(_STOP_SECONDS)]
        for process in state.processes:
            with contextlib.suppress(ChildProcessError):  # another command started it
                os.waitpid(process.pid, os.WNOHANG)
        self._path.unlink(missing_ok=True)
        return stopped

    @property
    def _recovery(self) -> Path:
        return self._directory / "recovery"

    def _command(self, state: ClusterState, role: str) -> list[str]:
        arguments = ["--host", HOST, "--webui-port", "0"]
        if role == "master":
            arguments += ["--port", state.master_url.rpartition(":")[2]]
            options = (*_OPTIONS, f"-Dspark.deploy.recoveryDirectory={self._recovery}")
            return java.command("org.apache.spark.deploy.master.Master", arguments, options)
        arguments += ["--cores", str(state.cores), "--memory", state.memory]
        arguments += ["--work-dir", str(self._directory / "work"), state.master_url]
        return java.command("org.apache.spark.deploy.worker.Worker", arguments, _OPTIONS)

    def _start(self, state: ClusterState, role: str) -> ClusterState:
        java.use_this_python()
        home = java.spark_home()
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": _scala_version(home)}
        environment["SPARK_LOCAL_IP"] = HOST
        command = self._command(state, role)
        log = os.open(self._log(role), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            pid = os.posix_spawn(
                command[0],
                command,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,  # it stays when this command ends, or its terminal is closed
            )
        finally:
            os.close(log)
        others = (process for process in state.processes if process.role != role)
        state = replace(state, processes=(*others, ProcessRecord.of(role, pid)))
        write_whole(self._path, [msgspec.json.format(msgspec.json.encode(state), indent=1)], durable=False)
        return state

    def _wait_for(self, process: ProcessRecord) -> None:
        text = _MASTER_IS_UP if process.role == "master" else _WORKER_IS_UP
        deadline = time.monotonic() + _START_SECONDS
        while text not in self._log(process.role).read_text(errors="replace"):
            if not process.running or time.monotonic() > deadline:
                tail = self._log(process.role).read_text(errors="replace").strip().splitlines()[-1:]
                raise Unavailable(
                    f"the {process.role} of the cluster did not start; its log is {self._log(process.role)}"
                    + "".join(f" and ends with: {line}" for line in tail)
                )
            time.sleep(_POLL_SECONDS)

    def _log(self, role: str) -> Path:
        return self._directory / f"{role}.log"


def _usable(port: int) -> int:
    """The port, or any free one for 0. Raises Conflict where another process listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as exc:
            raise Conflict(
                f"port {port} is taken ({exc.strerror}); give another, or 0 for any free one"
            ) from exc
        found: int = probe.getsockname()[1]
        return found


def _scala_version(home: Path) -> str:
    """Spark's scripts set it for the Worker, which needs it to start executors."""
    for path in (home / "jars").glob("spark-core_*.jar"):
        if found := re.match(r"spark-core_([\d.]+)-", path.name):
            return found[1]
    raise InvalidConfiguration(f"there is no spark-core in {home / 'jars'}", field="pipeline.engine")


def start_of(pid: int) -> str | None:
    """The boot, and when in it a process started; None if there is none, or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"
