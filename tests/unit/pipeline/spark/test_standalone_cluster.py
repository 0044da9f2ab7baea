"""Records of processes: what runs is found again, and what only has the same number is left alone. And what is
refused before anything starts."""

import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from culver.errors import Conflict, InvalidConfiguration, Unavailable
from culver.pipeline.spark.standalone_cluster import (
    ClusterState,
    ProcessRecord,
    StandaloneCluster,
    WorkerShare,
    start_of,
)

NOWHERE = "198.51.100.7"


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_recorded_process_is_stopped(sleeper: "subprocess.Popen[bytes]") -> None:
    record = ProcessRecord.of("sleeper", sleeper.pid)
    assert record.running
    assert record.stop(10)
    assert sleeper.wait() == -signal.SIGTERM
    assert not record.running


def test_process_that_ignores_the_request_is_killed() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert ProcessRecord.of("deaf", process.pid).stop(0.2)
        assert process.wait() == -signal.SIGKILL


def test_process_that_only_has_the_same_number_is_left_alone(sleeper: "subprocess.Popen[bytes]") -> None:
    record = ProcessRecord.of("sleeper", sleeper.pid)
    boot, _, ticks = record.started.partition("/")
    for other in (f"{boot}/{int(ticks) + 1}", f"another-boot/{ticks}"):
        stale = replace(record, started=other)
        assert not stale.running
        assert not stale.stop(0.1)
    assert sleeper.poll() is None


def test_process_that_has_ended_is_not_running_before_its_parent_collects_it() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_of(process.pid) is None
        with pytest.raises(ProcessLookupError):
            ProcessRecord.of("ended", process.pid)


def up(cluster: StandaloneCluster, host: str, port: int) -> ClusterState:
    return cluster.up(1, 1, "512m", port, print, host=host)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (NOWHERE, f"{NOWHERE} is not an address of this machine"),
        ("0.0.0.0", "not every address"),
        ("0", "not every address"),
        ("nobody.invalid", "'nobody.invalid' has no IPv4 address"),
    ],
)
def test_address_that_this_machine_does_not_have_is_refused(tmp_path: Path, host: str, message: str) -> None:
    cluster = StandaloneCluster(tmp_path / "cluster")
    with pytest.raises(InvalidConfiguration, match=message) as caught:
        up(cluster, host, 0)
    assert caught.value.field == "host"
    with socket.create_server(("127.0.0.1", 0)) as master:
        url = f"spark://127.0.0.1:{master.getsockname()[1]}"
        with pytest.raises(InvalidConfiguration, match=message):
            cluster.join(url, 1, "512m", print, host=host)
    assert not (tmp_path / "cluster").exists()


def test_port_that_another_process_has_is_refused_on_its_address_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.2 is taken"):
            up(StandaloneCluster(tmp_path), "127.0.0.2", port)


@pytest.mark.parametrize("master", ["head:7077", "local[2]", "yarn", "spark://head"])
def test_worker_joins_nothing_but_a_master_of_spark(tmp_path: Path, master: str) -> None:
    with pytest.raises(InvalidConfiguration, match="spark://HOST:PORT"):
        StandaloneCluster(tmp_path).join(master, 1, "512m", print)


def test_worker_joins_no_master_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no Spark master answers at spark://127\.0\.0\.2:1 "):
        StandaloneCluster(tmp_path).join("spark://127.0.0.2:1", 1, "512m", print)


def test_directory_serves_one_cluster_on_one_machine(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    record = ProcessRecord.of("worker-1", sleeper.pid)
    state = ClusterState("spark://head:7077", (record,), {"worker-1": WorkerShare(1, "1g", "127.0.0.3")})
    cluster, file = StandaloneCluster(tmp_path), tmp_path / "cluster.json"
    file.write_bytes(msgspec.json.encode(state))
    assert cluster.state() == state
    assert [state.host_of(role) for role in ("master", "worker-1")] == ["head", "127.0.0.3"]
    with pytest.raises(Conflict, match="has processes of spark://head:7077"):
        cluster.join("spark://127.0.0.1:1", 1, "512m", print)

    file.write_bytes(msgspec.json.encode(replace(state, machine="another")))
    for command in (cluster.state, cluster.down, lambda: up(cluster, "127.0.0.1", 0)):
        with pytest.raises(Conflict, match="those of the machine another"):
            command()
    assert record.running


# --- with a program in the place of Java ---------------------------------------------------------------------

UP = """
case "$*" in
*Master*) echo "I have been elected leader" ;;
*) echo "Successfully registered with master" ;;
esac
exec sleep 60
"""


@pytest.fixture
def run_as_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))

    def write(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)

    return write


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path / "cluster")
    yield cluster
    cluster.down()


def test_commands_in_one_directory_wait_for_one_another(
    tmp_path: Path, cluster: StandaloneCluster, run_as_java: Callable[[str], None]
) -> None:
    run_as_java(UP)
    (tmp_path / "cluster").mkdir()
    said: queue.Queue[str] = queue.Queue()
    descriptor = os.open(tmp_path / "cluster", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with ThreadPoolExecutor(2) as pool:
        ups = [pool.submit(cluster.up, 1, 1, "512m", 0, said.put) for _ in range(2)]
        assert {said.get(timeout=10), said.get(timeout=10)} == {
            f"waiting for another command in {tmp_path / 'cluster'}"
        }
        assert cluster.state() is None
        os.close(descriptor)
        errors = [each.exception() for each in ups]
    assert sorted(str(error)[:23] for error in errors) == ["None", "a cluster is up already"]
    state = cluster.state()
    assert state is not None
    assert [process.role for process in state.running] == ["master", "worker-1"]


def test_processes_of_a_cluster_hold_no_lock(
    tmp_path: Path, cluster: StandaloneCluster, run_as_java: Callable[[str], None]
) -> None:
    run_as_java(UP)
    up(cluster, "127.0.0.1", 0)
    descriptor = os.open(tmp_path / "cluster", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize("script", ["echo no such thing; exit 1", "sleep 0.2; echo no such thing; exit 1"])
def test_worker_that_does_not_start_leaves_nothing_behind(
    tmp_path: Path, cluster: StandaloneCluster, run_as_java: Callable[[str], None], script: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        url = f"spark://127.0.0.1:{master.getsockname()[1]}"
        run_as_java(script)
        with pytest.raises(Unavailable, match="the worker-1 of the cluster did not start; its log is"):
            cluster.join(url, 1, "512m", lambda text: None)
        assert cluster.state() is None
        run_as_java(UP)
        joined = cluster.join(url, 1, "512m", lambda text: None)
        run_as_java(script)
        with pytest.raises(Unavailable, match="the worker-2 of the cluster did not start"):
            cluster.join(url, 1, "512m", lambda text: None)
        assert cluster.state() == joined
        assert [process.role for process in joined.running] == ["worker-1"]


def test_each_worker_has_a_directory_of_its_own(
    tmp_path: Path, cluster: StandaloneCluster, run_as_java: Callable[[str], None]
) -> None:
    run_as_java('echo "$@"\n' + UP)
    cluster.up(2, 1, "512m", 0, lambda text: None)
    for role in ("worker-1", "worker-2"):
        assert (
            f"--work-dir {tmp_path}/cluster/work/{role} "
            in (tmp_path / "cluster" / f"{role}.log").read_text()
        )
