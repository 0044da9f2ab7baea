"""`culver demo overlay` as its user sees it: real sites, linked, until it ends or is stopped."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

_DEMO = [sys.executable, "-m", "culver", "demo", "overlay", "--sites", "3"]


def _wait(condition: Callable[[], object], timeout_seconds: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory), "CULVER_OVERLAY_NAME": "of-another-site"}


@pytest.mark.system
def test_show_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [*_DEMO, "--once"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=_environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "3 of 3 sites" in done.stderr or "waiting for the links" in done.stderr
    assert "paris ---- lyon ---- bonn" in done.stdout
    wanted, _, unwanted = done.stdout.partition("3. Publish")
    assert re.search(r"lyon +\d+\.\d ms  at the subscriber, from offset 0", wanted)
    assert re.search(r"bonn +\d+\.\d ms  at the subscriber, from offset 0", wanted)
    assert "packets sent: 2 on all links together (paris 1, lyon 1)" in wanted
    assert "packets sent: none on any link" in unwanted
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
def test_sites_go_on_without_one_that_dies_until_the_demo_is_stopped(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    data = tmp_path / "data"
    data.mkdir()
    with output.open("wb") as file:
        demo = subprocess.Popen(_DEMO, stdout=file, stderr=file, env=_environment(data))
    try:
        _wait(lambda: re.search(r"    kill (\d+)\n", output.read_text()))
        killed = re.search(r"    kill (\d+)\n", output.read_text())
        assert killed is not None
        sites = psutil.Process(demo.pid).children(recursive=True)
        assert len(sites) == 3
        os.kill(int(killed[1]), signal.SIGKILL)
        _wait(lambda: "site lyon has ended with code -9; 2 go on" in output.read_text())
        assert demo.poll() is None
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(30) == 0
        _, alive = psutil.wait_procs(sites, timeout=5)
        assert not alive
        assert list(data.iterdir()) == []
    finally:
        if demo.poll() is None:
            demo.kill()
        demo.wait()


@pytest.mark.system
def test_sites_of_clusters_end_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    data = tmp_path / "data"
    data.mkdir()
    with output.open("wb") as file:
        command = [*_DEMO, "--routing", "clusters"]
        demo = subprocess.Popen(command, stdout=file, stderr=file, env=_environment(data))
    sites: list[psutil.Process] = []
    try:
        _wait(lambda: "Ctrl-C stops all of them" in output.read_text())
        assert "carrier of a cluster: matches it for the members" in output.read_text()
        sites = psutil.Process(demo.pid).children(recursive=True)
        assert len(sites) == 3
        demo.kill()
        assert demo.wait(10) == -signal.SIGKILL
        _, alive = psutil.wait_procs(sites, timeout=15)
        assert not alive
    finally:
        demo.kill()
        demo.wait()
        for site in sites:
            if site.is_running():
                site.kill()
