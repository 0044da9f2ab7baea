"""Records of processes: what runs is found again, and what only has the same number is left alone. And what is
refused before anything starts."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
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
        ("nobody.invalid", "'nobody.invalid' has no IPv4 address"),
    ],
)
        ("0", "not every address"),
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
