"""A standalone Spark cluster: a Master and Workers on this machine, and Workers for a Master on another one.

    its directory
      cluster.json     the master's address and the processes of this machine; there while they are up
      master.log, worker-1.log, ...
      work/worker-1 .. what executors write: each Worker clears its own from time to time
      recovery         the Master's state: after a restart it knows its applications and Workers again

Each process listens on one address, which is the loopback address unless another one is given.
"""

import contextlib
import errno
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import msgspec

from culver.disk import write_whole
from culver.errors import Conflict, InvalidConfiguration, Unavailable, counted
from culver.pipeline.spark import java
from culver.pipeline.spark.session_settings import address_towards, check_master, trouble_with

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
# Nobody submits programs over HTTP, which would be one more port open to everybody.
_MASTER_OPTIONS = ("-Dspark.master.rest.enabled=false",)
# An executor writes a dozen lines for each task, several gigabytes a day, whatever the level of the driver's log.
_WORKER_OPTIONS = (
    "-Dspark.executor.logs.rolling.strategy=size",
    f"-Dspark.executor.logs.rolling.maxSize={16 * 1024 * 1024}",
    "-Dspark.executor.logs.rolling.maxRetainedFiles=3",
    "-Dspark.worker.cleanup.enabled=true",
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
class WorkerShare:
    """What a Worker gives of its machine to executors, and where it listens. Its port is any free one: no other
    machine connects to a Worker."""

    cores: int
    memory: str
    host: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What `cluster.json` says about the processes of a machine that are up."""

    master_url: str
    processes: tuple[ProcessRecord, ...]
    shares: dict[str, WorkerShare] = field(default_factory=dict)
    """Of each Worker, by its role."""
    machine: str = field(default_factory=socket.gethostname)

    @property
    def running(self) -> list[ProcessRecord]:
        return [process for process in self.processes if process.running]

    def host_of(self, role: str) -> str:
        """Where the process listens."""
        if role in self.shares:
            return self.shares[role].host
        return self.master_url.removeprefix("spark://").rpartition(":")[0]


class StandaloneCluster:
    """The cluster of one directory. Commands that change it wait for one another, and say so."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    @property
    def _path(self) -> Path:
        return self._directory / "cluster.json"

    def state(self) -> ClusterState | None:
        """None where nothing was started, or it was taken down. Raises Conflict where another machine has started it,
        which knows its processes."""
        try:
            state = msgspec.json.decode(self._path.read_bytes(), type=ClusterState)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as exc:
            raise InvalidConfiguration(f"cannot read {self._path}: {exc}") from exc
        if state.machine != socket.gethostname():
            raise Conflict(
                f"the processes in {self._path} are those of the machine {state.machine}: go there, or give another "
                "directory here; if the directory is a copy, remove that file"
            )
        return state

    def up(
        self,
        workers: int,
        cores: int,
        memory: str,
        port: int,
        progress: Callable[[str], None],
        *,
        host: str = HOST,
    ) -> ClusterState:
        """Start a Master and Workers, all on `host`, and wait until every Worker is registered; if that fails, stop
        what was started.

        Raises Conflict if it is up already or the port is taken, InvalidConfiguration without Java or for an address
        that this machine does not have, Unavailable if a process does not start."""
        self._check_down()
        java.find_java()
        port = _usable(host, port)
        with self._alone(progress):
            self._check_down()  # another command may have been first
            state = ClusterState(f"spark://{host}:{port}", ())
            shutil.rmtree(self._recovery, ignore_errors=True)
            try:
                progress("starting the Master")
                state = self._start(state, "master")
                self._wait_for(state.processes[-1])
                if workers:
                    progress(f"starting {counted(workers, 'Worker')}")
                for number in range(1, workers + 1):
                    state = self._add_worker(state, f"worker-{number}", WorkerShare(cores, memory, host))
                for process in state.processes[1:]:
                    self._wait_for(process)
            except BaseException:
                self._stop_all()
                raise
        return state

    def join(
        self,
        master_url: str,
        cores: int,
        memory: str,
        progress: Callable[[str], None],
        *,
        host: str | None = None,
    ) -> ClusterState:
        """Start one more Worker for a Master, here or on another machine, and wait until it is registered. Without
        `host`, it listens on the address from which this machine reaches the Master.

        Raises as `up` does, and Conflict if the directory has running processes of another cluster, Unavailable if
        no Master answers."""
        check_master(master_url)
        if not master_url.startswith("spark://"):
            raise InvalidConfiguration(
                f"{master_url!r} is not a Master of Spark that Workers can join; it is spark://HOST:PORT"
            )
        self._joined(master_url)
        java.find_java()
        if (trouble := trouble_with(master_url)) is not None:
            raise Unavailable(trouble)
        host = host or address_towards(master_url) or HOST
        _usable(host, 0)
        with self._alone(progress):
            found = self._joined(master_url)  # another command may have been first
            role = f"worker-{1 + max((int(each.partition('-')[2]) for each in found.shares), default=0)}"
            progress(f"starting {role}")
            try:
                state = self._add_worker(found, role, WorkerShare(cores, memory, host))
                self._wait_for(state.processes[-1])
            except BaseException:
                self._stop_all(but=found)
                raise
        return state

    def _check_down(self) -> None:
        found = self.state()
        if found is not None and found.running:
            raise Conflict(f"a cluster is up already: {found.master_url}; `culver cluster down` stops it")

    def _joined(self, master_url: str) -> ClusterState:
        """What the directory has of the cluster so far."""
        found = self.state()
        if found is None or not found.running:
            return ClusterState(master_url, ())
        if found.master_url != master_url:
            raise Conflict(
                f"{self._directory} has processes of {found.master_url}; give another directory, or stop them with "
                "`culver cluster down`"
            )
        return found

    @contextlib.contextmanager
    def _alone(self, progress: Callable[[str], None]) -> Iterator[None]:
        """No other command changes the directory. Processes that are started do not inherit the lock."""
        self._make_directory()
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress(f"waiting for another command in {self._directory}")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise InvalidConfiguration(f"cannot use {self._directory}: {exc.strerror}") from exc

    def down(self, progress: Callable[[str], None] = lambda text: None) -> list[ProcessRecord]:
        """Stop the processes that `up` and `join` started, and no others; returns those that still ran."""
        if self.state() is None:
            return []
        with self._alone(progress):
            return self._stop_all()

    def _stop_all(self, but: ClusterState | None = None) -> list[ProcessRecord]:
        state = self.state()
        kept = () if but is None else but.processes
        started = () if state is None else reversed(state.processes)
        stopped = [process for process in started if process not in kept and _stop(process)]
        if but is not None and kept:
            self._record(but)
        else:
            self._path.unlink(missing_ok=True)
        return stopped

    @property
    def _recovery(self) -> Path:
        return self._directory / "recovery"

    def _command(self, state: ClusterState, role: str) -> list[str]:
        arguments = ["--host", state.host_of(role), "--webui-port", "0"]
        if role == "master":
            arguments += ["--port", state.master_url.rpartition(":")[2]]
            recovery = f"-Dspark.deploy.recoveryDirectory={self._recovery}"
            return java.command(
                "org.apache.spark.deploy.master.Master", arguments, (*_OPTIONS, *_MASTER_OPTIONS, recovery)
            )
        share = state.shares[role]
        arguments += ["--cores", str(share.cores), "--memory", share.memory]
        arguments += ["--work-dir", str(self._directory / "work" / role), state.master_url]
        return java.command("org.apache.spark.deploy.worker.Worker", arguments, (*_OPTIONS, *_WORKER_OPTIONS))

    def _add_worker(self, state: ClusterState, role: str, share: WorkerShare) -> ClusterState:
        return self._start(replace(state, shares={**state.shares, role: share}), role)

    def _start(self, state: ClusterState, role: str) -> ClusterState:
        java.use_this_python()
        home = java.spark_home()
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": _scala_version(home)}
        environment["SPARK_LOCAL_IP"] = state.host_of(role)
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
        try:
            record = ProcessRecord.of(role, pid)
        except ProcessLookupError:
            raise self._not_started(role) from None
        others = (process for process in state.processes if process.role != role)
        state = replace(state, processes=(*others, record))
        self._record(state)
        return state

    def _record(self, state: ClusterState) -> None:
        write_whole(self._path, [msgspec.json.format(msgspec.json.encode(state), indent=1)], durable=False)

    def _wait_for(self, process: ProcessRecord) -> None:
        text = _MASTER_IS_UP if process.role == "master" else _WORKER_IS_UP
        deadline = time.monotonic() + _START_SECONDS
        while text not in self._log(process.role).read_text(errors="replace"):
            if not process.running or time.monotonic() > deadline:
                raise self._not_started(process.role)
            time.sleep(_POLL_SECONDS)

    def _not_started(self, role: str) -> Unavailable:
        tail = self._log(role).read_text(errors="replace").strip().splitlines()[-1:]
        return Unavailable(
            f"the {role} of the cluster did not start; its log is {self._log(role)}"
            + "".join(f" and ends with: {line}" for line in tail)
        )

    def _log(self, role: str) -> Path:
        return self._directory / f"{role}.log"


def _stop(process: ProcessRecord) -> bool:
    """Returns whether there was something to stop."""
    stopped = process.stop(_STOP_SECONDS)
    with contextlib.suppress(ChildProcessError):  # another command started it
        os.waitpid(process.pid, os.WNOHANG)
    return stopped


def _usable(host: str, port: int) -> int:
    """The port, or any free one for 0. Raises InvalidConfiguration where this machine does not have the address, and
    Conflict where another process listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror as exc:
            raise InvalidConfiguration(
                f"the host {host!r} has no IPv4 address ({exc.strerror})", field="host"
            ) from exc
        except OSError as exc:
            if exc.errno == errno.EADDRNOTAVAIL:
                raise InvalidConfiguration(
                    f"the host {host} is not an address of this machine; `ip address` lists those that it has",
                    field="host",
                ) from exc
            raise Conflict(
                f"port {port} of {host} is taken ({exc.strerror}); give another, or 0 for any free one"
            ) from exc
        address, found = probe.getsockname()
        if address == "0.0.0.0":  # which has several names, such as 0
            raise InvalidConfiguration(
                "give the host by which other machines reach this one, not every address", field="host"
            )
        return int(found)


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
