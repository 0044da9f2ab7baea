"""A Master and Workers on different loopback addresses, as `culver cluster` starts them on several machines."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from culver.cli import main
from culver.pipeline import StandaloneCluster

pytestmark = pytest.mark.spark


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[tuple[str, str]]:
    head, other = tmp_path / "head", tmp_path / "other"
    yield str(head), str(other)
    for directory in (other, head):
        StandaloneCluster(directory).down()


def listening(pid: int) -> set[str]:
    """The addresses where a process listens."""
    sockets = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.ip.removeprefix("::ffff:") for each in sockets if each.status == psutil.CONN_LISTEN}


@pytest.mark.slow(seconds=6)
def test_workers_join_a_master_and_listen_on_the_addresses_that_are_given(
    directories: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    head, other = directories
    assert main(["cluster", "up", "--host", "127.0.0.2", "--workers", "0", "--dir", head]) == 0
    assert "cluster join spark://127.0.0.2:" in capsys.readouterr().out
    assert main(["cluster", "status", "--dir", head]) == 0
    master = capsys.readouterr().out.splitlines()[0]

    assert main(["cluster", "join", master, "--host", "127.0.0.3", "--cores", "3", "--dir", other]) == 0
    said = capsys.readouterr()
    assert f"worker-1 on 127.0.0.3 has joined {master} (3 cores," in said.out
    assert "warning" not in said.err
    assert main(["cluster", "join", master, "--cores", "1", "--dir", other]) == 0
    assert "worker-2 on 127.0.0.1 has joined" in capsys.readouterr().out

    addresses: dict[str, set[str]] = {}
    for directory in directories:
        state = StandaloneCluster(Path(directory)).state()
        assert state is not None
        assert len(state.running) == len(state.processes)
        addresses |= {process.role: listening(process.pid) for process in state.processes}
    assert addresses == {"master": {"127.0.0.2"}, "worker-1": {"127.0.0.3"}, "worker-2": {"127.0.0.1"}}

    assert main(["cluster", "down", "--dir", other]) == 0
    assert capsys.readouterr().out.count("stopped worker-") == 2
    assert main(["cluster", "status", "--dir", head]) == 0, "the Master runs on"


def test_cluster_that_others_can_reach_comes_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "up", "--host", "198.51.100.7", "--dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "runs programs as this user" in said
    assert "198.51.100.7 is not an address of this machine" in said
