"""Records of processes: what runs is found again, and what only has the same number is left alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from culver.pipeline.spark.standalone_cluster import ProcessRecord, start_of


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
