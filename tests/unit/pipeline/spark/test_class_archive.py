"""The archive of loaded classes: never a reason to fail, and nothing stays of a recording that was ended."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from culver.pipeline.spark import java
from culver.pipeline.spark.class_archive import archive_options, archive_path
from support.until import until


def test_java_ignores_a_damaged_archive_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive_path()
    assert path is not None
    path.parent.mkdir()
    path.write_bytes(b"no archive" * 1000)
    command = java.command("org.apache.spark.launcher.Main", [], ["-Xmx64m", *archive_options(), "--version"])
    said = subprocess.run(command, capture_output=True, check=True)
    assert said.stderr == b""


@pytest.mark.slow(seconds=5)
def test_recording_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "culver.pipeline.spark.class_archive", "--background"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        asyncio.run(until(lambda: any(scratch.glob("culver-jvm-*")), 60))
        process.stdin.close()
        assert process.wait(60) == 0
    assert [path.suffix for path in (cache / "culver").iterdir()] == [".lock"]
    assert list(scratch.glob("culver-*")) == []
