"""`culver.spark.match` from a session of Spark Connect: a client that reaches Spark over gRPC only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import connect_program

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.mark.slow(seconds=25)
def test_match_works_from_a_remote_session(tmp_path: Path) -> None:
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(package, reason="Spark Connect needs it: pip install 'pyspark[connect]'")
    program = [sys.executable, connect_program.__file__, str(tmp_path)]
    # A machine that has no filters yet.
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (tmp_path / "found").exists(), done.stderr
    *found, too_large, refused = json.loads((tmp_path / "found").read_text(encoding="utf-8"))
    lists = [["dear", "new"], []]
    assert found == [lists, lists, lists, [[0, "dear"], [0, "new"]], [["dear"], []]]
    assert too_large.startswith("on Spark Connect, filters travel within a streaming query: these take")
    assert refused.startswith("on Spark Connect, filters cannot be replaced while a query runs")
