"""`culver bench dataframe` runs whole: every contestant in a process of its own, and all find the same pairs."""

import json
import subprocess
import sys

import pytest

from culver.bench.dataframe import site_frames
from culver.bench.dataframe.dataframe_plan import CONTESTANTS

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


@pytest.mark.slow(seconds=90)
@pytest.mark.parametrize("workload", ["W1", "W2"])
def test_a_quick_run_measures_every_contestant(workload: str) -> None:
    command = [
        sys.executable,
        "-m",
        "culver",
        "bench",
        "dataframe",
        "--quick",
        "--workload",
        workload,
        "--json",
        "-",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    records, of_site = results[: len(CONTESTANTS)], results[len(CONTESTANTS) :]
    assert [record["system"] for record in of_site] == list(site_frames.SYSTEMS)
    assert all(record["events_per_second"] > 0 and record["times_parquet"] > 0 for record in of_site)
    assert [record["system"] for record in records] == [each.title for each in CONTESTANTS.values()]
    assert len({record["matches_per_event"] for record in records}) == 1
    for record in records:
        assert (record["workload"], record["filters"]) == (workload, 1_000)
        assert record["events_per_second"] > 0
        assert record["times_the_join"] > 0
        assert record["times_the_bare_matcher"] > 0
