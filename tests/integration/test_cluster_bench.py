"""`culver bench overlay --paper clusters` runs whole, and refuses figures that the paper does not have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from culver.cli import main

pytestmark = pytest.mark.thorough


def test_a_quick_run_compares_clusters_and_balances_their_load(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "culver", "bench", "overlay", "--paper", "clusters", "--quick"]
    done = subprocess.run(
        [*command, "--plots", str(tmp_path), "--json", "-"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["results"]
    assert {record["experiment"] for record in records} == {
        "2", "3", "3, readings", "3, variations", "clusters", "strategies",
    }  # fmt: skip
    spread = [
        (record["policy"], record["met"])
        for record in records
        if (record["experiment"], record["what"]) == ("2", "standard deviation of loads")
    ]
    clusters = {"5 clusters", "10 clusters", "20 clusters"}
    assert {policy for policy, _ in spread} == clusters | {"random tree", "balanced tree", "hash table"}
    assert [met for policy, met in spread if policy in clusters] == [True] * 9
    policies = {record["policy"] for record in records if record["experiment"] == "3"}
    assert {"not balanced", "balanced at 150"} <= policies
    chosen = [record for record in records if record["what"] == "number of clusters by the rule"]
    assert [record["ours"] for record in chosen] == [14]
    what = "messages with a measured number for each origin"
    (measured,) = (record for record in records if record["what"] == what)
    assert measured["ours"] < 0.8
    assert measured["note"].startswith("1 clusters for the busy ones and 4 for the others")
    assert {path.name for path in tmp_path.iterdir()} == {
        "clusters-counts.svg",
        *(f"clusters-figure-2-{ratio}.svg" for ratio in (10, 50, 70)),
        *(f"clusters-figure-3-{ratio}.svg" for ratio in (25, 50, 75)),
    }


def test_a_figure_of_another_paper_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "overlay", "--paper", "clusters", "--quick", "--figure", "7"]) == 2
    assert "the figures of clusters are 2, 3" in capsys.readouterr().err
