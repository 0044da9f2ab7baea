"""`culver serve` as its user sees it: from the first line it prints to Ctrl-C."""

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.service import Service

ENGINES = ["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow(seconds=12)])]


@pytest.mark.system
@pytest.mark.parametrize("engine", ENGINES)
def test_the_two_printed_lines_show_an_event_arriving_and_ctrl_c_leaves_nothing(
    engine: str, tmp_path: Path
) -> None:
    with Service(tmp_path / "data", engine) as service:
        service.wait_until_ready()
        printed = service.wait_until_printed("Ctrl-C")
        assert f"ready on {service.url}" in printed
        lines = [line.strip() for line in printed.splitlines() if re.search(r"culver (sub|pub) ", line)]
        subscribe, publish = lines
        assert " sub " in subscribe
        assert " pub " in publish
        with subprocess.Popen(
            [*shlex.split(subscribe), "--count", "1", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as subscriber:
            try:
                assert subscriber.stderr is not None
                assert "listening" in subscriber.stderr.readline()
                published = subprocess.run(
                    shlex.split(publish), capture_output=True, text=True, timeout=60, check=False
                )
                assert published.returncode == 0, published.stderr
                received, _ = subscriber.communicate(timeout=60)
            finally:
                # Leaving the block waits for it, and without an event it would listen for ever.
                subscriber.kill()
        assert '"price":21.5' in received.replace(" ", "")
        everything = service.processes()
        assert service.interrupt() == 0
        _, alive = psutil.wait_procs(everything, timeout=5)
        assert not alive, alive


@pytest.mark.system
def test_ctrl_c_works_with_connected_clients(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        service.wait_until_ready()
        command = [sys.executable, "-m", "culver", "sub", "TRUE", "--url", service.url]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as subscriber:
            try:
                assert subscriber.stderr is not None
                assert "listening" in subscriber.stderr.readline()
                with service.http.stream("GET", "/v1/stream", params={"filter": "TRUE"}):
                    assert service.interrupt(timeout_seconds=8) == 0
                subscriber.send_signal(signal.SIGINT)
                assert subscriber.wait(10) == 130
            finally:
                # Leaving the block waits for it, and it would dial the site for ever.
                subscriber.kill()


@pytest.mark.system
def test_second_site_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        service.wait_until_listening()
        command = [sys.executable, "-m", "culver", "serve", "--engine", "inline", "--port", "0"]
        command += ["--data-dir", str(service.data_dir)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode != 0
        assert "another Culver is running on the data directory" in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.system
def test_spark_engine_without_java_says_what_to_install(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = str(tmp_path)
    command = [sys.executable, "-m", "culver", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    refused = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert refused.returncode == 2
    assert "openjdk-17-jre-headless" in refused.stderr
    assert "--engine inline" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.system
def test_full_disk_is_a_507_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    """A file size limit stands in for the full disk: the operating system refuses the write all the same."""
    acknowledged = 0
    with Service(tmp_path / "data") as service:
        service.wait_until_ready()
        made = service.http.post("/v1/subscriptions", json={"id": "all", "filter": "TRUE"})
        assert made.status_code == 201
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        while True:
            events = [{"n": acknowledged + i, "padding": "x" * 500} for i in range(20)]
            answer = service.http.post("/v1/events", json=events)
            if answer.status_code != 200:
                break
            acknowledged += len(events)
        assert answer.status_code == 507
        assert answer.json()["code"] == "storage_full"
        assert answer.json()["retryable"] is True
        assert acknowledged > 100
        resource.prlimit(
            service.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        after = service.http.post("/v1/events", json={"n": acknowledged})
        assert after.status_code == 200, "it goes on once there is room"
        service.kill()
        service.start()
        service.wait_until_ready()
        service.wait_until_delivered()
        numbers = [item["event"]["n"] for item in service.receive_all("all")]
        assert numbers == list(range(acknowledged + 1))
